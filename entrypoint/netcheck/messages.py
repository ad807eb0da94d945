"""What the network check's programs say to each other: values whose every field is checked on arrival.

worker-0 -> node   node -> worker-0       node -> node
                   Arrival                                  where others reach it
MeasurePair        Figures, Unmeasured                      measure with another node
Reduce             SweepPort, SweepEnd                      take part in the all-reduce
Leave                                                       nothing more is asked
                                          Echo, Drain,      what the connection is for
                                          Pour
                                          Received          what arrived of a stream
"""

from __future__ import annotations

from typing import Annotated, Any

from entrypoint.text import from_json
from entrypoint.values import dataclass
from entrypoint.wire import Invalid, Length, Range, read, to_json

MOST = 1 << 16  # bytes of a message
_BRACKETS = 500  # in a message, so that it is not deep; no node has a reason for as many
_NODES = 1 << 20
STRANGERS = 16  # that a node names

Node = Annotated[int, Range(0, _NODES)]
Port = Annotated[int, Range(0, 65535)]
Seconds = Annotated[float, Range(0, 60)]
Figure = Annotated[float, Range(0, 1e9)]
Host = Annotated[str, Length(255)]
Why = Annotated[str, Length(300)]
Strangers = Annotated[tuple[Annotated[str, Length(60)], ...], Length(STRANGERS)]
Sizes = Annotated[tuple[tuple[Annotated[int, Range(1, 1 << 40)], Figure], ...], Length(64)]


@dataclass(frozen=True)
class Arrival:
    """A node that came; `address` is "" where it is reached as in the roll call."""

    rank: Node
    port: Port
    address: Host
    torch: bool


@dataclass(frozen=True)
class MeasurePair:
    """MeasurePair with this node, which is reached there."""

    node: Node
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
class Unmeasured:
    """Why a pair has not."""

    why: Why
    strangers: Strangers


@dataclass(frozen=True)
class Reduce:
    """Take part in the all-reduce of so many nodes; port 0 is for the first, which chooses one."""

    nodes: Annotated[int, Range(1, _NODES)]
    host: Host
    port: Port


@dataclass(frozen=True)
class SweepPort:
    """Where the first one waits for the others; 0 where it ended before."""

    port: Port


@dataclass(frozen=True)
class SweepEnd:
    """The all-reduce's sizes in bytes and their seconds; `why` it ended early, or ""."""

    backend: Annotated[str, Length(20)]
    rows: Sizes
    why: Why
    strangers: Strangers


@dataclass(frozen=True)
class Leave:
    """Nothing more is asked."""


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


def pack(message: Any) -> bytes:
    """A message as JSON."""
    return to_json({"kind": type(message).__name__, **vars(message)}).encode()


def unpack(data: bytes, *kinds: type) -> Any:
    """The message, of one of these kinds. Raises Invalid."""
    if data.count(b"[") + data.count(b"{") > _BRACKETS:
        raise Invalid("a message of too many parts")
    try:
        given = from_json(data)
    except ValueError:
        raise Invalid("a message that is no JSON") from None
    for kind in kinds:
        if isinstance(given, dict) and given.get("kind") == kind.__name__:
            return read(kind, given, kind.__name__)
    raise Invalid(f"neither {' nor '.join(each.__name__ for each in kinds)}")
