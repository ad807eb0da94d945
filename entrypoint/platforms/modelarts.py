"""Huawei Cloud ModelArts training jobs.

Sources: "Managing Environment Variables of a Training Container" (develop-modelarts-0104) for MA_*
and VC_*; the boot file of the preset MPI image for MA_VJ_NAME's host name rule and for the order of
the index variables; "TensorFlow" (preset image) for TF_PS_HOSTS, TF_WORKER_HOSTS and one parameter
server a node; Volcano's svc plugin for VC_PS_*; "Enabling Dynamic Route Acceleration for Training
Jobs" (develop-modelarts-0004) for RANK_AFTER_ACC; "Ascend logs" (develop-modelarts-0096) for
ma-pre-start.sh; mindspore-ai/models and OTC's "Permission denied" page for the names of its first
version (DLS_*, BATCH_CUSTOM<N>_HOSTS).

With ROUTE_PLAN=true and at least 3 nodes, the platform renumbers the nodes: RANK_AFTER_ACC is then
this node's number, and MA_MASTER_INDEX the first worker. No node gets the numbers of all others
(only the platform's API has them, ShowTrainingJobRoutePlan), and the roll call needs one order that
all nodes know. So the order of VC_WORKER_HOSTS is used: a valid order, not the accelerated one.
Using RANK_AFTER_ACC as well would mix two orders in one job. If HCCL reads a rank table, its ranks
are the table's, whatever the order here is. For the new order, set ENTRYPOINT_HOSTS in that order,
and ENTRYPOINT_NODE_RANK to the value of RANK_AFTER_ACC.

The boot of a preset image runs ma-pre-start.sh, next to the boot file, before that file: to install
packages, and to "set global environment variables" for the training. In a custom image, such as
ours, only the boot command runs, so the toolkit runs the script. No variable names the code
directory below MA_JOB_DIR.
"""

from __future__ import annotations

from entrypoint.base.errors import ConfigError
from entrypoint.base.text import count, some
from entrypoint.platforms._clues import Clues, Listener, job_name, listener, ports, wrong_ports

_INDEX = ("MA_TASK_INDEX", "VC_TASK_INDEX", "VK_TASK_INDEX", "DLS_TASK_INDEX")
_V1 = "DLS_TASK_NUMBER"  # its nodes in the platform's first version, which does not count cards
# "Ascend-Powered-Engine", MA_RUN_METHOD; unset means by rank table
_RUN_METHODS = (
    "torchrun",
    "msrun",
)
_PS_MARKS = ("TF_PS_HOSTS", "VC_PS_HOSTS", "VC_PS_NUM")  # set in the containers of both tasks
_NO_ORDER = "RANK_AFTER_ACC tells no node the order of all"
LAYER = 0
MARKS = ("MA_JOB_DIR", "MA_VJ_NAME", "MA_NUM_HOSTS", _V1)
SCRIPT = ("MA_JOB_DIR", "ma-pre-start.sh")  # in one of the code folders below this one
SECRET = "add ENTRYPOINT_SECRET to the job's variables"
ROWS = """
`modelarts` | `MA_JOB_DIR`, `MA_VJ_NAME` or `MA_NUM_HOSTS`; `DLS_TASK_NUMBER` |
    `VC_WORKER_HOSTS`, or by rule from `MA_VJ_NAME`; `BATCH_CUSTOM<N>_HOSTS` | `MA_TASK_INDEX`,
    `VC_TASK_INDEX`, `DLS_TASK_INDEX` | `MA_NUM_GPUS`
"""


def read(clues: Clues) -> None:
    """Take the hosts, this node's index and the accelerators of each node, from the platform's
    variables.

    Raises ConfigError if a variable is not the number it has to be.
    """
    workers = _workers(clues)
    servers = _servers(clues)
    listeners = (*workers, *servers)
    lists = {clues.origins[field] for field in ("hosts", "tensorflow.ps") if field in clues.origins}
    if reason := wrong_ports(listeners, ", ".join(sorted(lists))):
        clues.unknown["hosts"] = reason
    elif servers and not workers and "hosts" not in clues.unknown:
        clues.no_hosts(
            "parameter servers are named, and no worker",
            f"{clues.origins['tensorflow.ps']} names {len(servers)},"
            f" TF_WORKER_HOSTS is {clues.env.get('TF_WORKER_HOSTS', '')[:60]!r}",
            "set TF_WORKER_HOSTS on all nodes, or ENTRYPOINT_HOSTS",
        )
    clues.take("hosts", tuple(host for host, _ in listeners))
    _take_index(clues, len(workers), len(servers))
    # 0 is the documented default of a CPU flavour, not a count of processes.
    cards = clues.number("MA_NUM_GPUS")
    if cards or _V1 not in clues.env:
        clues.take("slots", cards or 1, "MA_NUM_GPUS" if cards else "MA_NUM_GPUS is empty or 0")
    clues.take_job("BATCH_JOB_ID")
    _take_job(clues)
    _take_launcher(clues)
    if mount := clues.env.get("MA_MOUNT_PATH"):
        clues.take("log_dir", f"{mount}/log", "MA_MOUNT_PATH")
    clues.take("log_dir", clues.env.get("MA_LOG_DIR"), "MA_LOG_DIR")
    _take_pre_start(clues)
    clues.take("ports", ports(listeners))
    if servers:
        clues.take("tasks", ("worker",) * len(workers) + ("ps",) * len(servers))


def _take_job(clues: Clues) -> None:
    job = clues.env.get("MA_VJ_NAME", "")
    if job and not job_name(job):
        raise ConfigError(
            "EP207 MA_VJ_NAME cannot be a job's name",
            repr(job[:80]),
            "give the job a name of a-z, 0-9 and -, up to 63 characters",
        )
    clues.take("job", job, "MA_VJ_NAME")


