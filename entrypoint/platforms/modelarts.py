"""Huawei Cloud ModelArts training jobs.

Sources: "Managing Environment Variables of a Training Container" (develop-modelarts-0104) for MA_* and VC_*; the boot
file of the preset MPI image for MA_VJ_NAME's host name rule and for the order of the index variables; "TensorFlow"
(preset image) for TF_PS_HOSTS, TF_WORKER_HOSTS and one parameter server a node; Volcano's svc plugin for VC_PS_*.
"""

from __future__ import annotations

from collections.abc import Mapping

from entrypoint.errors import ConfigError
from entrypoint.model import Facts, Site

# Users cannot set MA_* variables there, so any of these is the platform's own word.
_MARKS = ("MA_JOB_DIR", "MA_VJ_NAME", "MA_NUM_HOSTS")
_INDEX = ("MA_TASK_INDEX", "VC_TASK_INDEX", "VK_TASK_INDEX")
_RUN_METHODS = ("torchrun", "msrun")  # "Ascend-Powered-Engine", MA_RUN_METHOD; unset means by rank table
_PS_MARKS = ("TF_PS_HOSTS", "VC_PS_HOSTS", "VC_PS_NUM")  # set in the containers of both tasks
_Listener = tuple[str, int | None]  # host, and port where it is given
_Unknown = dict[str, tuple[str, str, str]]  # as Site.unknown


def matches(facts: Facts) -> bool:
    """Whether one of the platform's own variables is set."""
    return any(facts.env.get(name) for name in _MARKS)


def site(facts: Facts) -> Site:
    """The hosts, this node's index and the accelerators of each node, as the platform's variables give them.

    Raises ConfigError when a variable is not the number it has to be.
    """
    env = facts.env
    origins: dict[str, str] = {}
    unknown: _Unknown = {}
    workers = _workers(env, origins, unknown)
    servers = _servers(env, origins)
    hosts = tuple(host for host, _ in (*workers, *servers))
    ports = tuple(port for _, port in (*workers, *servers) if port)
    index = _index(env, hosts, origins, unknown)
    if servers and index is not None and env.get("MA_TASK_NAME") == "ps":
        index += len(workers)
    # 0 is the documented default of a CPU flavour, not a count of processes.
    cards = _number(env, "MA_NUM_GPUS") or None
    origins["slots"] = "MA_NUM_GPUS" if cards else "MA_NUM_GPUS is empty or 0"
    job = env.get("MA_VJ_NAME") or None
    if job:
        origins["name"] = "MA_VJ_NAME"
    return Site(
        platform="modelarts",
        hosts=hosts,
        index=index,
        slots=cards or 1,
        job=job,
        hostname=facts.hostname,
        tasks=("worker",) * len(workers) + ("ps",) * len(servers) if servers else (),
        ports=ports if len(ports) == len(hosts) else (),
        launcher=_launcher(env, bool(servers), origins),
        log_dir=_log_dir(env, origins),
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
            "MA_RUN_METHOD is no run method", repr(method[:60]), f"set it to {' or '.join(_RUN_METHODS)}, or unset it"
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


def _servers(env: Mapping[str, str], origins: dict[str, str]) -> tuple[_Listener, ...]:
    """TensorFlow's parameter servers; none in a job of another engine."""
    for name in ("TF_PS_HOSTS", "VC_PS_HOSTS"):
        if servers := _listeners(env.get(name, "")):
            origins["tensorflow.ps"] = name
            return servers
    job, count = env.get("MA_VJ_NAME"), _number(env, "VC_PS_NUM")
    if not (job and count):
        return ()
    origins["tensorflow.ps"] = "MA_VJ_NAME"
    return tuple((f"{job}-ps-{index}.{job}", None) for index in range(count))


def _workers(env: Mapping[str, str], origins: dict[str, str], unknown: _Unknown) -> tuple[_Listener, ...]:
    if listed := _listeners(env.get("TF_WORKER_HOSTS", "")):
        origins["hosts"] = "TF_WORKER_HOSTS"
        return listed
    hosts = _hosts(env, origins, unknown)
    job = env.get("MA_VJ_NAME")
    if not hosts and not unknown and job and any(env.get(name) for name in _PS_MARKS):
        origins["hosts"] = "MA_VJ_NAME"  # one node has two containers
        hosts = (f"{job}-worker-0.{job}",)
    return tuple((host, None) for host in hosts)


def _listeners(text: str) -> tuple[_Listener, ...]:
    """Host and port of each entry of `[host:port,host:port]`; some leave the brackets out."""
    entries = [entry.strip().rpartition(":") for entry in text.strip().strip("[]").split(",") if entry.strip()]
    return tuple(
        (host, int(port)) if host and port.isdigit() else (host + colon + port, None) for host, colon, port in entries
    )


def _hosts(env: Mapping[str, str], origins: dict[str, str], unknown: _Unknown) -> tuple[str, ...]:
    count = _number(env, "MA_NUM_HOSTS")
    listed = tuple(host.strip() for host in env.get("VC_WORKER_HOSTS", "").split(",") if host.strip())
    if listed and count is not None and len(listed) != count:
        unknown["hosts"] = (
            "the platform names another number of hosts than it counts",
            f"VC_WORKER_HOSTS has {len(listed)}, MA_NUM_HOSTS is {count}",
            "set ENTRYPOINT_HOSTS to the right list",
        )
        return ()
    if listed:
        origins["hosts"] = "VC_WORKER_HOSTS"
        return listed
    if count is None or count < 2:
        return ()
    job, task = env.get("MA_VJ_NAME"), env.get("MA_TASK_NAME") or "worker"
    if any(env.get(name) for name in _PS_MARKS):
        task = "worker"  # this one may be a server of theirs
    if not job:
        unknown["hosts"] = (
            f"MA_NUM_HOSTS is {count} and nothing names the hosts",
            "VC_WORKER_HOSTS and MA_VJ_NAME are unset",
            "set ENTRYPOINT_HOSTS",
        )
        return ()
    origins["hosts"] = "MA_VJ_NAME"
    return tuple(f"{job}-{task}-{index}.{job}" for index in range(count))


def _index(env: Mapping[str, str], hosts: tuple[str, ...], origins: dict[str, str], unknown: _Unknown) -> int | None:
    if len(hosts) == 1:
        return 0  # there the platform calls its own variable meaningless
    for name in _INDEX:
        index = _number(env, name)
        if index is not None:
            origins["node_rank"] = name
            return index
    if hosts:
        unknown["node_rank"] = (
            f"the platform gives {len(hosts)} hosts and no index of this one",
            f"{', '.join(_INDEX)} are unset",
            "set ENTRYPOINT_NODE_RANK (0 for worker-0)",
        )
    return None  # without hosts too: the spec may name many, and they can't all be node 0


def _number(env: Mapping[str, str], name: str) -> int | None:
    text = env.get(name, "").strip()
    if not text:
        return None
    if not (text.isascii() and text.isdigit()):
        raise ConfigError(f"{name} is not a whole number", repr(text[:60]), f"mend {name}")
    return int(text)
