"""Huawei Cloud ModelArts training jobs.

Sources: "Managing Environment Variables of a Training Container" (develop-modelarts-0104) for MA_* and VC_*; the boot
file of the preset MPI image for MA_VJ_NAME's host name rule and for the order of the index variables; "TensorFlow"
(preset image) for TF_PS_HOSTS, TF_WORKER_HOSTS and one parameter server a node; Volcano's svc plugin for VC_PS_*;
"Enabling Dynamic Route Acceleration for Training Jobs" (develop-modelarts-0004) for RANK_AFTER_ACC; "Ascend logs"
(develop-modelarts-0096) for ma-pre-start.sh.

With ROUTE_PLAN=true, and 3 nodes or more, the platform numbers the nodes anew: RANK_AFTER_ACC is this node's number
then, and MA_MASTER_INDEX says which worker is the first. No node is told the numbers of all the others (an API of the
platform gives them, ShowTrainingJobRoutePlan), and the roll call needs one order that all nodes know. So the order of
VC_WORKER_HOSTS stays: a right order, not the accelerated one. RANK_AFTER_ACC beside it would be two orders in one job.
Where HCCL reads a rank table, its ranks are the table's, whatever the order here. For the new order, name the hosts
in it: ENTRYPOINT_HOSTS, and ENTRYPOINT_NODE_RANK with the value of RANK_AFTER_ACC.

The boot of a preset image runs ma-pre-start.sh, beside the boot file, before that file: to install packages, and to
"set global environment variables" for the training. In a custom image, such as ours, only the boot command runs, so
that it is for us to run. No variable says which folder below MA_JOB_DIR is the code directory.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from entrypoint.errors import ConfigError
from entrypoint.model import Facts, Site
from entrypoint.platforms._hosts import Unknown, counted
from entrypoint.platforms._listeners import Listener, listener, ports, wrong_ports
from entrypoint.platforms._numbers import number
from entrypoint.spec import JOB_NAME
from entrypoint.text import count, some

_INDEX = ("MA_TASK_INDEX", "VC_TASK_INDEX", "VK_TASK_INDEX")
_RUN_METHODS = ("torchrun", "msrun")  # "Ascend-Powered-Engine", MA_RUN_METHOD; unset means by rank table
_PS_MARKS = ("TF_PS_HOSTS", "VC_PS_HOSTS", "VC_PS_NUM")  # set in the containers of both tasks
_NO_ORDER = "RANK_AFTER_ACC tells no node the order of all"


def site(facts: Facts) -> Site:
    """The hosts, this node's index and the accelerators of each node, as the platform's variables give them.

    Raises ConfigError when a variable is not the number it has to be.
    """
    env = facts.env
    origins: dict[str, str] = {}
    unknown: Unknown = {}
    workers = _workers(env, origins, unknown)
    servers = _servers(env, origins)
    listeners = (*workers, *servers)
    hosts = tuple(host for host, _ in listeners)
    names = sorted({origins[field] for field in ("hosts", "tensorflow.ps") if field in origins})
    unknown |= wrong_ports(listeners, ", ".join(names))
    if servers and not workers:
        unknown.setdefault("hosts", _no_worker(env, len(servers), origins))
    index = _index(env, len(workers), len(servers), origins, unknown)
    # 0 is the documented default of a CPU flavour, not a count of processes.
    cards = number(env, "MA_NUM_GPUS") or None
    origins["slots"] = "MA_NUM_GPUS" if cards else "MA_NUM_GPUS is empty or 0"
    job = env.get("MA_VJ_NAME") or None
    if job:
        origins["name"] = "MA_VJ_NAME"
        if not re.fullmatch(JOB_NAME, job):  # it is part of paths and of what people read, as a spec's
            do = "give the job a name of a-z, 0-9 and -, up to 63 characters"
            raise ConfigError("EP207 MA_VJ_NAME cannot be a job's name", repr(job[:80]), do)
    return Site(
        platform="modelarts",
        hosts=hosts,
        index=index,
        slots=cards or 1,
        job=job,
        hostname=facts.hostname,
        tasks=("worker",) * len(workers) + ("ps",) * len(servers) if servers else (),
        ports=ports(listeners),
        launcher=_launcher(env, bool(servers), origins),
        log_dir=_log_dir(env, origins),
        pre_start=_pre_start(facts.scripts, origins, unknown),
        origins=origins,
        unknown=unknown,
    )


def _launcher(env: Mapping[str, str], servers: bool, origins: dict[str, str]) -> str | None:
    """What the job's engine is started by, where a variable says so."""
    method = env.get("MA_RUN_METHOD", "")
    if method in _RUN_METHODS:
        origins["launcher"] = "MA_RUN_METHOD"
        return method
    if method:
        raise ConfigError(
            "EP207 MA_RUN_METHOD is no run method",
            repr(method[:60]),
            f"set it to {' or '.join(_RUN_METHODS)}, or unset it",
        )
    if servers:
        origins["launcher"] = origins["tensorflow.ps"]
        return "tensorflow"
    return None


def _log_dir(env: Mapping[str, str], origins: dict[str, str]) -> str | None:
    for name, folder in (("MA_LOG_DIR", ""), ("MA_MOUNT_PATH", "/log")):
        if env.get(name):
            origins["log_dir"] = name
            return env[name] + folder
    return None


def _pre_start(scripts: tuple[str, ...], origins: dict[str, str], unknown: Unknown) -> str | None:
    """The script of the code directory."""
    if len(scripts) > 1:
        unknown["pre_start"] = (
            "several folders below MA_JOB_DIR have a script to run first",
            some(scripts, 4),
            "leave one, or set ENTRYPOINT_PRE_START=skip",
        )
    if len(scripts) != 1:
        return None
    origins["pre_start"] = "MA_JOB_DIR"
    return scripts[0]


