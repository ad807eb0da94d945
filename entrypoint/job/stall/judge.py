"""The judge of hangs: compares the stacks of all ranks, and names those that the others wait for.

Ranks that do the same are one group. A rank that has failed, or that a signal has suspended, is to
blame in any case; one that has ended with 0 only if all others wait in collective operations.
Otherwise those are that do something else while at least as many wait; and of ranks that all wait,
those in another operation than most. Where all do the same, or most work, the job is slow and no
rank is to blame.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Literal

from entrypoint.base.text import count, one_line, some, spans
from entrypoint.base.values import frozen
from entrypoint.job.stacks import Frame, ProcessStack
from entrypoint.job.stall.steps import NodeName

LINES = 40  # of the whole report, for any number of ranks
_GROUPS = 10  # that are shown
_NAMED = 4  # ranks of a group that are named with their node
_SPANS = 8  # of the numbers of ranks that are shown
_FRAMES = 5  # of a stack that is shown
_EXAMPLES = 3  # stacks that are shown
_OPERATIONS = 6  # of torch's flight recorder that are shown
_SENTENCE = 600  # characters of the verdict in one line
_OVER: tuple[Literal["left", "ended"], ...] = ("left", "ended")  # of a rank that runs no more

# Functions in which a rank waits for the other ranks, or for a device that does.
_FUNCTIONS = (
    "all_reduce all_reduce_coalesced all_gather all_gather_into_tensor all_gather_object"
    " all_gather_coalesced allreduce allreduce_async allgather alltoall all_to_all"
    " all_to_all_single barrier monitored_barrier broadcast broadcast_object_list broadcast_"
    " gather gather_object scatter scatter_object_list reduce reduce_scatter"
    " reduce_scatter_tensor recv send irecv isend batch_isend_irecv recv_object_list"
    " send_object_list synchronize wait_tensor grouped_allreduce join poll_handle"
    " psum sync_global_devices backward _engine_run_backward"
)
COLLECTIVES = frozenset(_FUNCTIONS.split())
# Where such functions are, besides the words of a path that name a library of collectives.
_PATHS = (
    "distributed horovod mpi4py deepspeed accelerate autograd cuda npu jax _tensor.py comm hccl"
    " mindspore bagua"
)
_COMMUNICATION = tuple(_PATHS.split())

Kind = Literal["waits", "works", "suspended", "left", "ended", "unknown"]


@frozen
class RankPosition:
    """The position of one process, in words, and the key by which it equals another's."""

    kind: Kind
    key: tuple[str, ...]
    words: str  # "in all_reduce, train.py:88"


@frozen
class StackedRank:
    """One rank's own process, its children, and its node, with its name."""

    node: int
    node_name: str
    stack: ProcessStack
    children: tuple[ProcessStack, ...]
    position: RankPosition


Ranks = Sequence[StackedRank]


@frozen
class HangReport:
    """The report: lines for people, the first of which says it all. `blamed`: who hangs, or "";
    `nodes`: where they run."""

    lines: tuple[str, ...]
    blamed: str
    nodes: frozenset[int]


def judge(
    stacks: Mapping[int, Sequence[ProcessStack]],
    host: NodeName,
    silent: Iterable[int] = (),
) -> HangReport:
    """Return the verdict on these stacks of each node; `host` names a node. `silent` are nodes that
    have shown nothing."""
    ranks = _ranks(stacks, host)
    groups = _grouped(ranks, lambda rank: rank.position.key)
    groups.sort(key=lambda group: (-len(group), group[0].stack.rank))  # the largest first
    running = [group for group in groups if group[0].position.kind not in _OVER]
    blamed = _blamed(groups, running)
    head = _head(groups if blamed else running or groups, blamed)
    lines = [head]
    lines += _details(groups, blamed)
    lines += _operations(ranks)
    if missing := [host(node) for node in silent]:
        lines.append(f"no stacks from {some(missing, 4)}")
    lines += _notes(ranks)
    guilty = "; ".join(_named(rank) for rank in blamed[:_NAMED])
    nodes = frozenset(rank.node for rank in blamed)
    return HangReport(tuple(lines[:LINES]), one_line(guilty, _SENTENCE), nodes)


# --------------------------------------------------------------------------------------------------
# What one process does


