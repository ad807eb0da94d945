"""Questions of the network check to a node, and answers: values whose every field is checked on
arrival.

Open          Ready       start the helper; where others reach it
MeasurePair   Figures     measure with another node
ServeReduce   Ready       be the first of the all-reduce
Reduce        SweepEnd    take part in the all-reduce
              Unable      it did not work; to every question

They travel through the roll call's session and the helper's pipes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from entrypoint.values import dataclass
from entrypoint.wire import Invalid, Length, Range, read

MOST = 1 << 16  # bytes of a message in the helper's pipes
_NODES = 1 << 20
MOST_REJECTED = 16  # addresses that a node names
# Seconds in which a helper answers: until a peer is connected and has proved itself; the same for
# a peer that has answered before, which may be slow or behind a full link, but is not gone; small
# round trips; more than a stream's own time, until what was sent has arrived or is given up; for
# all sizes of an all-reduce, and with the import of torch and the meeting.
HANDSHAKE = 8.0
PATIENCE = 15.0
TRIPS_SECONDS = 1.0
MARGIN = 2.0
SWEEP_SECONDS = 20.0
SWEEP_LIMIT = 3 * SWEEP_SECONDS

Node = Annotated[int, Range(0, _NODES)]
Port = Annotated[int, Range(0, 65535)]
Seconds = Annotated[float, Range(0, 60)]
Figure = Annotated[float, Range(0, 1e9)]
Host = Annotated[str, Length(255)]
Why = Annotated[str, Length(300)]
RejectedPeers = Annotated[tuple[Annotated[str, Length(60)], ...], Length(MOST_REJECTED)]
Sizes = Annotated[tuple[tuple[Annotated[int, Range(1, 1 << 40)], Figure], ...], Length(64)]


@dataclass(frozen=True)
class Open:
    """Start a helper, and listen for other nodes."""


@dataclass(frozen=True)
class Ready:
    """Where others reach what was started."""

    port: Port


@dataclass(frozen=True)
class MeasurePair:
    """Measure with the node that is reached there."""

    host: Host
    port: Port
    seconds: Seconds


@dataclass(frozen=True)
class Figures:
    """What a pair has measured, as a Measured has it."""

    latency_ms: Figure
    worst_ms: Figure
    there_gbps: Figure
    back_gbps: Figure
    rejected: RejectedPeers


@dataclass(frozen=True)
class Unable:
    """Why a node could not do what it was asked."""

    why: Why
    rejected: RejectedPeers = ()


@dataclass(frozen=True)
class ServeReduce:
    """Be the first of so many nodes in an all-reduce, and choose a port."""

    nodes: Annotated[int, Range(1, _NODES)]


@dataclass(frozen=True)
class Reduce:
    """Take part in the all-reduce, under this number; the first one, which has begun, ends it."""

    rank: Node
    nodes: Annotated[int, Range(1, _NODES)]
    host: Host
    port: Port


@dataclass(frozen=True)
class SweepEnd:
    """The all-reduce's sizes in bytes and their seconds; `why` it ended early, or ""."""

    backend: Annotated[str, Length(20)]
    rows: Sizes
    why: Why
    rejected: RejectedPeers


ANSWERS: Mapping[type, type] = {
    Open: Ready,
    MeasurePair: Figures,
    ServeReduce: Ready,
    Reduce: SweepEnd,
}
"""What answers which question, unless it is Unable."""


def pair_limit(seconds: float) -> float:
    """Return the seconds in which a pair has measured, or has failed, and has said so."""
    trips = HANDSHAKE + TRIPS_SECONDS + HANDSHAKE
    return trips + 2 * (PATIENCE + seconds + MARGIN + PATIENCE)


def packed(message: Any) -> dict[str, Any]:
    """Return a message as a JSON object."""
    return {"kind": type(message).__name__, **vars(message)}


def unpacked(body: Any, *kinds: type) -> Any:
    """Return the message, of one of these kinds. Raises Invalid."""
    for kind in kinds:
        if isinstance(body, dict) and body.get("kind") == kind.__name__:
            return read(kind, body, kind.__name__)
    raise Invalid(f"neither {' nor '.join(kind.__name__ for kind in kinds)}")
