"""The protocols of features, one for each thing that the core asks of them. `cli/features.py` hands
it what implements them, so that the core imports no feature."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from entrypoint.base.values import frozen

if TYPE_CHECKING:
    from entrypoint.base.model import Facts, Inquiry, NodeReport, Outcome, Plan
    from entrypoint.output.log import Callbacks, Logger
    from entrypoint.spec import JobSpec
    from entrypoint.system.signals import Signals


@frozen
class LoopView:
    """The state of the loop that an observer cannot know from events and actions."""

    attempt: int
    outcome: Outcome | None
    idle: float  # seconds in which nothing of this node has printed anything
    command: str  # that was started, in one line without secrets; "" before that


class Observer(Protocol):
    """Sees everything that happens on this node, and changes nothing. Times are monotonic
    seconds."""

    def begin(self, plan: Plan) -> None:
        """An attempt begins; the first one after the start hooks."""

    def open(self, view: Callable[[], LoopView]) -> None:
        """The loop of an attempt starts; `view` is called in it."""

    def saw(self, what: Any, now: float) -> None:
        """An event that the machine is about to get, or an action that is about to be
        performed."""

    def phases(self, now: float) -> Any:
        """Return this node's phases until now, as the message to the leader."""

    def close(self) -> None:
        """The loop has ended."""

    def hand_over(self, command: str) -> None:
        """This process is about to become the program of this command."""


class Admission(Protocol):
    """The decision on whether this node may take part in one attempt."""

    def report(self, report: NodeReport) -> NodeReport:
        """Return this node's report with what is known until now."""

    def hold(self, work: Callable[[], None]) -> None:
        """Do this once it is known that the node may take part; never if it may not, which is then
        a failure of the node."""

    def cancel(self) -> None:
        """The attempt ends: nothing that was held is done any more."""


class Gate(Protocol):
    """Checks this node before each attempt."""

    def before_program(self, plan: Plan, signals: Signals) -> Outcome | None:
        """Return why this node must not become the program. Raises StoppedBySignal."""

    def admission(self, plan: Plan, callbacks: Callbacks) -> Admission:
        """Begin the check before an attempt. `callbacks.tell` takes an event."""


@frozen
class Extensions:
    """All that the core asks of features."""

    observer: Observer
    gate: Callable[[JobSpec, Facts, Logger], Gate]
    # what all nodes are asked before the program starts
    inquiry: Callable[[JobSpec], Inquiry | None]
