"""The leader's outbox: what it tells and asks all members, and who has answered what; and what else
the parts of the leader share."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

from entrypoint.base.model import Outcome
from entrypoint.base.values import dataclass
from entrypoint.job import actions, messages
from entrypoint.job.membership import Membership
from entrypoint.job.scheduler import Then
from entrypoint.job.state import JobState

# By the class of an event, which it gets, or of a message, which it gets with its node.
Handlers = Mapping[type, Callable[..., object]]


class Outbox:
    """With this node and all its peers. An answer also counts if it comes before the question."""

    def __init__(self, state: JobState) -> None:
        self._state = state
        self._scheduler = state.scheduler
        self._me = state.me
        self._peers = state.peers
        # answer -> nodes that still owe it, what comes then
        self._open: dict[object, tuple[set[int], Then]] = {}
        self._said: defaultdict[object, set[int]] = defaultdict(set)  # answer -> who has given it
        self._pings = 0
        self._followed: set[int] = set()  # pings whose answer is followed by the next one

    def tell(self, node: int, message: Any) -> None:
        """Send a message to one node, which may be this one. Nothing is sent once all were told the
        outcome."""
        if not self._state.is_released:
            self._scheduler.act(actions.Send(node, message))

    def tell_all(self, message: Any) -> None:
        """Send it to this node and all its peers."""
        for node in (self._me, *self._peers):
            self.tell(node, message)

    def ask_all_they_know(self, then: Then, twice: bool = False) -> str:
        """Have `then` called when every node has reported all that it knows by now; silent ones are
        lost before. Return the answer that each gives then."""
        self._pings += 1
        self.tell_all(messages.Ping(self._pings))
        if twice:
            self._followed.add(self._pings)
            self._pings += 1
        answer = f"pong {self._pings}"
        self.expect(answer, 2 * self._peers.limit, then)
        return answer

    def await_reports(self, then: Then) -> str:
        """Have `then` called when all reports that are on their way have arrived: after two answers
        of every node. Return the second one."""
        return self.ask_all_they_know(then, twice=True)

    def expect(self, answer: object, seconds: float, then: Then) -> None:
        """Have `then` called once every node has given this answer or is lost, or after that
        time."""
        waiting = {self._me, *self._peers.alive()} - self._said[answer]
        self._open[answer] = waiting, then
        self._scheduler.after(seconds if waiting else 0, lambda: self.end(answer), answer)

    def pong(self, node: int, number: int) -> None:
        """A node has answered that ping; what answers a ping that was not sent counts for none."""
        if 0 < number <= self._pings:
            self.note(node, f"pong {number}")
            if number in self._followed:
                self.tell(node, messages.Ping(number + 1))

    def note(self, node: int, answer: object) -> None:
        """A node has given this answer."""
        self._said[answer].add(node)
        self._strike(node, answer)

    def has_said(self, node: int, answer: object) -> bool:
        """Return whether it has given this answer."""
        return node in self._said[answer]

    def lose(self, node: int) -> None:
        """A node will answer nothing any more."""
        for answer in list(self._open):
            self._strike(node, answer)

    def forget(self, *, node: int | None = None, answer: object = None) -> None:
        """Forget what a node has answered, or who has given this answer: it will be asked again."""
        self._said.pop(answer, None)
        for nodes in self._said.values() if node is not None else ():
            nodes.discard(node)

    def is_open(self, answer: object) -> bool:
        """Return whether this answer is awaited."""
        return answer in self._open

    def end(self, answer: object) -> None:
        """Wait for it no longer."""
        if answer in self._open:
            self._scheduler.drop(answer)
            self._open.pop(answer)[1]()

    def _strike(self, node: int, answer: object) -> None:
        if answer in self._open:
            waiting, _ = self._open[answer]
            waiting.discard(node)
            if not waiting:
                self.end(answer)


@dataclass
class Shared:
    """The objects that the leader's parts share. `decide`: sets the outcome, unless it is set."""

    state: JobState
    outbox: Outbox
    membership: Membership
    decide: Callable[[Outcome], None]


class Part:
    """A part of the leader."""

    def __init__(self, shared: Shared) -> None:
        self._state = state = shared.state
        self._spec = state.spec
        self._scheduler = state.scheduler
        self._topology = state.topology
        self._peers = state.peers
        self._outbox = shared.outbox
        self._membership = shared.membership
        self._decide = shared.decide
