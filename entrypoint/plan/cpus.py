"""The CPUs of this node's ranks: how many processes share them, and what follows: the threads of
each, and whether a rank that waits gives up its CPU."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from entrypoint.base.model import EnvVars, Facts, Launch, Topology, usual
from entrypoint.base.tables import table
from entrypoint.base.text import count
from entrypoint.spec import JobSpec

# Variable of a library -> others that it reads instead.
_THREADS = table("""
    OMP_NUM_THREADS      |
    MKL_NUM_THREADS      | OMP_NUM_THREADS
    OPENBLAS_NUM_THREADS | GOTO_NUM_THREADS OMP_NUM_THREADS
    NUMEXPR_NUM_THREADS  | OMP_NUM_THREADS
""")
# NumExpr prints an error if it is to use more threads than NUMEXPR_MAX_THREADS, which is 64.
_NUMEXPR_MOST = 64


def share(
    spec: JobSpec,
    facts: Facts,
    topology: Topology,
    launch: Launch,
    spec_env: Mapping[str, str],
) -> EnvVars:
    """Return the variables for the number of threads, and those of the launcher if there are more
    processes than CPUs."""
    neighbours = topology.report.neighbours
    ranks = _processes(launch, topology, neighbours)
    if not facts.cpus or not ranks:
        return ()
    origin = f"{facts.cpus:g} CPU{'' if facts.cpus == 1 else 's'} for {count(ranks, 'rank')}"
    if neighbours:
        origin += f" of {len(neighbours) + 1} nodes on this host"
    users = {**facts.env, **spec_env, **_passed(spec, launch)}
    crowded = launch.ranks.crowded_env if ranks > facts.cpus else ()
    return (*_threads(facts.cpus, ranks, origin, users), *crowded)


def _passed(spec: JobSpec, launch: Launch) -> dict[str, str]:
    """Return the variables that options of mpirun give to ranks."""
    if not launch.ranks.kind.by_daemons:
        return {}
    words = (*spec.option("OPENMPI_X_ARGS").split(), *spec.launcher_args)
    options = (word.partition("=") for option, word in pairwise(words) if option == "-x")
    return {name: value for name, sign, value in options if sign or name in _THREADS}


def _processes(launch: Launch, topology: Topology, neighbours: tuple[int, ...]) -> int:
    """Return how many processes share this node's CPUs; 0 if the launcher divides them.
    `neighbours` as in NodeReport."""
    if (fixed := launch.ranks.processes) is not None:
        return fixed * (len(neighbours) + 1)
    programs = launch.programs
    are_ranks = programs and all(program.rank is not None for program in programs)
    return (len(programs) if are_ranks else topology.this.slots) + sum(neighbours)


def _threads(cpus: float, ranks: int, origin: str, users: Mapping[str, str]) -> EnvVars:
    number = max(1, int(cpus / ranks))
    most = users.get("NUMEXPR_MAX_THREADS", "")
    most_of = {"NUMEXPR_NUM_THREADS": int(most) if most.isdigit() else _NUMEXPR_MOST}
    return tuple(
        usual(name, str(min(number, most_of.get(name, number))), origin)
        for name, others in _THREADS.items()
        if users.keys().isdisjoint((name, *others.split()))
    )
