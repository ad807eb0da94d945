"""What a node records of its boot, from made-up events and actions."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from entrypoint.job import actions, events, messages
from entrypoint.model import Device, Node, NodeReport, Topology
from entrypoint.phases import Phase, Span
from entrypoint.record.recorder import TimelineRecorder

HELLO = messages.Hello("1", (), 1, "plain", {}, 15.0, "a", "", "token")
FACTS = messages.NodeInfo(1, "", "1", 0.0, 1, None, None, ())
REPORT = NodeReport(1, 1, "1")
RELEASE = messages.Release(0, "", False, False)


def record(me: int, nodes: int = 2) -> TimelineRecorder:
    """Of a node whose entrypoint was started at 98, and whose hooks ended at 100."""
    hosts = tuple(Node(rank, f"node-{rank}", 1, index=rank) for rank in range(nodes))
    topology = Topology("job", hosts, me, "local", Device("cpu", 0, ""), "/run", "u")
    return TimelineRecorder(topology, [Span("facts", 98.0, 100.0)], 100.0)


def play(kept: TimelineRecorder, *steps: tuple[float, Any]) -> TimelineRecorder:
    """Show it what happens; a step is its time, and an event, an action, or what a rank does."""
    for now, what in steps:
        if isinstance(what, tuple):
            kept.rank(*what, now)
        elif type(what).__module__ == actions.__name__:
            kept.action(what, now)
        else:
            kept.event(what, now)
    return kept


def own(kept: TimelineRecorder, now: float) -> list[tuple[str, float]]:
    """Its own phases and their seconds; they have no gap."""
    phases = [each for each in (Span(*row) for row in kept.rows(now)) if not each.about]
    assert all(before.end == after.start for before, after in pairwise(phases))
    assert (phases[0].start, phases[-1].end) == (98.0, now)
    return [(each.name, each.seconds) for each in phases]


def enters(phase: Phase, node: int = 1) -> actions.Entered:
    return actions.Entered(node, phase)


def boot(me: int) -> tuple[tuple[float, Any], ...]:
    return (
        (101.0, events.Started()),
        (101.0, enters(Phase.KEYS, me)),
        (103.0, enters(Phase.ROLL_CALL, me)),
    )


WORKER = (
    *boot(1),
    (106.0, events.MessageReceived(0, HELLO)),
    (106.0, enters(Phase.FILES)),
    (107.0, actions.Answer(FACTS)),
    (107.0, enters(Phase.WAITING)),
    (111.0, events.MessageReceived(0, messages.Start(1))),
    (111.0, enters(Phase.LAUNCHING)),
    (112.0, ("start", "rank 0")),
    (112.0, enters(Phase.OUTPUT)),
    (114.0, ("output", "rank 0")),
    (114.0, enters(Phase.RUNNING)),
    (120.0, ("end", "rank 0")),
    (121.0, enters(Phase.ENDING)),
    (122.0, enters(Phase.STOPPED)),
    (124.0, events.MessageReceived(0, RELEASE)),
    (124.0, enters(Phase.RELEASED)),
)


@pytest.mark.promise("a node's phases have no gap and add up; the late node is the last")
def test_a_worker() -> None:
    kept = play(record(1), *WORKER)
    assert own(kept, 125.0) == [
        ("facts", 2), ("checks", 1), ("keys", 2), ("roll call", 3), ("files", 1), ("others", 4), ("launch", 1),
        ("first output", 2), ("run", 7), ("end", 1), ("release", 3),
    ]  # fmt: skip
    told = kept.told(125.0)
    assert (told.answered, told.started, told.released, told.told) == (107.0, 111.0, 124.0, 125.0)
    assert told.phases[-2:] == (
        ("first output", 112.0, 114.0, "rank 0"),
        ("run", 114.0, 120.0, "rank 0"),
    )


def test_a_leader_and_what_it_knows_of_others() -> None:
    part = messages.Phases((("run", 5.0, 6.0, ""),), 1.0, 2.0, 3.0, 4.0)
    kept = play(
        record(0, 3),
        *boot(0),
        (103.0, actions.Call(1)),
        (103.0, actions.Call(2)),
        (103.5, events.Unreachable(1, "no DNS")),
        (104.0, events.Unreachable(2, "refused", named=103.2)),
        (106.0, events.Answered(1, REPORT, named=105.5)),
        (107.0, enters(Phase.FILES, 0)),
        (108.0, enters(Phase.LAUNCHING, 0)),
        (108.0, actions.Send(1, messages.Start(1))),
        (109.0, events.SessionLost(2, "")),
        (110.0, actions.Send(1, RELEASE)),
        (110.0, enters(Phase.RELEASED, 0)),
        (111.0, events.MessageReceived(1, part)),
        (111.5, events.SessionLost(1, "")),
    )
    expected = [("keys", 2), ("roll call", 4), ("files", 1), ("launch", 2), ("release", 2)]
    assert own(kept, 112.0)[2:] == expected
    spans = [row for row in kept.rows(112.0) if row[3]]
    assert sorted(spans) == [
        ("DNS", 103.0, 103.2, "worker-2 (node-2)"), ("DNS", 103.0, 105.5, "worker-1 (node-1)"),
        ("roll call", 103.2, 112.0, "worker-2 (node-2)"),
        ("roll call", 105.5, 106.0, "worker-1 (node-1)"),
    ]  # fmt: skip
    one, two = kept.peers[1], kept.peers[2]
    expected = (part, 106.0, 108.0, 110.0, 111.0)
    assert (one.part, one.answered, one.started, one.released, one.told) == expected
    assert (two.part, two.answered, two.why) == (None, 0.0, "its session ended")


def test_a_program_that_prints_nothing_has_run() -> None:
    kept = play(record(1), *WORKER[:11], (120.0, enters(Phase.ENDING)))
    assert own(kept, 121.0)[-3:] == [("launch", 1), ("run", 8), ("end", 1)]


def test_what_comes_twice_changes_nothing() -> None:
    once, twice = play(record(1), *WORKER), record(1)
    start = events.MessageReceived(0, messages.Start(1))
    play(twice, *WORKER[:13], (114.5, ("output", "rank 0")), (114.6, start), *WORKER[13:])
    assert once.told(125.0).phases[:5] == twice.told(125.0).phases[:5]
    assert twice.told(125.0).started == 111.0


def test_a_leader_that_calls_again_and_a_rank_that_starts_again_have_an_end() -> None:
    kept = play(record(1), *boot(1))
    for number in range(20_000):
        now = 104.0 + number / 1000
        step = (
            events.MessageReceived(0, HELLO),
            enters(Phase.FILES),
            actions.Answer(FACTS),
            enters(Phase.WAITING),
            events.SessionLost(0),
            enters(Phase.ROLL_CALL),
        )
        play(
            kept,
            *((now, each) for each in step),
            (now, ("start", "rank 0")),
            (now, ("end", "rank 0")),
        )
    own(kept, 200.0)
    assert len(kept.told(200.0).phases) < messages.PHASES
    packed = {
        "phases": [("first output", 1e8 / 3, 1e8 / 3, "x" * messages.LABEL)] * messages.PHASES
    }
    assert len(repr(packed)) < 1024 * 1024, "the longest that a worker may say"


@pytest.mark.parametrize("attempts", [1, 2])
def test_an_attempt_before_the_last_is_one_phase(attempts: int) -> None:
    kept = play(record(1), *WORKER)
    if attempts == 2:
        play(kept, (130.0, events.Started()), (131.0, enters(Phase.KEYS)))
        assert own(kept, 132.0) == [("facts", 2), ("earlier attempts", 31), ("keys", 1)]
        assert (kept.told(132.0).started, kept.peers) == (0.0, {})
    else:
        assert "earlier attempts" not in dict(own(kept, 132.0))
