"""Variables by which platforms and launchers number nodes and ranks, whoever set them.

`several_nodes` finds out whether they describe more nodes than one: without hosts each node would
train alone. `several_starts` finds out whether a launcher has started this program several times on
this node. `inherited` removes those that are a rank's own: they are of another job than ours.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from entrypoint.base.errors import ConfigError
from entrypoint.base.interfaces import ip
from entrypoint.base.model import Facts
from entrypoint.base.tables import rows
from entrypoint.base.text import digits, from_json, some
from entrypoint.base.values import replace
from entrypoint.plan.forms import Form, form_of
from entrypoint.platforms._clues import listener
from entrypoint.platforms._slurm import is_step, most

_CLUSTERS = re.compile(
    "(.*_)?(CONFIG|CLUSTER|CLUSTER_SPEC|TASK_INFO)"
)  # JSON with the hosts of each task

_ROLES = {"master", "chief", "worker", "ps"}


# Numbers of processes, of those on one node (`-` for none), and the number of this one.
_PROCESSES = rows("""
    WORLD_SIZE           | LOCAL_WORLD_SIZE           | RANK
    ROLE_WORLD_SIZE      | LOCAL_WORLD_SIZE           | ROLE_RANK
    OMPI_COMM_WORLD_SIZE | OMPI_COMM_WORLD_LOCAL_SIZE | OMPI_COMM_WORLD_RANK
    MV2_COMM_WORLD_SIZE  | MV2_COMM_WORLD_LOCAL_SIZE  | MV2_COMM_WORLD_RANK
    PMI_SIZE             | MPI_LOCALNRANKS            | PMI_RANK
    PMIX_SIZE            | MPI_LOCALNRANKS            | PMIX_RANK
    HOROVOD_SIZE         | HOROVOD_LOCAL_SIZE         | HOROVOD_RANK
    SLURM_NTASKS         | SLURM_NTASKS_PER_NODE      | SLURM_PROCID
    SLURM_NPROCS         | SLURM_NTASKS_PER_NODE      | SLURM_PROCID
    JAX_NUM_PROCESSES    | -                          | JAX_PROCESS_ID
    RANK_SIZE            | -                          | RANK_ID
    DMLC_NUM_WORKER      | -                          | DMLC_TASK_ID
    MS_WORKER_NUM        | -                          | MS_NODE_ID
    PADDLE_TRAINERS_NUM  | -                          | PADDLE_TRAINER_ID
""")
# Numbers of processes on one node, and the number of this one among them, from 0. A platform may
# set the first for a whole node; only a process has the second.
_LOCAL = rows("""
    LOCAL_WORLD_SIZE           | LOCAL_RANK
    OMPI_COMM_WORLD_LOCAL_SIZE | OMPI_COMM_WORLD_LOCAL_RANK
    MV2_COMM_WORLD_LOCAL_SIZE  | MV2_COMM_WORLD_LOCAL_RANK
    MPI_LOCALNRANKS            | MPI_LOCALRANKID
    HOROVOD_LOCAL_SIZE         | HOROVOD_LOCAL_RANK
    -                          | SLURM_LOCALID
