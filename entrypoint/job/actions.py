"""The actions that a node's machine asks for. The loop performs them in this order and reports the
results as events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from entrypoint.base.model import Members, Outcome
from entrypoint.base.phases import Phase
from entrypoint.base.values import frozen


@frozen
class Log:
    """One line for people."""

    text: str


@frozen
class ShowStacks:
    """The answer to StacksWanted: lines, or why there are none."""

    lines: tuple[str, ...]
    why: str = ""


@frozen
class WriteFiles:
    """Write these files into the log folder: name and text of each. A failure is logged, and ends
    nothing."""

    files: tuple[tuple[str, str], ...]


@frozen
class ShowWaiting:
    """Show which host the node waits for, and why; "" once it is there. `peers`: the status line
    counts it as a peer."""

    host: str
    state: str
    peers: bool = True


@frozen
class OpenEndpoint:
    """Set up keys, control endpoint and sshd. Event that follows: EndpointReady."""


@frozen
class Resolve:
    """Look up these nodes' names until each has an address. Event that follows: NameState."""

    nodes: tuple[int, ...]


@frozen
class Call:
    """End this worker's session or the call to it, if there is one; log in to it and ask, until it
    answers.

    Events that follow: Unreachable, then Answered or Rejected.
    """

    node: int


@frozen
class CloseSession:
    """End this node's session, or the call to it. No event follows."""

    node: int


@frozen
class StopCalling:
    """The roll call is over: wait for nobody else."""


@frozen
class Send:
    """Send a message to a node. Sent to this node itself, it is an order for the programs here."""

    node: int
    message: Any


@frozen
class Answer:
    """Send a message to the session at this node's control endpoint."""

    message: Any


@frozen
class AnswerRollCall:
    """Write what ranks need here, then answer the roll call with this node's report, reached at
    `address`. `leader`: which leader asks."""

    env: Mapping[str, str]
    address: str
    leader: str


@frozen
class ReportPhases:
    """Tell the leader how long each phase of this node took."""


@frozen
class Prepare:
    """Write what ranks need here. `port` and `replaced` as in messages.Start. Event that follows:
    Prepared."""

    members: Members
    port: int = 0
    replaced: tuple[tuple[int, int], ...] = ()


@frozen
class ShowLine:
    """Say once how mpirun was started."""


@frozen
class AnswerAgent:
    """Tell mpirun how the start of its daemon on a node ended."""

    node: int
    status: int


@frozen
class CheckOutputProgress:
    """Measure how much the launcher has written. Event that follows: OutputProgress."""


@frozen
class AwaitLaunchers:
    """Wait for the launchers to end. Event that follows: LaunchersGone."""


@frozen
class Entered:
    """A node is in this phase from now on, or more is known of it. Nothing is to be done: it is for
    those who watch."""

    node: int
    phase: Phase
    detail: str = ""


@frozen
class EndNode:
    """This node's part is over, with this outcome. Nothing comes after it."""

    outcome: Outcome
