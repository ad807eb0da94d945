"""What a node's machine wants done. The loop does it, in this order, and tells what comes of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from entrypoint.model import Members, Outcome


@dataclass(frozen=True)
class Say:
    """One line for people."""

    text: str


@dataclass(frozen=True)
class Missing:
    """Who or what is waited for, and why; "" once it is there. `peers`: they are counted."""

    host: str
    state: str
    peers: bool = True


@dataclass(frozen=True)
class OpenDoor:
    """Keys, control endpoint and sshd. Told: DoorOpened."""


@dataclass(frozen=True)
class Resolve:
    """Look these nodes' names up until they have an address. Told: NameState."""

    nodes: tuple[int, ...]


@dataclass(frozen=True)
class Call:
    """Log in to a worker and ask, until it answers. Told: Unreached, then Answered or Disagreed."""

    node: int


@dataclass(frozen=True)
class StopCalling:
    """The roll call is over: nobody else is waited for."""


@dataclass(frozen=True)
class Close:
    """End a worker's session."""

    node: int


@dataclass(frozen=True)
class Send:
    """A message to a node; to this node itself, it is an order to the programs here."""

    node: int
    message: Any


@dataclass(frozen=True)
class Answer:
    """A message to whoever is at this node's control endpoint."""

    message: Any


@dataclass(frozen=True)
class Report:
    """Write what ranks need here, then answer the roll call with this node's report, reached at `address`."""

    env: Mapping[str, str]
    address: str


@dataclass(frozen=True)
class Prepare:
    """Write what ranks need here. Told: Prepared."""

    members: Members


@dataclass(frozen=True)
class ShowLine:
    """Say once how mpirun was started."""


@dataclass(frozen=True)
class FindFailedLogin:
    """Told: LoginFailed."""


@dataclass(frozen=True)
class Measure:
    """Told: Progress."""


@dataclass(frozen=True)
class AwaitLaunchers:
    """Told: LaunchersGone."""


@dataclass(frozen=True)
class End:
    """This node's part is over, with this outcome. Nothing comes after it."""

    outcome: Outcome
