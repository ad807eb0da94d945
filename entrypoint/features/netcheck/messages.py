"""Questions of the network check to a node, and answers: values whose every field is checked on
arrival.

Open      Ready      start torch, and name its backend
Serve     Serving    hold the store by which the next group meets; its port
Reduce    Figures    reduce with the others of a group
          Unable     it did not work; to every question

They travel through the roll call's session and the pipes of torch's process.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from entrypoint.base.values import frozen
from entrypoint.base.wire import Invalid, Length, Range, read

MOST = 1 << 16  # bytes of a message in the pipes
WHY = 300  # characters of a reason
PATIENCE = 15.0  # seconds for a group to meet, and for each of its operations
_NODES = 1 << 20

Figure = Annotated[float, Range(0, 1e9)]
# what a command prints; or lines in the log, before the job
How = Literal["text", "json", "before"]


@frozen
class Open:
    """Start torch's process, on the interface of this name that the roll call came over; "" if that
    is not known."""

    interface: Annotated[str, Length(64)]


@frozen
class Ready:
    """Torch is there, and would train with this backend."""

    backend: Annotated[str, Length(20)]


@frozen
class Serve:
    """Be the first of a group, and choose a port."""


@frozen
class Serving:
    """The port at which the other nodes of the group meet."""

    port: Annotated[int, Range(1, 65535)]


@frozen
class Reduce:
    """Reduce as this rank of a group of so many nodes, for so many seconds; its first node has the
    store."""

    rank: Annotated[int, Range(0, _NODES)]
    nodes: Annotated[int, Range(2, _NODES)]
    host: Annotated[str, Length(255)]
    port: Annotated[int, Range(1, 65535)]
    backend: Annotated[str, Length(20)]
    seconds: Annotated[float, Range(0, 60)]


@frozen
class Figures:
    """Milliseconds of an all-reduce of 8 bytes, the median and the worst; Gbit/s of bus bandwidth
    of a large one."""

    latency_ms: Figure
    worst_ms: Figure
    gbps: Figure


@frozen
class Unable:
    """A refusal: the node could not do what it was asked, and why."""

    why: Annotated[str, Length(WHY)]


ANSWERS: Mapping[type, type] = {Open: Ready, Serve: Serving, Reduce: Figures}
"""Question -> its answer, unless that is Unable."""


def limit(question: Any, launch: float) -> float:
    """Return the seconds in which a node answers, or ends torch's process and says so. `launch`: in
    which torch must have started."""
    return 3 * PATIENCE + question.seconds if isinstance(question, Reduce) else launch


def packed(message: Any) -> dict[str, Any]:
    """Return a message as a JSON object."""
    return {"kind": type(message).__name__, **vars(message)}


def unpacked(body: Any, *kinds: type) -> Any:
    """Return the message, of one of these kinds. Raises Invalid."""
    for kind in kinds:
        if isinstance(body, dict) and body.get("kind") == kind.__name__:
            return read(kind, body, kind.__name__)
    raise Invalid(f"neither {' nor '.join(kind.__name__ for kind in kinds)}")
