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
from entrypoint.base.text import digits, from_json, some
from entrypoint.plan.forms import Form, form_of
from entrypoint.platforms._clues import listener
from entrypoint.platforms._slurm import is_step, most

# What the words of a name do not say. Numbers of nodes, and of one of them, from 0.
_NODES = re.compile(
    "GROUP_WORLD_SIZE|LWS_GROUP_SIZE|HOROVOD_CROSS_SIZE|MEGASCALE_NUM_SLICES|(VC|MLP)_.+_NUM"
    "|DLS_TASK_NUMBER"
)
_NODE = re.compile("(.*_)?WORKER_ID|(GROUP|HOROVOD_CROSS)_RANK|MEGASCALE_SLICE_ID|DMLC_NUM_SERVER")
_HOSTS = re.compile("(VC|MLP)_.+_HOSTS?|(SM|LSB|LSB_MCPU)_HOSTS|AZ_BATCH_.+_LIST|PADDLE_TRAINERS")
_CLUSTERS = re.compile("(.*_)?(CONFIG|CLUSTER_SPEC)")  # JSON with the hosts of each task


def _table(text: str) -> list[list[str]]:
    """Return the rows of a table of variables, where `-` is none."""
    return [line.split() for line in text.strip().splitlines()]


# Numbers of processes, of those on one node, and the number of this one.
_PROCESSES = _table("""
    WORLD_SIZE            LOCAL_WORLD_SIZE            RANK
    ROLE_WORLD_SIZE       LOCAL_WORLD_SIZE            ROLE_RANK
    OMPI_COMM_WORLD_SIZE  OMPI_COMM_WORLD_LOCAL_SIZE  OMPI_COMM_WORLD_RANK
    MV2_COMM_WORLD_SIZE   MV2_COMM_WORLD_LOCAL_SIZE   MV2_COMM_WORLD_RANK
    PMI_SIZE              MPI_LOCALNRANKS             PMI_RANK
    PMIX_SIZE             MPI_LOCALNRANKS             PMIX_RANK
    HOROVOD_SIZE          HOROVOD_LOCAL_SIZE          HOROVOD_RANK
    SLURM_NTASKS          SLURM_NTASKS_PER_NODE       SLURM_PROCID
    SLURM_NPROCS          SLURM_NTASKS_PER_NODE       SLURM_PROCID
    JAX_NUM_PROCESSES     -                           JAX_PROCESS_ID
    RANK_SIZE             -                           RANK_ID
    DMLC_NUM_WORKER       -                           DMLC_TASK_ID
    MS_WORKER_NUM         -                           MS_NODE_ID
    PADDLE_TRAINERS_NUM   -                           PADDLE_TRAINER_ID
""")
# Numbers of processes on one node, and the number of this one among them, from 0. A platform may
# set the first for a whole node; only a process has the second.
_LOCAL = _table("""
    LOCAL_WORLD_SIZE            LOCAL_RANK
    OMPI_COMM_WORLD_LOCAL_SIZE  OMPI_COMM_WORLD_LOCAL_RANK
    MV2_COMM_WORLD_LOCAL_SIZE   MV2_COMM_WORLD_LOCAL_RANK
    MPI_LOCALNRANKS             MPI_LOCALRANKID
    HOROVOD_LOCAL_SIZE          HOROVOD_LOCAL_RANK
    -                           SLURM_LOCALID
""")
_STEP = ("SLURM_STEP_NUM_TASKS", "SLURM_STEP_NUM_NODES")  # which srun sets
# Tasks on each of its nodes; the second is the job's setting, if the step has none of its own.
_TASKS = ("SLURM_STEP_TASKS_PER_NODE", "SLURM_NTASKS_PER_NODE")
# Where all nodes meet, which one of them is.
_MEETINGS = re.compile(
    "PET_(MASTER_ADDR|RDZV_ENDPOINT)|PADDLE_MASTER|DMLC_(PS_ROOT|TRACKER)_URI|MS_SCHED_HOST"
    "|HOROVOD_GLOO_RENDEZVOUS_ADDR|AZ_BATCH_MASTER_NODE|JAX_COORDINATOR_ADDRESS"
)
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
    point elsewhere says nothing if another one counts one process.
    """
    env, variables = facts.env, _Variables(facts)
    nodes = {name: _largest(env[name]) for name in env if variables.counts_nodes(name)}
    sizes = {size: _number(env, size) for size, _, _ in _PROCESSES if size in env}
    processes = [name for family in _PROCESSES for name in _on_others(env, *family)]
    processes += variables.parts({*nodes, *sizes})
    meetings = [name for name in env if variables.meets_elsewhere(name)]
    names = [name for name, number in nodes.items() if number > 1]
    names += [name for name in env if variables.numbers_node(name) and _number(env, name) > 0]
    names += [name for name in env if _CLUSTERS.fullmatch(name) and _has_others(env[name])]
    names += variables.lists()
    is_one_node = any(number == 1 and variables.counts_all(name) for name, number in nodes.items())
    if processes and (meetings or not is_one_node):
        names += processes
    if meetings and (names or not (is_one_node or 1 in sizes.values())):
        names += meetings
    return tuple(dict.fromkeys(names))


class _Variables:
    """The variables of a container, with what their names say.

    What may be another program's, such as a number of workers or the host of a master, counts next
    to the number of this one of them, which only a platform gives.
    """

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._env = env = facts.env
        set_names = (name for name, value in env.items() if value.strip())
        self.forms = {name: form for name in set_names if (form := form_of(name))}
        self._numbers = [
            form
            for name, form in self.forms.items()
            if form.kind in ("index", "id") and digits(env[name].strip()) is not None
        ]

    def counts_nodes(self, name: str) -> bool:
        """Return whether the variable is a number of nodes."""
        form = self.forms.get(name)
        if form and form.kind == "plural":
            return digits(self._env[name].strip()) is not None
        return bool(_NODES.fullmatch(name) or (form and form.kind == "count" and form.is_sure))

    def counts_all(self, name: str) -> bool:
        """Return whether it counts the nodes of the job: replicas may be another program's."""
        return name not in self.forms or self.forms[name].unit in _COUNTED

    def numbers_node(self, name: str) -> bool:
        """Return whether the variable is the number of one node, from 0."""
        form = self.forms.get(name)
        return bool(_NODE.fullmatch(name) or (form and form.kind == "index" and form.is_sure))

    def parts(self, others: Collection[str]) -> list[str]:
        """Return the variables but `others` that count several processes, of which this is one."""
        return [
            name
            for name, form in self.forms.items()
            if form.kind == "count" and name not in others
            if _number(self._env, name) > 1 and self._has_number(form)
        ]

    def _has_number(self, form: Form) -> bool:
        return any(number.numbers(form) for number in self._numbers)

    def meets_elsewhere(self, name: str) -> bool:
        """Return whether the variable names another host, at which all nodes meet."""
        form = self.forms.get(name)
        is_meeting = bool(_MEETINGS.fullmatch(name))
        if form and not is_meeting and (form.kind == "leader" or form.number == "0"):
            counted = self._counted(form)
            is_sure = form.is_sure or self._has_number(form) or max(counted, default=0) > 1
            is_meeting = is_sure and 1 not in counted
        return is_meeting and _is_elsewhere(self._env[name], self._facts)

    def _counted(self, form: Form) -> list[int]:
        """Return the numbers that the same platform counts."""
        return [
            _number(self._env, name)
            for name, other in self.forms.items()
            if other.kind == "count" and form.of and other.of[:1] == form.of[:1]
        ]

    def lists(self) -> list[str]:
        """Return the lists of a platform that name several hosts together.

        A list of HOSTS may be of a service: it counts if this host is in it, too.
        """
        hosts: dict[str, set[str]] = {}
        families: dict[str, str] = {}
        of_nodes: set[str] = set()
        for name in self._env:
            form = self.forms.get(name)
            is_known = bool(_HOSTS.fullmatch(name))
            if not is_known and not (form and form.kind == "list"):
                continue
            listed = _listed(self._env[name])
            family = form.of[0] if form and form.of else name.partition("_")[0]
            families[name] = family
            hosts.setdefault(family, set()).update(listed)
            is_sure = is_known or (form and (form.is_sure or self._has_number(form)))
            if is_sure or any(_is_own(host, self._facts) for host in listed):
                of_nodes.add(family)
        several = {family for family in of_nodes if len(hosts[family]) > 1}
        return [name for name, family in families.items() if family in several]


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
    env, forms = facts.env, _Variables(facts).forms
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
    cluster, task = config.get("cluster"), config.get("task")
    tasks: list[Any] = list(cluster.values()) if isinstance(cluster, dict) else []
    hosts = sum(len(entries) for entries in tasks if isinstance(entries, (list, dict)))
    own = task if isinstance(task, dict) else {}
    has_others = hosts > 1 or _largest(str(own.get("index"))) > 0
    return has_others and own.get("type") != "evaluator"


def _is_elsewhere(meeting: str, facts: Facts) -> bool:
    """Return whether the nodes meet at another host than this one, by its name or address."""
    host = listener(meeting.strip().rpartition("//")[2])[0].lower().rstrip(".")
    address = ip(host)
    is_loopback = address and (address.is_loopback or address.is_unspecified)
    return not (is_loopback or host in ("", "localhost") or _is_own(host, facts))


def _is_own(host: str, facts: Facts) -> bool:
    """Return whether this host has the name or the address."""
    if ip(host):
        return host in {interface.address for interface in facts.interfaces}
    own, host = facts.hostname.lower(), host.lower().rstrip(".")
    return host == own or (bool(host) and host.split(".")[0] == own.split(".")[0])
