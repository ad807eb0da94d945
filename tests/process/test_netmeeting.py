"""Worker-0's part of the network check: nodes that never come, come twice, come late, or say what no node says."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from entrypoint import supervised
from entrypoint.netcheck import link as netlink
from entrypoint.netcheck import measure
from entrypoint.netcheck.analysis import findings, summary
from entrypoint.netcheck.coordinator import Coordinator
from entrypoint.netcheck.link import PeerLink, connect
from entrypoint.netcheck.messages import Arrival, Drain, Echo, Leave, MeasurePair, Pour
from entrypoint.netcheck.result import Limits, Measured, NetcheckResult
from entrypoint.plan.netcheck import SETTINGS, WHY
from entrypoint.plan.netcheck import TOKEN as TOKEN_FILE
from entrypoint.wire import Invalid
from tests.cluster import free_port
from tests.process.bench import until

pytestmark = pytest.mark.see
TOKEN = b"0123456789abcdef" * 4
FIGURES = {"latency_ms": 0.1, "worst_ms": 0.2, "there_gbps": 9.0, "back_gbps": 8.0, "strangers": []}
SAID = {"kind": "Figures", **FIGURES}


class Run:
    """A meeting at work, and nodes of the test's own."""

    def __init__(self, nodes: int, meet: float) -> None:
        self.port, self._result, self._links = free_port(), list[NetcheckResult](), list[PeerLink]()
        names = [[f"worker-{rank}", f"node-{rank}"] for rank in range(nodes)]
        settings = {"nodes": names, "leader": "localhost", "addresses": ["localhost"] * nodes, "port": self.port}
        self._meeting = Coordinator({**settings, "seconds": 0.1, "limit": 20, "meet": meet}, TOKEN)
        self._thread = threading.Thread(target=lambda: self._result.append(self._meeting.run()), daemon=True)
        self._thread.start()

    def come(self, rank: object) -> PeerLink:
        link = connect("localhost", self.port, TOKEN)
        self._links.append(link)
        say(link, {"kind": "Arrival", "rank": rank, "port": 1, "address": "", "torch": False})
        return link

    def answer(self, link: PeerLink, said: dict[str, Any] | bytes) -> None:
        """To the one order that comes."""
        assert link.receive(10, MeasurePair).port == 1
        say(link, said)

    def result(self) -> NetcheckResult:
        self._thread.join(20)
        assert self._result, "it does not end"
        return self._result[0]

    def close(self) -> None:
        self._meeting.close()
        for each in self._links:
            each.close()


def say(link: PeerLink, said: dict[str, Any] | bytes) -> None:
    """Send what a node with the token can: any bytes as a message."""
    data = said if isinstance(said, bytes) else json.dumps(said).encode()
    data = struct.pack(">I", len(data)) + data
    link.socket.sendall(data + netlink._mac(link._sending, link._sent, data))
    link._sent += 1


@pytest.fixture
def meeting() -> Iterator[Callable[..., Run]]:
    made: list[Run] = []

    def make(nodes: int, meet: float = 10) -> Run:
        made.append(Run(nodes, meet))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.mark.control("a node that freezes, leaves or never comes is a red cell and no hang")
def test_what_a_pair_saw_is_the_result(meeting: Callable[..., Run]) -> None:
    run = meeting(2)
    links = [run.come(rank) for rank in range(2)]
    run.answer(links[0], {**SAID, "strangers": ["10.0.0.9"]})
    result = run.result()
    assert result.pairs == (Measured(0, 1, 0.1, 0.2, 9.0, 8.0),)
    assert result.rejected == ("10.0.0.9 on worker-0",)
    assert result.no_sweep == "there is no torch on worker-0, worker-1"
    assert [link.receive(5, Leave) for link in links] == [Leave()] * 2


@pytest.mark.promise("a node that freezes, leaves or never comes is a red cell and no hang")
def test_who_never_comes_is_not_waited_for(meeting: Callable[..., Run]) -> None:
    run = meeting(2, meet=0.5)
    run.come(0)
    result = run.result()
    assert result.pairs == (Measured(0, 1, error="it did not come to the check within 0.5s"),)
    assert result.no_sweep == "worker-1 cannot take part"


