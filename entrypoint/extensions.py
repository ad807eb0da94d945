"""What the core lets features do, one protocol each: `cli/run` hands the core what implements it,
so that the core imports no feature."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from entrypoint.values import dataclass

if TYPE_CHECKING:
    from entrypoint.model import Outcome, Plan


@dataclass(frozen=True)
class LoopView:
    """What an observer cannot know from events and actions."""

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
