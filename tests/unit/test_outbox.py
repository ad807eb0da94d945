"""Answers that the leader awaits from all nodes, and until when."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

from entrypoint.job.outbox import Outbox
from entrypoint.job.scheduler import Scheduler


class Asked:
    """The outbox of node 0 of two, a clock, and which of its questions are over."""

    def __init__(self) -> None:
        self.scheduler = Scheduler()
        self.over: list[str] = []
        peers = SimpleNamespace(alive=lambda: [1])
        state: Any = SimpleNamespace(scheduler=self.scheduler, me=0, peers=peers)
        self.outbox = Outbox(state)

    def at(self, now: float, then: Any = lambda: None) -> None:
        self.scheduler.step(then, lambda outcome: None, now)

    def expect(self, now: float, name: str) -> None:
        """Await "done" of both nodes, for five seconds."""
        self.at(now, lambda: self.outbox.expect("done", 5.0, lambda: self.over.append(name)))

    def answer(self, now: float, *nodes: int) -> None:
        for node in nodes:
            self.at(now, partial(self.outbox.note, node, "done"))


def test_a_question_is_over_once_all_have_answered_or_its_time_is_up() -> None:
    asked = Asked()
    asked.expect(0.0, "first")
    asked.answer(1.0, 0)
    assert asked.over == []
    asked.answer(2.0, 1)
    assert asked.over == ["first"]
    asked.outbox.forget(answer="done")
    asked.expect(4.0, "second")
    asked.at(8.9)
    assert asked.over == ["first"], "the time of the first one does not count"
    asked.at(9.0)
    assert asked.over == ["first", "second"]


def test_a_question_that_all_have_answered_before_is_over_at_once() -> None:
    asked = Asked()
    asked.answer(0.0, 0, 1)
    asked.expect(1.0, "first")
    assert asked.over == ["first"]


def test_forgetting_one_answer_or_one_node_keeps_the_others() -> None:
    asked = Asked()
    outbox = asked.outbox
    for node in (0, 1):
        outbox.note(node, "stacks")
        outbox.note(node, "pong")
    outbox.forget(answer="stacks")
    assert [outbox.has_said(node, "stacks") for node in (0, 1)] == [False, False]
    assert [outbox.has_said(node, "pong") for node in (0, 1)] == [True, True]
    outbox.forget(node=1)
    assert [outbox.has_said(node, "pong") for node in (0, 1)] == [True, False]
