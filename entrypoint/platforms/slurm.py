"""Slurm: one entrypoint on each node of a job step, as `srun --ntasks-per-node=1` starts it.

Sources: slurm.schedmd.com, "srun" and "sbatch" (output environment variables) and "Heterogeneous Jobs"; Slurm's
src/common/env.c and slurmstepd for what a step sets anew: SLURM_STEP_* and SLURM_NODEID, which in a step of several
components of a heterogeneous job speak of all its nodes. SLURM_JOB_* and SLURM_NNODES may be the whole job's.
"""

from __future__ import annotations

from collections.abc import Mapping

from entrypoint.errors import ConfigError
from entrypoint.model import Facts, Site
from entrypoint.platforms._hosts import Unknown, counted, job, placed
from entrypoint.platforms._nodelist import expand, most
from entrypoint.platforms._numbers import number

_STEP = ("SLURM_STEP_ID", "SLURM_STEPID")
# Ids of a shell of `salloc` and of a batch script, which are no steps of `srun`: they run on the first node alone.
_SHELLS = ("4294967290", "4294967291")
_LISTS = ("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST")
_COUNTS = ("SLURM_STEP_NUM_NODES", "SLURM_JOB_NUM_NODES", "SLURM_NNODES")
_COMPONENTS = ("SLURM_HET_SIZE", "SLURM_PACK_SIZE")  # the second is the old name
_SRUN = "srun --ntasks-per-node=1"


def matches(facts: Facts) -> bool:
    """Whether Slurm started this process: its job's id alone is in a shell of `salloc` and in logins to its nodes."""
    return bool(_is_step(facts.env) or facts.env.get("SLURM_NODEID"))


def site(facts: Facts) -> Site:
    """The nodes of the step, this node's index among them and its GPUs.

    Raises ConfigError when a variable is not the number it has to be, or the step has several tasks on a node.
    """
    env = facts.env
    origins: dict[str, str] = {}
    unknown: Unknown = {}
    _check_tasks(env)
    hosts = _hosts(env, origins, unknown)
    return Site(
        platform="slurm",
        hosts=hosts,
        index=_index(env, hosts, origins, unknown),
        slots=_slots(env, origins),
        job=job(env, "SLURM_JOB_NAME", origins),
        hostname=facts.hostname,
        origins=origins,
        unknown=unknown,
    )


def _first(env: Mapping[str, str], names: tuple[str, ...]) -> str:
    """The first of these variables that is set; the first of all where none is."""
    return next((name for name in names if env.get(name, "").strip()), names[0])


def _is_step(env: Mapping[str, str]) -> bool:
    """Whether this is a task of a step, which `srun` started."""
    step = env.get(_first(env, _STEP), "").strip()
    return bool(step) and step not in _SHELLS


def _check_tasks(env: Mapping[str, str]) -> None:
    """An entrypoint starts all ranks of its node. Two on a node would both be that node."""
    name, several = "SLURM_LOCALID", bool(number(env, "SLURM_LOCALID"))
    if not several and _is_step(env):
        # The second is what the job was asked for, where the step did not ask for another.
        name = _first(env, ("SLURM_STEP_TASKS_PER_NODE", "SLURM_NTASKS_PER_NODE"))
        several = most(env.get(name) or "1", name) > 1
    if several:
        raise ConfigError(
            "EP208 this step has several tasks on a node, and one entrypoint starts all ranks of its node",
            f"{name} is {env[name][:60]}",
            f"start one task per node: {_SRUN}",
        )


def _hosts(env: Mapping[str, str], origins: dict[str, str], unknown: Unknown) -> tuple[str, ...]:
    step = _is_step(env)
    name = _first(env, _LISTS if step else _LISTS[1:])
    if missing := _missing(env, name):
        unknown["hosts"] = missing
        return ()
    try:
        hosts = expand(env[name], name)
    except ConfigError as error:
        unknown["hosts"] = (error.summary.partition(" ")[2], error.detail, "set ENTRYPOINT_HOSTS")
        return ()
    if not step and len(hosts) > 1:
        unknown["hosts"] = (
            "a batch script and a shell of salloc run on the first node of their job alone",
            f"{name} has {len(hosts)} nodes, and srun did not start this process",
            f"start it by {_SRUN}, or set ENTRYPOINT_HOSTS",
        )
        return ()
    # A step's nodes may be fewer than its job's.
    counter = _COUNTS[0] if name == _LISTS[0] else _first(env, _COUNTS if step else _COUNTS[1:])
    hosts = counted(hosts, name, number(env, counter), counter, unknown)
    if hosts:
        origins["hosts"] = name
    return hosts


def _missing(env: Mapping[str, str], name: str) -> tuple[str, str, str] | None:
    """What to say where no variable lists all nodes; None where `name` does."""
    components = number(env, _first(env, _COMPONENTS)) or 1
    if components > 1 and name != _LISTS[0]:
        return (
            "this is a heterogeneous job, and nothing lists the nodes of all its components",
            f"{_first(env, _COMPONENTS)} is {components}, and {_LISTS[0]} is not there",
            f"start it by {_SRUN} --het-group=0-{components - 1}, or set ENTRYPOINT_HOSTS",
        )
    if not env.get(name, "").strip():
        seen = f"{', '.join(_LISTS)} are unset"
        return "Slurm's list of nodes is not there", seen, "pass it into the container, or set ENTRYPOINT_HOSTS"
    return None


def _index(env: Mapping[str, str], hosts: tuple[str, ...], origins: dict[str, str], unknown: Unknown) -> int | None:
    index = placed(number(env, "SLURM_NODEID"), "SLURM_NODEID", hosts, origins.get("hosts", ""), origins, unknown)
    own = env.get("SLURMD_NODENAME", "").strip()
    if index is None or not hosts or own in ("", hosts[index]):
        return index
    origins.pop("node_rank", None)
    unknown["node_rank"] = (
        f"{origins['hosts']} has another node in this one's place",
        f"SLURM_NODEID is {index}, which is {hosts[index]}, and SLURMD_NODENAME is {own[:60]}",
        "set ENTRYPOINT_NODE_RANK",
    )
    return None


def _slots(env: Mapping[str, str], origins: dict[str, str]) -> int | None:
    """The GPUs that the step has here: a count, or their numbers in a list. None where it has none, or does not say."""
    name = "SLURM_GPUS_ON_NODE"
    cards = [card.strip() for card in env.get(name, "").split(",")]
    listed = len(cards) > 1 and all(card.isascii() and card.isdigit() for card in cards)
    count = len(cards) if listed else number(env, name)
    if count:
        origins["slots"] = name
    return count or None