def position(stack: ProcessStack) -> RankPosition:
    """Return what a process does."""
    for kind in _OVER:
        if stack.state == kind:
            return RankPosition(kind, (kind, stack.note), f"has left ({stack.note})")
    if stack.state in ("T", "t"):
        return RankPosition("suspended", ("suspended",), "is suspended by a signal")
    if not (place := _place(stack.frames)):
        kernel = f" in the kernel's {stack.kernel}" if stack.kernel else ""
        state = {"D": "waits without an interrupt", "R": "runs", "Z": "has ended"}
        words = f"{state.get(stack.state, 'sleeps')}{kernel}"
        return RankPosition("unknown", (stack.state, stack.kernel), words)
    stuck = f" (the kernel waits in {stack.kernel or '?'})" if stack.state == "D" else ""
    if name := _collective(stack.frames):
        own = next((frame for frame in stack.frames if not frame.library), stack.frames[-1])
        where = f"{name}, {_short(own)}"
        return RankPosition("waits", ("waits", name, own.file, str(own.line)), f"waits in {where}")
    # The line changes while a rank works: its function tells more.
    return RankPosition("works", ("works", *place[1:]), f"is in {place[0]}{stuck}")


def _place(frames: Sequence[Frame]) -> tuple[str, ...]:
    """Return where the program is: in words, and the function and file of its own code."""
    if not frames:
        return ()
    at = next((at for at, frame in enumerate(frames) if not frame.library), None)
    if at is None:
        return f"{frames[0].function}(), {_short(frames[0])}", frames[0].function, frames[0].file
    own = frames[at]
    called = frames[at - 1].function if at else own.function
    return f"{called}(), {_short(own)}", called, own.function, own.file


def _collective(frames: Sequence[Frame]) -> str:
    """Return the function in which a rank waits for others; "" if it does not."""
    name = ""
    for frame in frames:
        if not frame.library:
            break
        is_there = any(word in frame.file for word in _COMMUNICATION)
        if frame.function in COLLECTIVES and is_there:
            name = frame.function  # the outermost one is what the program has called
    return name


def _short(frame: Frame) -> str:
    return f"{frame.file.rpartition('/')[2]}:{frame.line}"


def _ranks(stacks: Mapping[int, Sequence[ProcessStack]], host: NodeName) -> list[StackedRank]:
    ranks = []
    for node, processes in sorted(stacks.items()):
        for stack in processes:
            if not stack.is_child:
                children = tuple(
                    child
                    for child in processes
                    if child.is_child and (child.rank, child.what) == (stack.rank, stack.what)
                )
                ranks.append(StackedRank(node, host(node), stack, children, position(stack)))
    return sorted(ranks, key=lambda rank: (rank.stack.rank, rank.node))


# --------------------------------------------------------------------------------------------------
# Who differs


def _grouped(
    ranks: Iterable[StackedRank], key: Callable[[StackedRank], Hashable]
) -> list[list[StackedRank]]:
    groups: dict[Hashable, list[StackedRank]] = {}
    for rank in ranks:
        groups.setdefault(key(rank), []).append(rank)
    return list(groups.values())


def _blamed(groups: Sequence[Ranks], running: Sequence[Ranks]) -> list[StackedRank]:
    """Return the ranks that the others wait for; none where all are alike, or most work. `running`
    are the groups of those that have not left."""
    kinds = {group[0].position.kind for group in running}
    to_blame: tuple[Kind, ...] = ("left", "suspended", *(("ended",) if kinds == {"waits"} else ()))
    gone = [rank for group in groups for rank in group if rank.position.kind in to_blame]
    if not kinds or (kinds == {"suspended"} and len(running) == len(groups)):
        return []
    if gone:
        return gone
    waits = sum(len(group) for group in running if group[0].position.kind == "waits")
    total = sum(map(len, running))
    if 0 < waits < total:
        busy = [group for group in running if group[0].position.kind != "waits"]
        return [rank for group in busy for rank in group] if total - waits <= waits else []
    # All wait, or none is known to: those differ that are not in the place where most are.
    first = running[0]
    if 2 * len(first) <= total or first[0].position.kind == "unknown":
        return []
    return [rank for group in running[1:] for rank in group]


# --------------------------------------------------------------------------------------------------
# In words


def _head(groups: Sequence[Ranks], blamed: Ranks) -> str:
    if not groups:
        return "no rank runs"
    total = sum(map(len, groups))
    guilty = {id(rank) for rank in blamed}
    others = [_of_many(group, total) for group in groups if id(group[0]) not in guilty]
    if blamed:
        parts = [*others[:1], *(_named(rank) for rank in blamed[:_NAMED])]
        if len(blamed) > _NAMED:
            parts.append(f"and {count(len(blamed) - _NAMED, 'other rank')}")
        return one_line("; ".join(parts), _SENTENCE)
    first = groups[0]
    if len(groups) == 1:
        what = f"{_of_many(first, total)}: no rank differs from the others"
    elif all(group[0].position.kind == "waits" for group in groups):
        what = f"{_of_many(first, total)}: the ranks wait for each other in different operations"
    else:
        what = f"{_of_many(first, total)}: no rank is clearly behind the others"
    return one_line(what, _SENTENCE)


