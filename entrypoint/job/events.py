"""The events of a node's machine; `handle` gets the time of each event with it.

Events of this node's own programs use the messages of other nodes, as in
`MessageReceived(me, RankEnd(...))`.
"""

from __future__ import annotations

from typing import Any

from entrypoint.base.model import NodeReport, Outcome
from entrypoint.base.values import dataclass


@dataclass(frozen=True)
class Started:
    """The machine may act."""


@dataclass(frozen=True)
class TimerFired:
    """A deadline of the machine has come."""


@dataclass(frozen=True)
class KeysReady:
    """The job's keys are written; sshd is started with them."""


@dataclass(frozen=True)
class EndpointReady:
    """This node can be logged in to. `report`: what it says of itself at the roll call."""

    report: NodeReport


@dataclass(frozen=True)
class NameState:
    """The state of the address of a host's name: why there is none, or "" once there is one."""

    host: str
    state: str


@dataclass(frozen=True)
class Unreachable:
    """One login to a worker failed. `refused`: the worker answered, but one side does not accept
    the other's key.
    `named`: when its name had an address (monotonic seconds); 0 where it has none yet. `ours`:
    another node of this job has answered."""

    node: int
    why: str
    refused: bool = False
    named: float = 0.0
    ours: bool = False


@dataclass(frozen=True)
class Rejected:
    """A worker answered that it cannot take part in this job, and why."""

    node: int
    summary: str
    detail: str
    hint: str


@dataclass(frozen=True)
class Answered:
    """A worker answered the roll call. `local`: this node's address in its session; `named` as in
    Unreachable."""

    node: int
    report: NodeReport
    local: str = ""
    named: float = 0.0


@dataclass(frozen=True)
class Alive:
    """Bytes came from a worker, but no complete message yet."""

    node: int


@dataclass(frozen=True)
class SessionLost:
    """A session ended that this node has not ended itself; why, where more is known than that."""

    node: int
    why: str = ""


@dataclass(frozen=True)
class MessageReceived:
    """A message of another node; or, from this node, what its own programs report."""

    node: int
    message: Any


@dataclass(frozen=True)
class LeaderCalled:
    """Another leader calls this one; `message` is its first."""

    message: Any


@dataclass(frozen=True)
class Prepared:
    """All that ranks need here is written. `asked`: ranks that mpirun starts; `awaited`: nodes
    whose end counts."""

    asked: int
    awaited: tuple[int, ...] | None


@dataclass(frozen=True)
class RankChanged:
    """A rank or program of this node has started ("start"), printed for the first time ("output"),
    or ended ("end")."""

    name: str
    change: str


@dataclass(frozen=True)
class LaunchersGone:
    """The programs that this node started have ended."""


@dataclass(frozen=True)
class DaemonWanted:
    """mpirun wants its daemon started on a node, by this command of a shell."""

    node: int
    command: str


@dataclass(frozen=True)
class OutputProgress:
    """Bytes that the launcher has written so far, and whether somebody reads what this node
    prints."""

    written: int
    read: bool


@dataclass(frozen=True)
class StacksWanted:
    """A user asks what the ranks do: `entrypoint stacks`."""


@dataclass(frozen=True)
class Signalled:
    """This node is asked to stop; `again`: not for the first time."""

    signum: int
    again: bool = False


@dataclass(frozen=True)
class Faulted:
    """This node cannot go on."""

    outcome: Outcome
