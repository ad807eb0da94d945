"""The stacks of the processes of ranks, as values.

Nodes send them, and the leader compares them. Each node is believed about its own processes alone,
and sends a bounded number of them.
"""

# Annotations are no texts here, as in messages.py.

from typing import Annotated

from entrypoint.base.values import frozen
from entrypoint.base.wire import Length, Range

PROCESSES = 48  # of one node
FRAMES = 12  # of one process
NAME = 100  # characters of a name or a file
_RANKS = 1 << 20

Name = Annotated[str, Length(NAME)]
Number = Annotated[int, Range(0, 1 << 31)]


@frozen
class Frame:
    """One function of a stack: its name, its file, the line, and whether it is a library's."""

    function: Name
    file: Name
    line: Number
    library: bool


@frozen
class ProcessStack:
    """One process of a rank. `frames`: the innermost first; none where they could not be read."""

    rank: Annotated[int, Range(-1, _RANKS)]  # -1: a program that is no rank
    what: Name  # "rank 3", or the program's name
    pid: Number
    is_child: bool  # whether a rank's own process has started it: a data worker
    # As in proc_pid_stat(5): R, S, D, T, ...; of one that runs no more "ended" (with 0) or "left".
    state: Name
    kernel: Name  # function of the kernel in which it waits, where that is known
    note: Name  # why there are no frames; of a rank that has left, how
    frames: Annotated[tuple[Frame, ...], Length(FRAMES)] = ()
    operation: Name = ""  # collective one of the rank, as torch's flight recorder has it


def chosen(frames: tuple[Frame, ...]) -> tuple[Frame, ...]:
    """Return the frames of a stack that say most: its innermost ones, and the program's own."""
    if len(frames) <= FRAMES:
        return frames
    inner = frames[: FRAMES // 2]
    own = [frame for frame in frames[FRAMES // 2 :] if not frame.library]
    rest = own[: FRAMES - len(inner)]
    # The function of a library that the program has called says what is waited for.
    first = next((at for at, frame in enumerate(frames) if not frame.library), None)
    if first is not None and first > len(inner):
        rest = [frames[first - 1], *rest][: FRAMES - len(inner)]
    return (*inner, *rest)
