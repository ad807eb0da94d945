"""The events of a node's machine; `handle` gets the time of each event with it.

Events of this node's own programs use the messages of other nodes, as in
`MessageReceived(me, RankEnd(...))`.
"""

from __future__ import annotations

from typing import Any

from entrypoint.base.model import NodeReport, Outcome
from entrypoint.base.values import frozen


@frozen
class Started:
    """The machine may act."""


@frozen
class TimerFired:
    """A deadline of the machine has come."""


@frozen
class KeysReady:
    """The job's keys are written; sshd is started with them."""


@frozen
class EndpointReady:
    """This node can be logged in to. `report`: what it says of itself at the roll call."""

    report: NodeReport


@frozen
class NameState:
    """The state of the address of a host's name: why there is none, or "" once there is one."""

    host: str
    state: str


@frozen
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


@frozen
class Rejected:
    """A worker answered that it cannot take part in this job, and why."""

    node: int
    summary: str
    detail: str
    hint: str


@frozen
class Answered:
    """A worker answered the roll call. `local`: this node's address in its session; `named` as in
    Unreachable."""

    node: int
    report: NodeReport
    local: str = ""
    named: float = 0.0


@frozen
class Alive:
    """Bytes came from a worker, but no complete message yet."""

    node: int


@frozen
class SessionLost:
    """A session ended that this node has not ended itself; why, where more is known than that."""

    node: int
    why: str = ""


@frozen
class MessageReceived:
    """A message of another node; or, from this node, what its own programs report."""

    node: int
    message: Any


@frozen
class LeaderCalled:
    """Another leader calls this one; `message` is its first."""

    message: Any


@frozen
class Prepared:
    """All that ranks need here is written. `asked`: ranks that mpirun starts; `awaited`: nodes
    whose end counts."""

    asked: int
    awaited: tuple[int, ...] | None


@frozen
class RankChanged:
    """A rank or program of this node has started ("start"), printed for the first time ("output"),
    or ended ("end")."""

    name: str
    change: str


@frozen
class LaunchersGone:
    """The programs that this node started have ended."""


@frozen
class DaemonWanted:
    """mpirun wants its daemon started on a node, by this command of a shell."""

    node: int
    command: str


@frozen
class OutputProgress:
    """Bytes that the launcher has written so far, and whether somebody reads what this node
    prints."""

    written: int
    read: bool


@frozen
class StacksWanted:
    """A user asks what the ranks do: `entrypoint stacks`."""


@frozen
class Signalled:
    """This node is asked to stop; `again`: not for the first time."""

    signum: int
    again: bool = False


@frozen
class Faulted:
    """This node cannot go on."""

    outcome: Outcome