@pytest.mark.parametrize("rank", [2, -1, 1 << 40, "x", None])
def test_who_comes_from_nowhere_changes_nothing(rank: object, meeting: Callable[..., Run]) -> None:
    run = meeting(2)
    first = run.come(0)
    with pytest.raises(ConnectionError):
        run.come(rank).receive(5, MeasurePair)
    run.come(1)
    run.answer(first, SAID)
    result = run.result()
    assert result.pairs == (Measured(0, 1, 0.1, 0.2, 9.0, 8.0),)
    assert result.invalid == ()


def test_who_comes_under_another_node_s_number_ends_the_check_by_name(meeting: Callable[..., Run]) -> None:
    """Whoever was first, the figures of that number are worth nothing."""
    run = meeting(2)
    first = run.come(0)
    with pytest.raises(ConnectionError):
        run.come(0).receive(5, MeasurePair)
    run.come(1)
    run.answer(first, SAID)
    result = run.result()
    assert result.invalid == ((0, "two came under its number"),)
    assert [finding.fails for finding in findings(result, Limits())] == [True]


MANY = b"9" * 5000
INVALID = {
    "nothing": b"{}",
    "no number": {**SAID, "latency_ms": "soon"},
    "none of it": {**SAID, "back_gbps": None},
    "NaN": {**SAID, "worst_ms": float("nan")},
    "below all": {**SAID, "latency_ms": -1},
    "beyond all": json.dumps(SAID).replace("9.0", "1e400").encode(),
    "many digits": json.dumps(SAID).encode().replace(b"9.0", MANY),
    "less digits": json.dumps(SAID).encode().replace(b"9.0", MANY[:400]),
    "deep": json.dumps(SAID).encode().replace(b"9.0", b"[" * 30000 + b"]" * 30000),
    "strangers": {**SAID, "strangers": 5},
    "another kind": {"kind": "SweepEnd", "backend": "", "rows": [], "why": "", "strangers": []},
}


@pytest.mark.parametrize("said", INVALID.values(), ids=list(INVALID))
def test_figures_that_are_none_fail_by_name(said: dict[str, Any] | bytes, meeting: Callable[..., Run]) -> None:
    run = meeting(2)
    links = [run.come(rank) for rank in range(2)]
    run.answer(links[0], said)
    result = run.result()
    assert result.pairs[0].error.startswith("worker-0 sent an invalid message: ")
    assert [node for node, _ in result.invalid] == [0]
    assert summary(findings(result, Limits())).startswith("worker-0 (node-0) sent an invalid message: ")


@pytest.mark.promise("unauthenticated connections keep no node out of a network check")
def test_idle_connections_of_one_address_keep_no_node_out(meeting: Callable[..., Run]) -> None:
    """400 of them, which prove nothing, from the nodes' own address."""
    run, begun = meeting(2), time.monotonic()
    idle = [socket.create_connection(("localhost", run.port)) for _ in range(400)]
    try:
        links = [run.come(rank) for rank in range(2)]
        run.answer(links[0], SAID)
        assert run.result().pairs == (Measured(0, 1, 0.1, 0.2, 9.0, 8.0),)
    finally:
        for each in idle:
            each.close()
    assert time.monotonic() - begun < netlink.HANDSHAKE, "it waited for them"


def test_what_a_node_says_is_one_line(meeting: Callable[..., Run]) -> None:
    run = meeting(2)
    links = [run.come(rank) for rank in range(2)]
    why = "x\n[entrypoint] all is well\x1b[2J"
    run.answer(links[0], {"kind": "Unmeasured", "why": why, "strangers": ["1\n2"]})
    result = run.result()
    assert result.pairs[0].error.isprintable()
    assert result.pairs[0].error.startswith("x")
    assert result.rejected[0].isprintable()
    assert result.invalid == ()


@pytest.mark.promise("a node that freezes, leaves or never comes is a red cell and no hang")
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


def serve(link: PeerLink) -> None:
    """A node that measures well, until the link is closed."""
    with contextlib.suppress(OSError, Invalid):
        while True:
            link.receive(10, MeasurePair)
            say(link, SAID)