def _servers(env: Mapping[str, str], origins: dict[str, str]) -> tuple[Listener, ...]:
    """TensorFlow's parameter servers; none in a job of another engine."""
    for name in ("TF_PS_HOSTS", "VC_PS_HOSTS"):
        if servers := _listeners(env.get(name, "")):
            origins["tensorflow.ps"] = name
            return servers
    job, size = env.get("MA_VJ_NAME"), number(env, "VC_PS_NUM")
    if not (job and size):
        return ()
    origins["tensorflow.ps"] = "MA_VJ_NAME"
    return tuple((f"{job}-ps-{index}.{job}", None) for index in range(size))


def _workers(env: Mapping[str, str], origins: dict[str, str], unknown: Unknown) -> tuple[Listener, ...]:
    if listed := _listeners(env.get("TF_WORKER_HOSTS", "")):
        origins["hosts"] = "TF_WORKER_HOSTS"
        return listed
    hosts = _hosts(env, origins, unknown)
    job = env.get("MA_VJ_NAME")
    if not hosts and not unknown and job and any(env.get(name) for name in _PS_MARKS):
        origins["hosts"] = "MA_VJ_NAME"  # one node has two containers
        hosts = (f"{job}-worker-0.{job}",)
    return tuple((host, None) for host in hosts)


def _listeners(text: str) -> tuple[Listener, ...]:
    """Host and port of each entry of `[host:port,host:port]`; some leave the brackets or the ports out."""
    text = text.strip()
    if text.startswith("[") and text.endswith("]") and "]" not in text[:-1]:
        text = text[1:-1]
    return tuple(listener(entry.strip()) for entry in text.split(",") if entry.strip())


def _no_worker(env: Mapping[str, str], servers: int, origins: Mapping[str, str]) -> tuple[str, str, str]:
    seen = f"{origins['tensorflow.ps']} names {servers}, TF_WORKER_HOSTS is {env.get('TF_WORKER_HOSTS', '')[:60]!r}"
    return "parameter servers are named, and no worker", seen, "set TF_WORKER_HOSTS on all nodes, or ENTRYPOINT_HOSTS"


def _hosts(env: Mapping[str, str], origins: dict[str, str], unknown: Unknown) -> tuple[str, ...]:
    nodes = number(env, "MA_NUM_HOSTS")
    # Brackets and ports, as TensorFlow's lists have them, change nothing about who is in the job.
    listed = tuple(host for host, _ in _listeners(env.get("VC_WORKER_HOSTS", "")))
    if listed:
        hosts = counted(listed, "VC_WORKER_HOSTS", nodes, "MA_NUM_HOSTS", unknown)
        if hosts:
            origins["hosts"] = "VC_WORKER_HOSTS"
        return hosts
    if nodes is None or nodes < 2:
        return ()
    job, task = env.get("MA_VJ_NAME"), env.get("MA_TASK_NAME") or "worker"
    if any(env.get(name) for name in _PS_MARKS):
        task = "worker"  # this one may be a server of theirs
    if not job:
        unknown["hosts"] = (
            f"MA_NUM_HOSTS is {nodes} and nothing names the hosts",
            "VC_WORKER_HOSTS and MA_VJ_NAME are unset",
            "set ENTRYPOINT_HOSTS",
        )
        return ()
    origins["hosts"] = "MA_VJ_NAME"
    return tuple(f"{job}-{task}-{index}.{job}" for index in range(nodes))


def _index(env: Mapping[str, str], workers: int, servers: int, origins: dict[str, str], unknown: Unknown) -> int | None:
    """This node's place among workers, then servers; the variables count within a task."""
    serves = env.get("MA_TASK_NAME") == "ps"
    if serves and not servers:
        unknown["node_rank"] = (
            "this container is a parameter server, and none is named",
            f"MA_TASK_NAME is ps, TF_PS_HOSTS is {env.get('TF_PS_HOSTS', '')[:60]!r}",
            "set TF_PS_HOSTS on all nodes, or ENTRYPOINT_HOSTS, ENTRYPOINT_TENSORFLOW_PS and ENTRYPOINT_NODE_RANK",
        )
        return None
    for name in _INDEX:
        index = number(env, name)
        if index is None:
            continue
        if servers and workers and index >= (hosts := servers if serves else workers):
            task, field = ("parameter server", "tensorflow.ps") if serves else ("worker", "hosts")
            unknown["node_rank"] = (
                f"{name} is beyond the last {task}",
                f"{name} is {index}, {origins[field]} names {count(hosts, task)}",
                f"see that {origins[field]} and {name} are of one job, or set ENTRYPOINT_NODE_RANK",
            )
            return None
        origins["node_rank"] = f"{name}; {_NO_ORDER}" if _is_rerouted(env) else name
        return index + workers * serves
    if workers + servers > 1:
        unknown["node_rank"] = (
            f"the platform gives {workers + servers} hosts and no index of this one",
            f"{', '.join(_INDEX)} are unset",
            "set ENTRYPOINT_NODE_RANK (0 for worker-0)",
        )
    # Without hosts none: the spec may name many, and they can't all be node 0.
    return 0 if workers + servers == 1 else None


def _is_rerouted(env: Mapping[str, str]) -> bool:
    """Whether the platform has numbered the nodes anew, for shorter ways between them."""
    return env.get("ROUTE_PLAN", "").strip().lower() == "true" and bool(env.get("RANK_AFTER_ACC"))
