"""The CPUs of this node's ranks: how many threads each may use, and which CPUs each is bound to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain, pairwise
from typing import TypeVar

from entrypoint.model import EnvVar, Facts, File, Launch, Node, Processors, Topology
from entrypoint.spec import JobSpec
from entrypoint.supervised import CPUS
from entrypoint.text import count, spans
from entrypoint.values import dataclass

Mask = tuple[int, ...]
"""CPUs that a rank is bound to; empty if it is not bound."""

T = TypeVar("T")

_OMP = "OMP_NUM_THREADS"
# Variable of a library -> others that it reads instead.
_THREADS = {
    _OMP: (),
    "MKL_NUM_THREADS": (_OMP,),
    "OPENBLAS_NUM_THREADS": ("GOTO_NUM_THREADS", _OMP),
    "NUMEXPR_NUM_THREADS": (_OMP,),
}
# NumExpr prints an error if it is to use more threads than NUMEXPR_MAX_THREADS, which is 64.
_NUMEXPR_MOST = 64


@dataclass(frozen=True)
class Share:
    """What each rank of this node gets of its CPUs."""

    env: tuple[EnvVar, ...] = ()
    files: tuple[File, ...] = ()
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def share(
    spec: JobSpec, facts: Facts, topology: Topology, launch: Launch, spec_env: Mapping[str, str]
) -> Share:
    """Return the variables for the number of threads, and if asked the CPUs of each rank."""
    users = {**facts.env, **spec_env, **_passed(spec, launch)}
    masks: tuple[Mask, ...] = ()
    files: tuple[File, ...] = ()
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    if spec.cpu.bind != "none":
        bind = f"cpu.bind: {spec.cpu.bind}"
        masks, why = _bound(spec.cpu.bind, facts.processors, topology, launch, users)
        # an empty line binds nothing
        lines = "".join(f"{' '.join(map(str, mask))}\n" for mask in masks or ((),))
        files = (File(CPUS, lines, bind, mode=0o600),)
        if any(masks):
            listed = ", ".join(map(_text, masks))
            notes = (f"{bind}: CPUs of this node's ranks, in their order: {listed}",)
        if why:
            setting = f"{bind} ({spec.source('cpu.bind')})"
            warnings = (f"EP428 not all ranks are bound to CPUs: {why[0]} | {setting} | {why[1]}",)
    env = _threads(facts.cpus, _neighbours(launch, topology), masks, users)
    return Share(env, files, notes, warnings)


def _passed(spec: JobSpec, launch: Launch) -> dict[str, str]:
    """Return the variables that options of mpirun give to ranks."""
    if launch.ranks.reports != "ranks":
        return {}
    words = f"{spec.mpi.x_args or ''} {spec.mpi.extra_args or ''}".split()
    options = (word.partition("=") for option, word in pairwise(words) if option == "-x")
    return {name: value for name, sign, value in options if sign or name in _THREADS}


def can_bind(launch: Launch, topology: Topology) -> bool:
    """Return whether each rank of this node has a supervisor of its own, which can bind it."""
    ranks = launch.ranks
    alone = len(launch.programs) == _ranks(launch, topology)
    return ranks.processes is None and (ranks.reports != "programs" or alone)


def _ranks(launch: Launch, topology: Topology) -> int:
    """Return how many processes of this node share its CPUs; 0 if the launcher divides them."""
    if launch.ranks.processes is not None:
        return launch.ranks.processes
    programs = launch.programs
    are_ranks = programs and all(program.rank is not None for program in programs)
    return len(programs) if are_ranks else topology.this.slots


def _neighbours(launch: Launch, topology: Topology) -> int:
    """Return how many processes share this machine's CPUs: with a loopback address, as under
    `entrypoint local`, those of several nodes do."""
    ranks = _ranks(launch, topology)
    if not _is_loopback(topology.this):
        return ranks
    others = (node for node in topology.peers if _is_loopback(node))
    fixed = launch.ranks.processes
    return ranks + sum(node.slots if fixed is None else fixed for node in others)


def _is_loopback(node: Node) -> bool:
    return (node.address or "").startswith("127.")


def _threads(
    cpus: float | None, ranks: int, masks: Sequence[Mask], users: Mapping[str, str]
) -> tuple[EnvVar, ...]:
    if not cpus or not ranks:
        return ()
    number = threads(cpus, ranks)
    origin = f"{cpus:g} CPU{'' if cpus == 1 else 's'} for {count(ranks, 'rank')}"
    of_masks = [len(mask) // masks.count(mask) for mask in masks if mask]
    if of_masks and min(of_masks) < number:
        number = max(1, min(of_masks))
        origin = f"the CPUs that each of {count(ranks, 'rank')} is bound to"
    most = users.get("NUMEXPR_MAX_THREADS", "")
    most_of = {"NUMEXPR_NUM_THREADS": int(most) if most.isdigit() else _NUMEXPR_MOST}
    return tuple(
        EnvVar(name, str(min(number, most_of.get(name, number))), origin, default=True)
        for name, others in _THREADS.items()
        if users.keys().isdisjoint((name, *others))
    )


def threads(cpus: float, ranks: int) -> int:
    """Return how many threads one of so many ranks may use at a time."""
    return max(1, int(cpus / ranks))


# --------------------------------------------------------------------------------------------------
# Binding


def _bound(
    bind: str,
    processors: Processors | None,
    topology: Topology,
    launch: Launch,
    env: Mapping[str, str],
) -> tuple[tuple[Mask, ...], tuple[str, str] | None]:
    """Return the CPUs of each rank; and why ranks are not bound, with what to do about it."""
    if not can_bind(launch, topology):
        why = "the program starts the processes of its node itself"
        return (), (why, "remove cpu.bind, or choose a launcher that starts one for each slot")
    ranks = _ranks(launch, topology)
    if processors is None or not processors.cores:
        return (), ("this machine's CPUs are unknown", "remove cpu.bind")
    if bind == "cores":
        return by_core(processors, ranks), None
    if not processors.nodes:
        why = "this machine's NUMA nodes are unknown (/sys/devices/system/node)"
        return (), (why, "set cpu.bind: cores")
    # A launcher with a program for each rank gives it an equal part of the cards.
    step = topology.device.count // ranks if len(launch.programs) == ranks else 1
    cards = near(processors, env.get("CUDA_VISIBLE_DEVICES")) if topology.device.count else []
    masks = by_node(processors, ranks, cards, max(1, step))
    if all(masks):
        return masks, None
    why = "the container has no CPU of the NUMA node of a rank's GPU"
    return masks, (
        why,
        "give the container CPUs of all its GPUs' NUMA nodes, or set cpu.bind: cores",
    )


def by_core(processors: Processors, ranks: int) -> tuple[Mask, ...]:
    """Divide the cores evenly; if there are more ranks than cores, the CPUs."""
    cores = processors.cores
    if len(cores) >= ranks:
        return tuple(map(_joined, _divided(cores, ranks)))
    return tuple(_divided(_joined(cores), ranks))


def by_node(
    processors: Processors, ranks: int, cards: Sequence[int | None], step: int = 1
) -> tuple[Mask, ...]:
    """Return the CPUs of the NUMA node of each rank's card; divide the nodes evenly if that node is
    unknown for one of them.

    `cards` has the node of each visible card; a rank's card is `step` after that of the last rank.
    """
    nodes = [cards[rank * step % len(cards)] for rank in range(ranks)] if cards else []
    located = [node for node in nodes if node is not None and node in processors.nodes]
    if len(located) == ranks:
        return tuple(processors.nodes[node] for node in located)
    with_cpus = [cpus for cpus in processors.nodes.values() if cpus]
    return tuple(map(_joined, _divided(with_cpus, ranks)))


def near(processors: Processors, visible: str | None) -> list[int | None]:
    """Return the NUMA node of each card that CUDA_VISIBLE_DEVICES shows, in that order.

    NVIDIA_VISIBLE_DEVICES chooses the container's cards, and does not order them. None stands for a
    card that is not found by its UUID, such as a MIG device in another form than MIG-GPU-UUID/1/0.
    """
    cards = processors.cards
    if visible is None:
        return [node for _, node in cards]
    nodes: list[int | None] = []
    for entry in map(str.strip, visible.split(",")):
        if entry.isdigit() and int(entry) < len(cards):
            nodes.append(cards[int(entry)][1])
        elif entry.startswith(("GPU-", "MIG-")):
            uuid = entry.removeprefix("MIG-").partition("/")[0]
            named = {node for card, node in cards if card.startswith(uuid)}
            possible = named or {node for _, node in cards}
            nodes.append(possible.pop() if len(possible) == 1 else None)
        else:
            break  # CUDA ignores the rest
    return nodes


def _divided(entries: Sequence[T], ranks: int) -> list[tuple[T, ...]]:
    """Divide the entries evenly, in order; if there are fewer than ranks, neighbours share one."""
    firsts = [rank * len(entries) // ranks for rank in range(ranks + 1)]
    return [tuple(entries[first : max(first + 1, end)]) for first, end in pairwise(firsts)]


def _joined(groups: Sequence[Sequence[int]]) -> Mask:
    return tuple(chain.from_iterable(groups))


def _text(mask: Mask) -> str:
    """Return the CPUs as ranges, such as 0-3+8-11."""
    return "+".join(spans(sorted(mask))) or "not bound"
