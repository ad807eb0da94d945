"""Worker-0's part of the network check: nodes that never come, come twice, come late, or say what no node says."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from entrypoint.netcheck.result import Measured, Result
from entrypoint.programs.netlink import connect, receive, send
from entrypoint.programs.netmeeting import Meeting
from tests.cluster import free_port

pytestmark = pytest.mark.see
TOKEN = b"0123456789abcdef" * 4
FIGURES = {"latency_ms": 0.1, "worst_ms": 0.2, "there_gbps": 9.0, "back_gbps": 8.0}


class Run:
    """A meeting at work, and nodes of the test's own."""

    def __init__(self, nodes: int, meet: float) -> None:
        self.port, self._result, self._links = free_port(), list[Result](), list[socket.socket]()
        names = [[f"worker-{rank}", f"node-{rank}"] for rank in range(nodes)]
        settings = {"nodes": names, "leader": "localhost", "addresses": ["localhost"] * nodes, "port": self.port}
        self._meeting = Meeting({**settings, "seconds": 0.1, "limit": 20, "meet": meet}, TOKEN)
        self._thread = threading.Thread(target=lambda: self._result.append(self._meeting.run()), daemon=True)
        self._thread.start()

    def come(self, rank: object) -> socket.socket:
        link = connect("localhost", self.port, TOKEN)
        self._links.append(link)
        send(link, {"rank": rank, "port": 1, "address": "", "torch": False}, 5)
        return link

    def answer(self, link: socket.socket, **said: Any) -> None:
        """To the one order that comes."""
        assert receive(link, 10)["do"] == "pair"
        send(link, said, 5)

    def result(self) -> Result:
        self._thread.join(20)
        assert self._result, "it does not end"
        return self._result[0]

    def close(self) -> None:
        self._meeting.close()
        for each in self._links:
            each.close()


@pytest.fixture
def meeting() -> Iterator[Callable[..., Run]]:
    made: list[Run] = []

    def make(nodes: int, meet: float = 10) -> Run:
        made.append(Run(nodes, meet))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_what_a_pair_saw_is_the_result(meeting: Callable[..., Run]) -> None:
    run = meeting(2)
    links = [run.come(rank) for rank in range(2)]
    run.answer(links[0], **FIGURES, strangers=["10.0.0.9"])
    result = run.result()
    assert result.pairs == (Measured(0, 1, 0.1, 0.2, 9.0, 8.0),)
    assert result.strangers == ("10.0.0.9 on worker-0",)
    assert result.no_sweep == "there is no torch on worker-0, worker-1"
    assert [receive(link, 5) for link in links] == [{"do": "done"}] * 2


def test_who_never_comes_is_not_waited_for(meeting: Callable[..., Run]) -> None:
    run = meeting(2, meet=0.5)
    run.come(0)
    result = run.result()
    assert result.pairs == (Measured(0, 1, error="it did not come to the check within 0.5s"),)
    assert result.no_sweep == "worker-1 cannot take part"


def test_who_comes_twice_or_from_nowhere_changes_nothing(meeting: Callable[..., Run]) -> None:
    run = meeting(2)
    first = run.come(0)
    for rank in (0, 2, -1, "x", None):
        with pytest.raises(ConnectionError):
            receive(run.come(rank), 5)
    run.come(1)
    run.answer(first, **FIGURES)
    assert run.result().pairs == (Measured(0, 1, 0.1, 0.2, 9.0, 8.0),)


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"latency_ms": "soon"},
        {**FIGURES, "back_gbps": None},
        {**FIGURES, "worst_ms": float("nan")},
        {**FIGURES, "latency_ms": -1},
        {"error": "refused"},
        {**FIGURES, "latency_ms": "", "strangers": 5},
    ],
)
def test_figures_that_are_none_are_an_error(said: dict[str, Any], meeting: Callable[..., Run]) -> None:
    run = meeting(2)
    links = [run.come(rank) for rank in range(2)]
    run.answer(links[0], **said)
    assert run.result().pairs == (Measured(0, 1, error=said.get("error", "no answer")),)


def test_what_a_node_says_is_one_line(meeting: Callable[..., Run]) -> None:
    run = meeting(2)
    links = [run.come(rank) for rank in range(2)]
    run.answer(links[0], error="x\n[entrypoint] all is well\x1b[2J", strangers=["1\n2"])
    result = run.result()
    assert result.pairs[0].error.isprintable()
    assert result.pairs[0].error.startswith("x")
    assert result.strangers[0].isprintable()


def test_who_leaves_in_the_middle_is_named_and_the_others_go_on(meeting: Callable[..., Run]) -> None:
    run = meeting(3)
    links = [run.come(rank) for rank in range(3)]
    links[2].close()
    serving = [threading.Thread(target=serve, args=(link,), daemon=True) for link in links[:2]]
    for each in serving:
        each.start()
    errors = {(pair.a, pair.b): bool(pair.error) for pair in run.result().pairs}
    assert errors[0, 1] is False
    assert set(errors) == {(0, 1), (0, 2), (1, 2)}


def serve(link: socket.socket) -> None:
    """A node that measures well, until the link is closed."""
    with contextlib.suppress(OSError):
        while receive(link, 10)["do"] == "pair":
            send(link, FIGURES, 5)
