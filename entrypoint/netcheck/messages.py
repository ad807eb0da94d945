"""What the network check's nodes say to each other: values whose every field is checked on arrival.

worker-0 -> node   node -> worker-0         node -> node
Open               Ready                                   start the helper; where others reach it
MeasurePair        Figures                                 measure with another node
ServeReduce        ReducePort                              be the first of the all-reduce
Reduce             SweepEnd                                take part in the all-reduce
                   Unable                                  it did not work; to every question
                                            Echo, Drain,   what a connection is for
                                            Pour
                                            Received       what arrived of a stream

The first two columns travel through the roll call's session and the helper's pipes, the third through links of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from entrypoint.text import from_json
from entrypoint.values import dataclass
from entrypoint.wire import Invalid, Length, Range, read, to_json

MOST = 1 << 16  # bytes of a message
_BRACKETS = 500  # in a message, so that it is not deep; no node has a reason for as many
_NODES = 1 << 20
STRANGERS = 16  # that a node names
# Seconds in which a helper answers: to connect to a peer, and again to prove itself; small round trips; more than a
# stream's own time, until what was sent has arrived or is given up; for all sizes of an all-reduce, and with the import
# of torch and the meeting.
HANDSHAKE = 5.0
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
Strangers = Annotated[tuple[Annotated[str, Length(60)], ...], Length(STRANGERS)]
Sizes = Annotated[tuple[tuple[Annotated[int, Range(1, 1 << 40)], Figure], ...], Length(64)]


@dataclass(frozen=True)
class Open:
    """Start a helper, and listen for other nodes."""


@dataclass(frozen=True)
class Ready:
    """Where the helper listens, and whether this node's Python finds torch."""

    port: Port
    torch: bool


@dataclass(frozen=True)
class MeasurePair:
    """Measure with this node, which is reached there."""

    node: Host  # its label
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
    strangers: Strangers


@dataclass(frozen=True)
class Unable:
    """Why a node could not do what it was asked."""

    why: Why
    strangers: Strangers = ()


@dataclass(frozen=True)
class ServeReduce:
    """Be the first of so many nodes in an all-reduce, and choose a port."""

    nodes: Annotated[int, Range(1, _NODES)]


@dataclass(frozen=True)
class ReducePort:
    """Where the first one waits for the others."""

    port: Port


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
    strangers: Strangers


@dataclass(frozen=True)
class Echo:
    """Small round trips follow."""


@dataclass(frozen=True)
class Drain:
    """A stream follows, for so long; say what arrived."""

    seconds: Seconds


@dataclass(frozen=True)
class Pour:
    """Send a stream, for so long."""

    seconds: Seconds


@dataclass(frozen=True)
class Received:
    """Gbit/s of a stream that arrived."""

    gbps: Figure


ANSWERS: Mapping[type, type] = {Open: Ready, MeasurePair: Figures, ServeReduce: ReducePort, Reduce: SweepEnd}
"""What answers which question, unless it is Unable."""


def pair_limit(seconds: float) -> float:
    """Return the seconds in which a pair has measured, or has failed."""
    return 3 * 3 * HANDSHAKE + TRIPS_SECONDS + HANDSHAKE + 2 * (seconds + 2 * MARGIN)


def packed(message: Any) -> dict[str, Any]:
    """Return a message as a JSON object."""
    return {"kind": type(message).__name__, **vars(message)}


def unpacked(given: Any, *kinds: type) -> Any:
    """Return the message, of one of these kinds. Raises Invalid."""
    for kind in kinds:
        if isinstance(given, dict) and given.get("kind") == kind.__name__:
            return read(kind, given, kind.__name__)
    raise Invalid(f"neither {' nor '.join(each.__name__ for each in kinds)}")


def pack(message: Any) -> bytes:
    """Return a message as JSON."""
    return to_json(packed(message)).encode()


def unpack(data: bytes, *kinds: type) -> Any:
    """Return the message, of one of these kinds. Raises Invalid."""
    if data.count(b"[") + data.count(b"{") > _BRACKETS:
        raise Invalid("a message of too many parts")
    try:
        given = from_json(data)
    except ValueError:
        raise Invalid("a message that is no JSON") from None
    return unpacked(given, *kinds)