def _of_many(group: Ranks, total: int) -> str:
    words = _words(group)
    if total == 1:
        return f"the only rank {words}"
    if len(group) == 1:
        return f"1 of {total} ranks {words}"
    amount = f"all {total}" if len(group) == total else f"{len(group)} of {total}"
    return f"{amount} ranks {_plural(words)}"


def _words(group: Ranks) -> str:
    """Return where these ranks are: in one function, of which they may be at several lines."""
    words = group[0].position.words
    place = words.rpartition(":")[0]
    lines = {rank.position.words.removeprefix(f"{place}:") for rank in group}
    if len(lines) == 1 or not all(map(str.isdigit, lines)):
        return words
    return f"{place}, lines {some(spans(sorted(map(int, lines))), _SPANS)}"


def _plural(words: str) -> str:
    verb, _, rest = words.partition(" ")
    plurals = {"is": "are", "has": "have", "waits": "wait", "runs": "run", "sleeps": "sleep"}
    return f"{plurals.get(verb, verb)} {rest}".rstrip()


def _named(rank: StackedRank) -> str:
    text = f"{rank.stack.what} on {rank.node_name} {rank.position.words}"
    children = [child for child in rank.children if _is_stuck(child)]
    if children and rank.position.kind != "waits":
        child = children[0]
        more = f", and {len(children) - 1} more" if len(children) > 1 else ""
        text += f"; its data worker, pid {child.pid}, {position(child).words}{more}"
    return text


def _is_stuck(child: ProcessStack) -> bool:
    """Return whether a data worker does anything but wait for work."""
    if child.state in ("T", "t", "D"):
        return True
    return any(not frame.library for frame in child.frames)


def _details(groups: Sequence[Ranks], blamed: Ranks) -> list[str]:
    """Return a line for each group, those to blame first, with the stacks of some."""
    lines = []
    shown = 0
    guilty = {id(rank) for rank in blamed}
    ordered = sorted(groups, key=lambda group: id(group[0]) not in guilty)
    for group in ordered[:_GROUPS]:
        lines.append(f"  {_who(group)}: {_words(group)}")
        if shown < _EXAMPLES and group[0].stack.frames:
            shown += 1
            lines += _stack(group[0].stack)
            stuck = [child for child in group[0].children if _is_stuck(child)]
            if stuck and id(group[0]) in guilty:
                lines.append(f"    data worker, pid {stuck[0].pid}: {position(stuck[0]).words}")
                lines += _stack(stuck[0])
    if len(groups) > _GROUPS:
        rest = sum(map(len, ordered[_GROUPS:]))
        lines.append(f"  {count(rest, 'more rank')} in {len(groups) - _GROUPS} other places")
    return lines


def _stack(stack: ProcessStack) -> list[str]:
    return [
        one_line(f"    | {frame.function} ({frame.file}:{frame.line})", 240)
        for frame in stack.frames[:_FRAMES]
    ]


def _operations(ranks: Ranks) -> list[str]:
    """Return the operation that the ranks have come to, those of few ranks first."""
    recorded = (rank for rank in ranks if rank.stack.operation)
    groups = _grouped(recorded, lambda rank: rank.stack.operation)
    return [
        f"  torch's flight recorder: {_who(group)}: {group[0].stack.operation}"
        for group in sorted(groups, key=len)[:_OPERATIONS]
    ]


def _who(group: Ranks) -> str:
    if len(group) <= _NAMED:
        return ", ".join(f"{rank.stack.what} on {rank.node_name}" for rank in group)
    numbers = [rank.stack.rank for rank in group if rank.stack.rank >= 0]
    return (
        f"{count(len(group), 'rank')} ({some(spans(sorted({*numbers})), _SPANS)})"
        if numbers
        else f"{len(group)} ranks"
    )


def _notes(ranks: Ranks) -> list[str]:
    """Return why stacks are missing, each reason once."""
    running = [rank.stack for rank in ranks if rank.position.kind not in _OVER]
    reasons = Counter(stack.note for stack in running if stack.note)
    return [f"  {count(number, 'rank')}: {note}" for note, number in islice(reasons.items(), 3)]