def _take_launcher(clues: Clues) -> None:
    """Take the launcher of the job's engine, if a variable names it."""
    method = clues.env.get("MA_RUN_METHOD", "")
    if method and method not in _RUN_METHODS:
        raise ConfigError(
            "EP207 MA_RUN_METHOD is not a run method",
            repr(method[:60]),
            f"set it to {' or '.join(_RUN_METHODS)}, or unset it",
        )
    if method:
        clues.take("launcher", method, "MA_RUN_METHOD")
    elif lists := clues.origins.get("tensorflow.ps"):
        clues.take("launcher", "tensorflow", lists)


def _take_pre_start(clues: Clues) -> None:
    """Take the script of the code directory."""
    scripts = clues.facts.scripts
    if len(scripts) == 1:
        clues.take("pre_start", scripts[0], "MA_JOB_DIR")
    elif scripts:
        clues.unknown["pre_start"] = (
            "several folders below MA_JOB_DIR have a script to run first",
            some(scripts, 4),
            "leave one, or set ENTRYPOINT_PRE_START=skip",
        )


def _servers(clues: Clues) -> tuple[Listener, ...]:
    """Return TensorFlow's parameter servers; none in a job of another engine."""
    for name in ("TF_PS_HOSTS", "VC_PS_HOSTS"):
        if servers := _listeners(clues, name):
            clues.origins["tensorflow.ps"] = name
            return servers
    job = clues.env.get("MA_VJ_NAME")
    size = clues.number("VC_PS_NUM")
    if not (job and size):
        return ()
    clues.origins["tensorflow.ps"] = "MA_VJ_NAME"
    return tuple((f"{job}-ps-{index}.{job}", None) for index in range(size))


def _workers(clues: Clues) -> tuple[Listener, ...]:
    if listed := _listeners(clues, "TF_WORKER_HOSTS"):
        clues.origins["hosts"] = "TF_WORKER_HOSTS"
        return listed
    _take_hosts(clues)
    job = clues.env.get("MA_VJ_NAME")
    if not clues.hosts and not clues.unknown and job and _has_servers(clues):
        clues.take("hosts", (f"{job}-worker-0.{job}",), "MA_VJ_NAME")  # one node has two containers
    return tuple((host, None) for host in clues.hosts)


def _has_servers(clues: Clues) -> bool:
    return any(map(clues.env.get, _PS_MARKS))


def _listeners(clues: Clues, name: str) -> tuple[Listener, ...]:
    """Return host and port of each entry of a variable, `[host:port,host:port]`; brackets and ports
    are optional."""
    text = clues.env.get(name, "").strip()
    if text.startswith("[") and text.endswith("]") and "]" not in text[:-1]:
        text = text[1:-1]
    return tuple(listener(entry.strip()) for entry in text.split(",") if entry.strip())


def _take_hosts(clues: Clues) -> None:
    nodes = clues.number("MA_NUM_HOSTS")
    if nodes is None and (size := clues.number(_V1)):
        lists = (_listeners(clues, f"BATCH_CUSTOM{index}_HOSTS") for index in range(size))
        hosts = tuple(host for each in lists for host, _ in each)
        clues.take_hosts("BATCH_CUSTOM*_HOSTS", _V1, hosts)
        return
    # Brackets and ports, as in TensorFlow's lists, are ignored.
    listed = tuple(host for host, _ in _listeners(clues, "VC_WORKER_HOSTS"))
    job = clues.env.get("MA_VJ_NAME")
    if listed:
        clues.take_hosts("VC_WORKER_HOSTS", "MA_NUM_HOSTS", listed)
    elif nodes and nodes > 1 and job:
        # Next to parameter servers, this container may be one of them.
        task = "worker" if _has_servers(clues) else clues.env.get("MA_TASK_NAME") or "worker"
        hosts = tuple(f"{job}-{task}-{index}.{job}" for index in range(nodes))
        clues.take("hosts", hosts, "MA_VJ_NAME")
    elif nodes and nodes > 1:
        clues.no_hosts(
            f"MA_NUM_HOSTS is {nodes} and nothing names the hosts",
            "VC_WORKER_HOSTS and MA_VJ_NAME are unset",
            "set ENTRYPOINT_HOSTS",
        )


def _take_index(clues: Clues, workers: int, servers: int) -> None:
    """Take this node's place among workers, then servers; the variables count within a task."""
    is_server = clues.env.get("MA_TASK_NAME") == "ps"
    if is_server and not servers:
        clues.no_index(
            "this container is a parameter server, and none is named",
            f"MA_TASK_NAME is ps, TF_PS_HOSTS is {clues.env.get('TF_PS_HOSTS', '')[:60]!r}",
            "set TF_PS_HOSTS on all nodes, or ENTRYPOINT_HOSTS, ENTRYPOINT_TENSORFLOW_PS and"
            " ENTRYPOINT_NODE_RANK",
        )
        return
    name = clues.first(*_INDEX)
    index = clues.number(name)
    task, field = ("parameter server", "tensorflow.ps") if is_server else ("worker", "hosts")
    hosts = servers if is_server else workers
    if index is not None and servers and workers and index >= hosts:
        clues.beyond(name, index, clues.origins[field], count(hosts, task), task)
    elif index is not None:
        # the platform has renumbered the nodes, for shorter routes between them
        is_rerouted = clues.env.get("ROUTE_PLAN", "").strip().lower() == "true"
        is_told = is_rerouted and clues.env.get("RANK_AFTER_ACC")
        origin = f"{name}; {_NO_ORDER}" if is_told else name
        clues.take("index", index + workers * is_server, origin)
    else:
        clues.take_index(name)
