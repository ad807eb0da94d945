"""The driver gives a machine its events one after the other, and its deadlines as an event."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from entrypoint.base.model import Outcome
from entrypoint.job import events, messages
from entrypoint.job.driver import Driver


class Handle:
    """A call at a time, until it is cancelled."""

    def __init__(self, when: float, call: Callable[[], object]) -> None:
        self._when = when
        self.call = call
        self.is_cancelled = False

    def when(self) -> float:
        return self._when

    def cancel(self) -> None:
        self.is_cancelled = True


class Future:
    """A result that may be there."""

    value: Any = None

    def done(self) -> bool:
        return self.value is not None

    def set_result(self, value: Any) -> None:
        assert not self.done()
        self.value = value


class Node:
    """A clock that stands at 7 s, a machine that answers each event with `act`, and what happened."""

    def __init__(self, act: Callable[[Any], list[Any]] = lambda event: []) -> None:
        self.act = act
        self.state = SimpleNamespace(me=3)
        self.outcome: Outcome | None = None
        self.wake = math.inf
        self.handled: list[Any] = []
        self.happened: list[Any] = []
        self.handles: list[Handle] = []
        self.perform: Callable[[Any], None] = self.happened.append
        made: Any = self
        self.driver = Driver(made, self.saw, lambda action: self.perform(action), self.failed, made)

    def saw(self, event: Any, now: float) -> None:
        self.happened.append((event, now))

    def time(self) -> float:
        return 7.0

    def call_at(self, when: float, callback: Callable[..., object], *arguments: Any) -> Handle:
        self.handles.append(Handle(when, lambda: callback(*arguments)))
        return self.handles[-1]

    def create_future(self) -> Future:
        return Future()

    def handle(self, event: Any, now: float) -> list[Any]:
        self.handled.append((event, now))
        return self.act(event)

    def failed(self, error: Exception) -> None:
        self.happened.append(str(error))

    @property
    def waits(self) -> list[float]:
        return [handle.when() for handle in self.handles if not handle.is_cancelled]


def fail(*_: Any) -> Any:
    raise ValueError("a defect")


def test_an_event_that_comes_while_another_is_handled_comes_after_it() -> None:
    node = Node(lambda event: ["first", "second"] if event == "one" else [])
    node.perform = lambda action: (node.happened.append(action), node.driver.tell(f"of {action}"))[
        0
    ]
    node.driver.tell("one")
    assert node.happened == [("one", 7.0), "first", "second", ("of first", 7.0), ("of second", 7.0)]
    assert node.handled == [("one", 7.0), ("of first", 7.0), ("of second", 7.0)]


def test_what_this_node_reports_is_an_event_of_its_own() -> None:
    node = Node()
    node.driver.here(messages.Stopped())
    node.driver.signalled(15, True)
    told = [event for event, _ in node.handled]
    assert told == [events.MessageReceived(3, messages.Stopped()), events.Signalled(15, True)]


def test_the_machine_is_woken_at_its_deadline_alone() -> None:
    node = Node()
    node.driver.tell("nothing to wait for")
    assert node.handles == []
    for node.wake in (9.0, 9.0, 8.0):
        node.driver.tell("an event")
    assert (len(node.handles), node.waits) == (2, [8.0])
    node.wake = 12.0
    node.handles[-1].call()
    assert node.handled[-1] == (events.TimerFired(), 7.0)
    assert node.waits == [12.0]
    node.driver.over.set_result(Outcome(0, "done"))
    node.driver.tell("too late")
    assert (node.handled[-1][0], node.waits) == (events.TimerFired(), [])


def test_a_defect_is_told_and_ends_a_node_that_has_decided() -> None:
    node = Node(fail)
    node.driver.tell("an event")
    node.act = lambda event: ["an action", "another"]
    node.perform = fail
    node.driver.tell("more")
    assert node.happened == [("an event", 7.0), "a defect", ("more", 7.0), "a defect", "a defect"]
    assert not node.driver.over.done()
    node.outcome, node.act = Outcome(0, "done"), fail
    node.driver.tell("the last")
    assert node.driver.over.value.status == 70
    assert "a defect" in node.driver.over.value.reason