""")
_STEP = ("SLURM_STEP_NUM_TASKS", "SLURM_STEP_NUM_NODES")  # which srun sets
# Tasks on each of its nodes; the second is the job's setting, if the step has none of its own.
_TASKS = ("SLURM_STEP_TASKS_PER_NODE", "SLURM_NTASKS_PER_NODE")
_COUNTED = ("NODE", "HOST", "MACHINE")  # one of these is one node
# Not inherited: torch's and ours, those of MPI and of process managers, Slurm's and JAX's.
_OF_A_RANK = re.compile(
    "(LOCAL_|ROLE_|GROUP_|NODE_)?RANK|((LOCAL|ROLE|GROUP)_)?WORLD_SIZE|ROLE_NAME|NNODES|NODE_HOSTS"
    "|MASTER_(ADDR|PORT)|TORCHELASTIC_(RUN_ID|RESTART_COUNT|MAX_RESTARTS|USE_AGENT_STORE)"
    "|(OMPI|MV2)_COMM_WORLD_.*|OMPI_UNIVERSE_SIZE|PMI_.*|PMIX_(RANK|SIZE|NAMESPACE|SERVER_.*)"
    "|MPI_LOCAL(NRANKS|RANKID)|HOROVOD_((LOCAL|CROSS)_)?(RANK|SIZE)|RANK_(ID|SIZE)"
    "|SLURM_(PROCID|LOCALID|NTASKS|NPROCS)|JAX_(NUM_PROCESSES|PROCESS_ID)"
)
_SHOWN = 6  # variables in one message


def inherited(env: Mapping[str, str]) -> dict[str, str]:
    """Return the container's variables without those that number a rank, or say where ranks meet:
    each launcher sets its own, and so may the user, by the spec's `env`.

    In a step of Slurm also without PMIx's: srun's plugin names components for its own tasks, and
    another MPI that lacks one ends.
    """
    of_step = "PMIX_" if is_step(env) else "\0"
    return {
        name: value
        for name, value in env.items()
        if not (_OF_A_RANK.fullmatch(name) or name.startswith(of_step))
    }


def several_nodes(facts: Facts) -> tuple[str, ...]:
    """Return the variables that say that the job has several nodes; none if it has one.

    A number of processes says nothing of nodes if another variable counts one node, and a meeting
    point elsewhere says nothing if another one counts one process. What may be another program's,
    such as a number of workers or the host of a master, counts next to the number of this one of
    them, or to both on one platform.
    """
    env, forms = facts.env, _forms(facts)
    sizes = {size: _number(env, size) for size, _, _ in _PROCESSES if size in env}
    counts = {name: form for name, form in forms.items() if form.kind == "count"}
    nodes = {name: _number(env, name) for name, form in counts.items() if form.is_sure}
    processes = [name for family in _PROCESSES for name in _on_others(env, *family)]
    processes += [
        name
        for name, form in counts.items()
        if name not in {*nodes, *sizes} and _number(env, name) > 1
        if _is_job(form, forms.values())
    ]
    meetings = [
        name
        for name, form in forms.items()
        if (form.kind == "leader" or form.number == "0") and _is_elsewhere(env[name], facts)
        if form.is_sure or _is_job(form, forms.values())
        if 1 not in [_number(env, count) for count in counts if form.is_beside(counts[count])]
    ]
    names = [name for name, number in nodes.items() if number > 1]
    names += [
        name
        for name, form in forms.items()
        if form.kind == "index" and form.is_sure and _number(env, name) > 0
    ]
    names += [name for name in env if _CLUSTERS.fullmatch(name) and _has_others(env[name])]
    names += _lists(facts, forms)
    # a replica may be another program's
    is_one_node = any(
        number == 1 and forms[name].unit in _COUNTED for name, number in nodes.items()
    )
    if processes and (meetings or not is_one_node):
        names += processes
    if meetings and (names or not (is_one_node or 1 in sizes.values())):
        names += meetings
    return tuple(dict.fromkeys(names))


def _forms(facts: Facts) -> dict[str, Form]:
    """Return what the names of the variables say that have a value which fits."""
    forms = {}
    for name, value in facts.env.items():
        form = form_of(name) if value.strip() else None
        is_number = digits(value.strip()) is not None
        if form and form.kind == "plural":
            form = replace(form, kind="count") if is_number else None
        if form and (is_number or form.kind != "id"):
            forms[name] = form
    return forms


def _is_job(form: Form, forms: Collection[Form]) -> bool:
    """Return whether what may be another program's is of a job: another variable numbers one of
    them, or, for a platform with a name, one counts them and another says where they meet."""
    kinds = {"count": "leader", "leader": "count"}
    return any(
        other.numbers(form) or (other.kind == kinds.get(form.kind) and form.is_beside(other))
        for other in forms
    )


def refuse_several_starts(facts: Facts) -> None:
    """Raise ConfigError if `several_starts` finds any variables: each start would train alone."""
    if names := several_starts(facts.env):
        raise ConfigError(
            "EP208 a launcher has started this program more than once on this node, and one"
            " entrypoint starts all ranks of its node",
            _shown(facts, names),
            "start it once on each node (srun --ntasks-per-node=1, mpirun --map-by ppr:1:node,"
            " process_count_per_instance: 1 in Azure ML); or set ENTRYPOINT_PLATFORM=local, if each"
            " start is a job of its own",
        )


def several_starts(env: Mapping[str, str]) -> tuple[str, ...]:
    """Return the variables that say that this is one of several processes of a launcher on this
    node; none if it is the only one.

    A batch script of Slurm is no step, and has only numbers of tasks that were asked for. Raises
    ConfigError if a step's list of tasks is none.
    """
    if is_step(env):
        tasks, nodes = (_number(env, name) for name in _STEP)
        if tasks > max(1, nodes):
            return tuple(name for name in _STEP if name in env)
        name = next((name for name in _TASKS if env.get(name, "").strip()), "")
        if name and most(env[name], name) > 1:
            return (name,)
    for size, rank in _LOCAL:
        number = _number(env, rank)
        if number > 0 or (number == 0 and _number(env, size) > 1):
            return tuple(name for name in (size, rank) if name in env)
    return ()


def reason(facts: Facts) -> tuple[str, str, str] | None:
    """Return why the hosts are unknown if `several_nodes` or `invalid_counts` find any variables:
    summary, detail, hint."""
    hint = (
        "set ENTRYPOINT_HOSTS to all nodes, the same list on each; or, if this node is to train"
        " alone, nodes: 1 (ENTRYPOINT_NODES=1)"
    )
    if names := several_nodes(facts):
        summary = "the environment describes several nodes, and nothing names the hosts"
        return summary, _shown(facts, names), hint
    if names := invalid_counts(facts):
        summary = "the number of nodes is not known: a count is not a whole number of 1 or more"
        return summary, _shown(facts, names), f"fix {names[0]}; or {hint}"
    return None


def invalid_counts(facts: Facts) -> tuple[str, ...]:
    """Return the variables that count nodes or processes and are no whole number of 1 or more;
    none if another one is.

    Such a variable may be another program's, so it counts only next to one that numbers a node or a
    process, or says where they meet. One with a prefix of its own needs one with the same prefix.
    """
    env, forms = facts.env, _forms(facts)
    counts = {
        name: form.of
        for name, form in forms.items()
        if form.kind == "count" and form.unit in _COUNTED
    }
    counts |= {size: () for size, _, _ in _PROCESSES if env.get(size, "").strip()}
    if any(_number(env, name) > 0 for name in counts):
        return ()
    numbers = [form.of for form in forms.values() if form.kind in ("index", "leader")]
    return tuple(
        name for name, of in counts.items() if any(other[: len(of)] == of for other in numbers)
    )


def _shown(facts: Facts, names: Iterable[str]) -> str:
    return some((f"{name} is {facts.env[name].strip()[:60]!r}" for name in names), _SHOWN)


def _number(env: Mapping[str, str], name: str) -> int:
    return _largest(env.get(name, ""))


def _largest(text: str) -> int:
    """Return the last number of a text such as 2 or 2:4; -1 if it is none."""
    number = digits(text.rpartition(":")[2].strip())
    return -1 if number is None else number


def _on_others(env: Mapping[str, str], size: str, local: str, rank: str) -> Iterator[str]:
    """Yield the variables that count more processes than there are on one node, or number one of
    the others."""
    here = max(1, _number(env, local))
    yield from (name for name, first in ((size, 0), (rank, 1)) if _number(env, name) + first > here)


def _lists(facts: Facts, forms: Mapping[str, Form]) -> list[str]:
    """Return the lists of a platform that name several hosts together.

    A list of HOSTS may be of a service: it counts if this host is in it, too.
    """
    hosts: dict[str, set[str]] = {}
    lists = {name: form for name, form in forms.items() if form.kind == "list"}
    families = {name: "".join(form.of[:1]) or name for name, form in lists.items()}
    of_nodes = set()
    for name, form in lists.items():
        listed = _listed(facts.env[name])
        hosts.setdefault(families[name], set()).update(listed)
        is_job = form.is_sure or _is_job(form, forms.values())
        if is_job or any(is_own(host, facts) for host in listed):
            of_nodes.add(families[name])
    return [name for name in lists if families[name] in of_nodes and len(hosts[families[name]]) > 1]


def _listed(text: str) -> set[str]:
    """Return the hosts of a list; one more if Slurm's a[1-2] may be several."""
    entries = re.split(r"[\s,;\"]+", text.strip('[]"'))
    # LSB_MCPU_HOSTS has numbers between the hosts
    listed = {listener(entry)[0] for entry in entries if entry and not entry.isdigit()}
    return listed | {"several" for entry in entries if "[" in entry}


