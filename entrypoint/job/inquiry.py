"""Questions of a feature to the nodes that have answered the roll call, over their sessions.

The feature decides what is asked, what a node answers, and what the answers mean; here is who still
owes an answer, and until when.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Protocol

from entrypoint.base.model import Members, Outcome
from entrypoint.base.phases import Phase
from entrypoint.base.values import frozen
from entrypoint.job import actions, messages
from entrypoint.job.outbox import Part, Shared

_SIGNALLED = 128  # statuses from here on: somebody does not want to wait


@frozen
class Ask:
    """A question to a node, which counts as silent after so many seconds. A node has one open
    question at most."""

    node: int
    body: Mapping[str, Any]
    seconds: float


@frozen
class Conclusion:
    """The end of an inquiry. `outcome`: how the job ends; None if it starts now. `unfit`: nodes
    that are to be replaced by spares in the next attempt, and why."""

    outcome: Outcome | None
    answer: str = ""  # for stdout
    lines: tuple[str, ...] = ()  # for the log
    files: tuple[tuple[str, str], ...] = ()  # name in the log folder, and text
    unfit: tuple[tuple[int, str], ...] = ()


class Dialogue(Protocol):
    """One inquiry of a feature: a machine without I/O, over when no question is open. `now` is in
    seconds."""

    def begin(self, now: float) -> list[Ask]:
        """Return the first questions."""

    def take(self, node: int, body: Mapping[str, Any], now: float) -> list[Ask]:
        """Take an answer. Return further questions. Raises Invalid if it is nonsense."""

    def lose(self, node: int, why: str, has_left: bool, now: float) -> list[Ask]:
        """Ask a node nothing more: it has left the job, or does not answer. Return further
        questions."""

    def conclude(self, failed: Outcome | None) -> Conclusion:
        """Judge the answers. `failed`: what ended the roll call or the inquiry."""


class Answers:
    """A node's side of an inquiry: it answers the questions."""

    async def answer(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the answer to a question; cancelled if it is not wanted any more."""
        raise NotImplementedError

    def stop(self) -> None:
        """End at once what an answer has started."""

    async def close(self) -> None:
        """Return when all of that has ended."""


class InquiryDriver(Part):
    """One inquiry, if the plan has one. `go_on` starts the job."""

    _dialogue: Dialogue | None = None
    _failed: Outcome | None = None  # what ended the roll call, or came later
    _is_over = False

    def __init__(self, shared: Shared, go_on: Callable[[], None]) -> None:
        super().__init__(shared)
        self._inquiry = self._state.plan.inquiry
        self._go_on = go_on
        self._open: dict[int, int] = {}  # node -> number of the question that it has not answered
        self._asked: list[int] = []  # the node of each question, by number

    def begin(self, always: bool, members: Members, failed: Outcome | None = None) -> bool:
        """Ask the nodes that are there, or note what failed meanwhile. Returns False if there is
        nothing to wait for.

        `always`: whether only an inquiry begins that does not need all nodes to be ready.
        """
        inquiry = self._inquiry
        if inquiry is None or inquiry.is_over or self._is_over or inquiry.always is not always:
            return False
        if failed and failed.status >= _SIGNALLED:
            return False
        self._failed = self._failed or failed
        if self._dialogue is None:
            self._state.enter(Phase.INQUIRY)
            # Those that wait are not a part of the job that then starts.
            reports = self._membership.roster.ask(members, all_nodes=inquiry.instead)
            self._dialogue = inquiry.dialogue(self._state.plan, reports)
            self._ask(self._dialogue.begin(self._scheduler.now))
        return True

    def has_asked(self, node: int, number: int) -> bool:
        """Return whether this node was asked the question of that number."""
        return number < len(self._asked) and self._asked[number] == node

    def answered(self, node: int, reply: messages.Reply) -> None:
        """Take a node's answer, unless it comes too late. Raises Invalid if it is nonsense."""
        if (dialogue := self._running()) and self._open.get(node) == reply.number:
            asks = dialogue.take(node, reply.body, self._scheduler.now)
            self._close(node)
            self._ask(asks)

    def lose(self, node: int, why: str, has_left: bool = True) -> None:
        """A node will answer nothing any more."""
        if (dialogue := self._running()) and node in self._membership.roster.asked:
            self._close(node)
            self._ask(dialogue.lose(node, why, has_left, self._scheduler.now))

    def _running(self) -> Dialogue | None:
        return None if self._is_over or self._state.outcome else self._dialogue

    def _ask(self, asks: Iterable[Ask]) -> None:
        for ask in asks:
            number = len(self._asked)
            self._asked.append(ask.node)
            self._open[ask.node] = number
            self._outbox.tell(ask.node, messages.Question(number, ask.body))
            late = partial(
                self.lose, ask.node, f"no answer within {ask.seconds:g}s", has_left=False
            )
            self._scheduler.after(ask.seconds, late, ("question", ask.node))
        if not self._open:
            # Later in this step: the loss of a node that ends the wait may itself be a failure to
            # be shown.
            self._scheduler.after(0, self._conclude)

    def _close(self, node: int) -> None:
        self._open.pop(node, None)
        self._scheduler.drop(("question", node))

    def _conclude(self) -> None:
        dialogue = self._running()
        if dialogue is None or self._open:
            return
        self._is_over = True
        end = dialogue.conclude(self._failed)
        self._state.answer = end.answer
        for line in end.lines:
            self._scheduler.log(line)
        if end.files:
            self._scheduler.act(actions.WriteFiles(end.files))
        for node, why in end.unfit:
            self._membership.roster.replace_next(node, why)
        if end.outcome:
            self._decide(end.outcome)
        else:
            self._go_on()
