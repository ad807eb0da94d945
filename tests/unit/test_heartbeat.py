"""When silence is a loss: the limit is a limit, and our own time out is nobody's silence."""

from __future__ import annotations

from collections import Counter

import pytest

from entrypoint.base import heartbeat
from entrypoint.base.history import History
from entrypoint.base.model import Device, Node, NodeReport, Topology
from entrypoint.job import events, messages
from entrypoint.job.leader import Leader
from entrypoint.job.peers import Peer, Peers
from entrypoint.plan import settle
from entrypoint.spec import load
from tests.unit.machine import sent
from tests.unit.plans import facts

NODES = (Node(0, "a", 1), Node(1, "b", 1, index=1))
TWO = Topology("job", NODES, 0, "local", Device("cpu", 0, ""), "/r", user="u")


@pytest.mark.control("a lost or frozen node ends the job with 75 within the heartbeat timeout")
@pytest.mark.parametrize("nodes", [2, 10_000])
@pytest.mark.parametrize("limit", [1.0, 4.0, 15.0])
def test_who_is_silent_for_less_than_the_limit_is_never_lost(limit: float, nodes: int) -> None:
    # Its last word was heard just after it was due, and the next would have been, just before it
    # fell silent.
    oldest = heartbeat.interval(limit, nodes)
    assert oldest + limit <= heartbeat.patience(limit, nodes)


@pytest.mark.control("time for which this host was suspended is not held against its peers")
def test_fifteen_seconds_mean_fifteen_to_eighteen() -> None:
    assert (heartbeat.interval(15.0), heartbeat.patience(15.0)) == (3.0, 18.0)
    assert (heartbeat.interval(15.0, 5000), heartbeat.patience(15.0, 5000)) == (9.0, 24.0)


@pytest.mark.promise("time for which this host was suspended is not held against its peers")
@pytest.mark.parametrize(
    ("due", "now", "heard"),
    [
        (105.0, 105.0, 100.0),  # in time: nothing is forgiven
        (105.0, 104.0, 100.0),  # woken for something else
        (105.0, 135.0, 130.0),  # frozen for thirty seconds: five of silence were ours to hear
        (90.0, 135.0, 135.0),  # heard since: never in the future
    ],
)
def test_the_time_that_we_stood_still_is_not_counted(due: float, now: float, heard: float) -> None:
    assert heartbeat.forgiven(100.0, due, now) == heard


@pytest.mark.parametrize(
    ("until", "said"),
    [
        (103.0, ""),  # when it meant to look
        (118.0, ""),  # suspended for as long as its peers wait
        (143.0, "EP603 worker-0 (a) was suspended for 40s, and its peers wait for 15s"),
    ],
)
def test_a_node_that_was_suspended_for_longer_than_its_peers_wait_says_so(
    until: float, said: str
) -> None:
    peers = Peers(15.0, TWO)
    assert peers.next_look(100.0) == 103.0
    peers.notice_own_gap(until)
    assert peers.stood_still(until) == said
    assert peers.stood_still(until + 15.0) == said
    assert peers.stood_still(until + 15.1) == "", "only just before"


def test_a_peer_is_lost_once_it_is_silent_for_longer_than_the_limit() -> None:
    """15 s mean 18 s, at which it is not lost yet."""
    peers = Peers(15.0, TWO)
    peers[1] = Peer(NodeReport(1, 1, ""), "10.0.0.1", 100.0)
    assert peers.look(118.0) == []
    assert peers.look(118.1) == [1]


@pytest.mark.parametrize(("nodes", "parts"), [(2, 1), (499, 1), (1200, 3)])
def test_each_worker_is_pinged_once_in_an_interval(nodes: int, parts: int) -> None:
    """From the first one on: until then its silence looks longer than it is."""
    hosts = ", ".join(f"n{rank}=10.0.{rank >> 8}.{rank & 255}" for rank in range(nodes))
    spec = load(
        f"hosts: [{hosts}]\nlauncher: plain\ncommand: [train]\nsecret_file: /none\n",
        "job.yaml",
        {"ENTRYPOINT_NODE_RANK": "0"},
        {},
    )
    leader = Leader(spec, facts(), settle(spec, facts()), History())
    for event in (events.Started(), events.KeysReady(), events.EndpointReady(NodeReport(0, 1, ""))):
        leader.handle(event, 100.0)
    for rank in range(1, nodes):
        leader.handle(events.Answered(rank, NodeReport(rank, 1, ""), "10.0.0.1"), 100.0)
    for begun in (100.0, 102.0):
        pinged: Counter[int] = Counter()
        times = set()
        while leader.wake <= begun + 2.001:
            for action in sent(
                leader.handle(events.TimerFired(), now := leader.wake), messages.Ping
            ):
                pinged[action.node] += 1
                times.add(now)
        assert pinged == Counter(range(1, nodes))
        assert len(times) == parts
