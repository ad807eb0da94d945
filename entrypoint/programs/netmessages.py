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

import json
from typing import Any

from entrypoint.job.messages import Invalid, _as, _list, _number, _row, _text, _truth, _whole
from entrypoint.values import dataclass, fields

MOST = 1 << 16  # bytes of a message
_BRACKETS = 500  # in a message, so that it is not deep; no node has a reason for as many
_NODES = 1 << 20
_EVER = 1e9  # no figure is as high
STRANGERS = 16  # that a node names
_WHY = 300  # characters
_HOST = 255

_port = _whole(0, 65535)
_seconds = _number(0, 60)
_figure = _number(0, _EVER)
_strangers = _list(_text(60), STRANGERS)


@dataclass(frozen=True)
class Arrival:
    """A node that came; `address` is "" where it is reached as in the roll call."""

    rank: int = _as(_whole(0, _NODES))
    port: int = _as(_port)
    address: str = _as(_text(_HOST))
    torch: bool = _as(_truth)


@dataclass(frozen=True)
class MeasurePair:
    """MeasurePair with this node, which is reached there."""

    node: int = _as(_whole(0, _NODES))
    host: str = _as(_text(_HOST))
    port: int = _as(_port)
    seconds: float = _as(_seconds)


@dataclass(frozen=True)
class Figures:
    """What a pair has measured, as a Measured has it."""

    latency_ms: float = _as(_figure)
    worst_ms: float = _as(_figure)
    there_gbps: float = _as(_figure)
    back_gbps: float = _as(_figure)
    strangers: tuple[str, ...] = _as(_strangers)


@dataclass(frozen=True)
class Unmeasured:
    """Why a pair has not."""

    why: str = _as(_text(_WHY))
    strangers: tuple[str, ...] = _as(_strangers)


@dataclass(frozen=True)
class Reduce:
    """Take part in the all-reduce of so many nodes; port 0 is for the first, which chooses one."""

    nodes: int = _as(_whole(1, _NODES))
    host: str = _as(_text(_HOST))
    port: int = _as(_port)


@dataclass(frozen=True)
class SweepPort:
    """Where the first one waits for the others; 0 where it ended before."""

    port: int = _as(_port)


@dataclass(frozen=True)
class SweepEnd:
    """The all-reduce's sizes in bytes and their seconds; `why` it ended early, or ""."""

    backend: str = _as(_text(20))
    rows: tuple[tuple[int, float], ...] = _as(_list(_row("no size and seconds", _whole(1, 1 << 40), _figure), 64))
    why: str = _as(_text(_WHY))
    strangers: tuple[str, ...] = _as(_strangers)


@dataclass(frozen=True)
class Leave:
    """Nothing more is asked."""


@dataclass(frozen=True)
class Echo:
    """Small round trips follow."""


@dataclass(frozen=True)
class Drain:
    """A stream follows, for so long; say what arrived."""

    seconds: float = _as(_seconds)


@dataclass(frozen=True)
class Pour:
    """Send a stream, for so long."""

    seconds: float = _as(_seconds)


@dataclass(frozen=True)
class Received:
    """Gbit/s of a stream that arrived."""

    gbps: float = _as(_figure)


def pack(message: Any) -> bytes:
    """A message as JSON."""
    return json.dumps({"kind": type(message).__name__, **vars(message)}).encode()


def unpack(data: bytes, *kinds: type) -> Any:
    """The message, of one of these kinds. Raises Invalid."""
    if data.count(b"[") + data.count(b"{") > _BRACKETS:
        raise Invalid("a message of too many parts")
    try:
        given = json.loads(data)
    except ValueError:
        raise Invalid("a message that is no JSON") from None
    kind = next((each for each in kinds if isinstance(given, dict) and given.get("kind") == each.__name__), None)
    if kind is None:
        raise Invalid(f"neither {' nor '.join(each.__name__ for each in kinds)}")
    taken = {}
    for field in fields(kind):
        try:
            taken[field.name] = field.metadata["check"](given.get(field.name))
        except Invalid as error:
            raise Invalid(f"{kind.__name__}, {field.name}: {error}") from None
    return kind(**taken)