# ---------------------------------------------------------------------------------------------------------------
# worker-0's whole program, where a node with the token lies


def node_of(folder: Path, rank: int, nodes: int, port: int) -> subprocess.Popen[str]:
    """The program of a node, as its entrypoint starts it."""
    folder.mkdir()
    settings = {
        **{"rank": rank, "job": "job", "leader": "localhost", "address": "", "port": port, "seconds": 0.1, "limit": 20},
        **{"nodes": [[f"worker-{each}", f"node-{each}"] for each in range(nodes)], "addresses": ["localhost"] * nodes},
        **{"max_latency_ms": 0, "min_bandwidth_gbps": 0, "stop": False, "how": "text", "log_dir": str(folder)},
        "meet": 20,
    }
    (folder / SETTINGS).write_text(json.dumps(settings))
    (folder / TOKEN_FILE).write_bytes(TOKEN)
    env = {**os.environ, "PATH": "/nothing"}  # no Python with torch
    words = [sys.executable, "-I", supervised.NETCHECK, str(folder)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env)


LIES = {name: said for name, said in INVALID.items() if name in ("beyond all", "many digits", "less digits", "deep")}


@pytest.mark.promise(
    "a node that sends nonsense ends no other node's part of the network check",
    control="the node that does not lie, in the same tests",
)
@pytest.mark.parametrize("said", [*LIES.values(), SAID], ids=[*LIES, "control"])
def test_worker_0_survives_a_liar_and_names_him(said: dict[str, Any] | bytes, tmp_path: Path) -> None:
    """worker-1 has the token and lies about its pair with worker-2, which is honest and ends as always."""
    port = free_port()
    first, third = (node_of(tmp_path / str(rank), rank, 3, port) for rank in (0, 2))
    until(lambda: can_connect(port), "worker-0 listens")
    liar = measure.PairServer(TOKEN)
    with connect("localhost", port, TOKEN) as link:
        link.send(Arrival(1, liar.port, "", False), 5)
        order = link.receive(20, MeasurePair)
        assert order.node == 2
        say(link, said)
        output = first.communicate(timeout=60)[0], third.communicate(timeout=60)[0]
    liar.close()
    why = (tmp_path / "0" / WHY).read_text() if (tmp_path / "0" / WHY).exists() else ""
    assert (first.returncode, third.returncode) == ((75 if said is not SAID else 0), 0), output
    assert ("worker-1 (node-1) sent an invalid message: " in why) is (said is not SAID), why
    assert "worker-2 (node-2) sent" not in why
    assert "Traceback" not in "".join(output)


@pytest.mark.promise("a node that sends nonsense ends no other node's part of the network check")
@pytest.mark.parametrize("gbps", ["1e400", "9" * 400, "[" * 30000, "5.0"], ids=["beyond", "digits", "deep", "control"])
def test_a_node_survives_a_peer_that_lies_and_names_it(gbps: str, tmp_path: Path) -> None:
    """worker-1 has the token and lies to worker-0 about what it received."""
    port, valid = free_port(), gbps == "5.0"
    first = node_of(tmp_path / "0", 0, 2, port)
    until(lambda: can_connect(port), "worker-0 listens")

    def serve_pair(link: PeerLink) -> None:
        with link, contextlib.suppress(OSError):
            order = link.receive(5, Echo, Drain, Pour)
            if isinstance(order, Drain):
                while link.socket.recv(1 << 20):
                    pass
                say(link, f'{{"kind": "Received", "gbps": {gbps}}}'.encode())
            else:
                liar._do(link, order)

    liar = measure.PairServer(TOKEN)
    liar._listener._served = serve_pair
    with connect("localhost", port, TOKEN) as link:
        link.send(Arrival(1, liar.port, "", False), 5)
        output = first.communicate(timeout=60)[0]
    liar.close()
    assert first.returncode == (0 if valid else 75), output
    if not valid:
        why = (tmp_path / "0" / WHY).read_text()
        assert "worker-1 sent an invalid message: " in why
        assert "Traceback" not in output


def can_connect(port: int) -> bool:
    with contextlib.suppress(OSError), connect("localhost", port, TOKEN):
        return True
    return False
