"""Lines of several ranks that differ only by rank, pid or time become one, and no other does."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from entrypoint.base.kept import OutputForm
from entrypoint.base.values import replace
from entrypoint.output import collapse
from entrypoint.output.lines import Lines, shape
from tests import table

TABLE = table("tests/tables/collapse.yaml")


class Clock:
    now = 100.0

    def monotonic(self) -> float:
        return self.now


class Node:
    """The lines of a node's ranks, on their way through the reader that collapses them."""

    def __init__(self, lines: str = "text", **how: Any) -> None:
        self._form = OutputForm(lines, collapse=True, **how)
        self._senders: dict[int, Lines] = {}
        self.reader = collapse.Collapser(lines == "json")

    def put(self, rank: int, text: str) -> str:
        lines = Lines(shape(replace(self._form, rank=str(rank)), "stdout"))
        return self.other(self._senders.setdefault(rank, lines).take(text.encode()))

    def other(self, data: bytes = b"") -> str:
        return self.reader.take(data).decode()

    def rest(self) -> str:
        return self.reader.rest().decode()


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(collapse, "time", clock)
    return clock


@pytest.mark.parametrize(("first", "second"), TABLE["alike"])
def test_lines_that_differ_by_rank_pid_or_time_become_one(first: str, second: str) -> None:
    node = Node()
    assert node.put(3, first + "\n") + node.put(5, second + "\n") == ""
    assert node.rest() == f"{first} [x2: ranks 3,5]\n"


@pytest.mark.parametrize(("first", "second"), TABLE["apart"])
def test_lines_with_other_values_stay_apart(first: str, second: str) -> None:
    node = Node()
    assert node.put(3, first + "\n") + node.put(5, second + "\n") == ""
    assert sorted(node.rest().splitlines()) == sorted([first, second])


def test_a_line_waits_for_a_second(clock: Clock) -> None:
    node = Node()
    assert (node.put(0, "one\n"), node.reader.due) == ("", 101.0)
    clock.now = 100.9
    assert (node.put(2, "one\n") + node.put(0, "two\n"), node.reader.due) == ("", 101.0)
    clock.now = 101.0
    assert (node.other(), node.reader.due) == ("one [x2: ranks 0,2]\n", 101.9)
    assert node.put(1, "one\n") == "", "too late, so it is a line of its own"
    clock.now = 102.0
    assert (node.other(), node.reader.due) == ("one\ntwo\n", float("inf"))


def test_what_differs_in_between_keeps_no_line_from_joining() -> None:
    node = Node()
    for rank in range(4):
        assert node.put(rank, f"begin\nloss 0.{rank}\nsaved\n") == ""
    begin, *losses, saved = node.rest().splitlines()
    assert (begin, saved) == ("begin [x4: ranks 0-3]", "saved [x4: ranks 0-3]")
    assert sorted(losses) == [f"loss 0.{rank}" for rank in range(4)]


def test_lines_that_one_rank_repeats_stay() -> None:
    node = Node()
    node.put(0, "===\ntitle\n===\n===\n")
    node.put(1, "===\ntitle\n===\n")
    both = " [x2: ranks 0-1]\n"
    assert node.rest() == f"==={both}title{both}==={both}===\n"


@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from("abc"), st.sampled_from([0, 0.4, 2]))))
def test_every_line_is_printed_in_the_order_of_its_rank(
    given: list[tuple[int, str, float]],
) -> None:
    """Whatever comes when."""
    node = Node()
    clock = Clock()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(collapse, "time", clock)
        shown = ""
        for rank, text, pause in given:
            clock.now += pause
            shown += node.put(rank, f"{text} by rank {rank}\n")
            assert clock.now < node.reader.due, "nothing that is due is held"
    shown += node.rest()
    came: dict[int, list[str]] = {0: [], 1: [], 2: []}
    for text, first, more in re.findall(r"(\w) by rank (\d)(?: \[x\d: ranks (.+)\])?\n", shown):
        for part in (more or first).split(","):
            begin, _, end = part.partition("-")
            for rank in range(int(begin), int(end or begin) + 1):
                came[rank].append(text)
    assert came == {rank: [text for by, text, _ in given if by == rank] for rank in came}


def test_a_prefix_is_not_compared_and_the_first_rank_s_stays() -> None:
    node = Node(prefix="[worker-0 {rank}] ", timestamps=True)
    node.put(2, "one\r\n")
    node.put(1, "one\r\n")
    assert re.fullmatch(r"20\S+Z \[worker-0 2\] one \[x2: ranks 1-2\]\r\n", node.rest())


def test_json_has_the_text_once_with_the_ranks() -> None:
    node = Node("json")
    for rank in (2, 0, 1):
        node.put(rank, '"{x}"\n')
    node.put(2, "alone\n")
    node.put(0, "50%\r")
    one, bar, alone = [json.loads(line) for line in node.rest().splitlines()]
    assert (one["text"], one["rank"], one["count"], one["ranks"]) == ('"{x}"', 2, 3, "0-2")
    assert "ranks" not in alone | bar
    assert bar["partial"]


def test_what_is_no_line_of_a_rank_stays_as_it_is() -> None:
    node = Node()
    for rank in (0, 1):
        node.put(rank, "1%\r2%\r")
        node.put(rank, "x" * 5000 + "\n")
        node.other(b"torchrun says\n")
    long = "x" * 5000 + "\n"
    shown = node.rest()
    assert (shown.count("1%\r"), shown.count("2%\r"), shown.count(long)) == (2, 2, 2)
    assert shown.count("torchrun says\n") == 2
    node.put(0, "cut")
    node.other(b"\x1e7.1:[pre\x1c0\n")
    assert "[pre\x1c0\n" in node.rest()


def test_what_waits_is_bounded() -> None:
    node = Node()
    size = sum(len(node.put(0, f"{number} " + "x" * 4000 + "\n")) for number in range(3000))
    assert size > 3 << 20, "as time does not go on, only the bound passes lines on"
    assert size + len(node.rest()) == sum(4002 + len(str(number)) for number in range(3000))
