"""Slurm: one entrypoint on each node of a job step, as `srun --ntasks-per-node=1` starts it.

Sources: slurm.schedmd.com, "srun" and "sbatch" (output environment variables) and "Heterogeneous
Jobs"; Slurm's src/common/env.c and slurmstepd for the variables that a step sets: SLURM_STEP_* and
SLURM_NODEID, which in a step of several components of a heterogeneous job count all its nodes.
SLURM_JOB_* and SLURM_NNODES may be the whole job's. SLURM_JOB_END_TIME is in Unix time, since Slurm
23.02.
"""

from __future__ import annotations

from entrypoint.base.errors import ConfigError
from entrypoint.base.model import Facts
from entrypoint.platforms._clues import Clues, Reason
from entrypoint.platforms._slurm import expand, is_step

_LISTS = ("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST")
_COUNTS = ("SLURM_STEP_NUM_NODES", "SLURM_JOB_NUM_NODES", "SLURM_NNODES")
_COMPONENTS = ("SLURM_HET_SIZE", "SLURM_PACK_SIZE")  # the second is the old name
_LONGEST_TIME = 12  # digits
_SRUN = "srun --ntasks-per-node=1"
LAYER = 5
MARKS = ("SLURM_JOB_ID",)
SECRET = "export ENTRYPOINT_SECRET in the batch script, before srun"
ROWS = """
`slurm` | `SLURM_STEP_ID` or `SLURM_NODEID`, with `SLURM_JOB_ID` | `SLURM_STEP_NODELIST` |
    `SLURM_NODEID` | `SLURM_GPUS_ON_NODE` | `srun --ntasks-per-node=1`: [`entrypoint deploy
    slurm`](../how-to/slurm.md)
"""


def matches(facts: Facts) -> bool:
    """Return whether Slurm started this process: shells of `salloc` and logins to nodes have only
    the job's id."""
    return bool(is_step(facts.env) or facts.env.get("SLURM_NODEID"))


def read(clues: Clues) -> None:
    """Take the nodes of the step, this node's index among them and its GPUs.

    Raises ConfigError if a variable is not the number it has to be.
    """
    _take_hosts(clues)
    clues.take_index("SLURM_NODEID")
    _check_place(clues)
    _take_slots(clues)
    clues.take_job("SLURM_JOB_NAME")
    ends = clues.env.get("SLURM_JOB_END_TIME", "").strip()
    if ends.isascii() and ends.isdigit() and len(ends) <= _LONGEST_TIME:
        clues.take("ends", int(ends))


def _take_hosts(clues: Clues) -> None:
    step = is_step(clues.env)
    name = clues.first(*_LISTS[not step :])
    if missing := _missing(clues, name):
        clues.unknown["hosts"] = missing
        return
    try:
        hosts = expand(clues.env[name], name)
    except ConfigError as error:
        clues.no_hosts(
            error.summary.partition(" ")[2],
            error.detail,
            "set ENTRYPOINT_HOSTS",
        )
        return
    if not step and len(hosts) > 1:
        clues.no_hosts(
            "a batch script and a shell of salloc run on the first node of their job alone",
            f"{name} has {len(hosts)} nodes, and srun did not start this process",
            f"start it by {_SRUN}, or set ENTRYPOINT_HOSTS",
        )
        return
    # A step's nodes may be fewer than its job's.
    counter = _COUNTS[0] if name == _LISTS[0] else clues.first(*_COUNTS[not step :])
    clues.take_hosts(name, counter, hosts)


def _missing(clues: Clues, name: str) -> Reason | None:
    """Return why no variable lists all nodes; None if `name` does."""
    size = clues.first(*_COMPONENTS)
    components = clues.number(size) or 1
    if components > 1 and name != _LISTS[0]:
        return (
            "this is a heterogeneous job, and nothing lists the nodes of all its components",
            f"{size} is {components}, and {_LISTS[0]} is not there",
            f"start it by {_SRUN} --het-group=0-{components - 1}, or set ENTRYPOINT_HOSTS",
        )
    if not clues.env.get(name, "").strip():
        return (
            "Slurm's list of nodes is not there",
            f"{', '.join(_LISTS)} are unset",
            "pass it into the container, or set ENTRYPOINT_HOSTS",
        )
    return None


def _check_place(clues: Clues) -> None:
    """Drop the index if the list of nodes has another node in this one's place."""
    index = clues.index
    name = clues.env.get("SLURMD_NODENAME", "").strip()
    if index is None or not clues.hosts or name in ("", clues.hosts[index]):
        return
    clues.drop("index")
    clues.origins.pop("node_rank", None)
    clues.no_index(
        f"{clues.origins['hosts']} has another node in this one's place",
        f"SLURM_NODEID is {index}, which is {clues.hosts[index]}, and SLURMD_NODENAME is"
        f" {name[:60]}",
        "set ENTRYPOINT_NODE_RANK",
    )


def _take_slots(clues: Clues) -> None:
    """Take the GPUs that the step has here, if it says so: a count, or their numbers in a list."""
    name = "SLURM_GPUS_ON_NODE"
    cards = [card.strip() for card in clues.env.get(name, "").split(",")]
    if len(cards) > 1 and all(card.isascii() and card.isdigit() for card in cards):
        clues.take("slots", len(cards), name)
    else:
        clues.take_slots(name)