def _has_others(text: str) -> bool:
    """Return whether the JSON of a cluster names several hosts, or is of another than the first.

    An evaluator is a job of its own.
    """
    try:
        config = from_json(text)
    except ValueError:
        return False
    if not isinstance(config, dict):
        return False
    # The two may be in one, or in a variable each: POLYAXON_CLUSTER, POLYAXON_TASK_INFO.
    bare = {role: hosts for role, hosts in config.items() if role in _ROLES}
    cluster = config.get("cluster", bare)
    task = config.get("task", config if {"type", "role"} & config.keys() else None)
    tasks: list[Any] = list(cluster.values()) if isinstance(cluster, dict) else []
    tasks = [entries.split(",") if isinstance(entries, str) else entries for entries in tasks]
    hosts = sum(len(entries) for entries in tasks if isinstance(entries, (list, dict)))
    own = task if isinstance(task, dict) else {}
    has_others = hosts > 1 or _largest(str(own.get("index"))) > 0
    return has_others and own.get("type") != "evaluator"


def _is_elsewhere(meeting: str, facts: Facts) -> bool:
    """Return whether the nodes meet at another host than this one, by its name or address."""
    host = listener(meeting.strip().rpartition("//")[2])[0].lower().rstrip(".")
    address = ip(host)
    is_loopback = address and (address.is_loopback or address.is_unspecified)
    return not (is_loopback or host in ("", "localhost") or is_own(host, facts))


def is_own(host: str, facts: Facts) -> bool:
    """Return whether this container has the name or the address."""
    if ip(host):
        return host in {interface.address for interface in facts.interfaces}
    own, host = facts.hostname.lower(), host.lower().rstrip(".")
    return host == own or (bool(host) and host.split(".")[0] == own.split(".")[0])
