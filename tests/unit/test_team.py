"""Which nodes of a job with spares work, attempt after attempt."""

from __future__ import annotations

import pytest

from entrypoint.base.cause import Cause
from entrypoint.base.errors import HostError
from entrypoint.base.model import Device, Members, Node, NodeReport, Outcome, Topology
from entrypoint.base.values import replace
from entrypoint.job.membership.team import Team
from entrypoint.plan.members import is_team, team_of, working

JOB = Topology(
    job="job", nodes=tuple(Node(rank, f"h{rank}", 1, index=rank) for rank in range(5)), me=0,
    platform="local", device=Device("cpu", 0, "none"), run_dir="/run", user="root", spares=2,
)  # fmt: skip
ALL = frozenset(range(5))
ECC = Cause("gpu-ecc", "root", "device", "elsewhere", "high", "ECC", node="worker-1 (h1)")


def failed(cause: Cause | None) -> Outcome:
    return Outcome(7, "EP600 rank 1 exited with 7", program=True, cause=cause)


def test_a_lost_node_is_replaced_at_once_and_comes_back_as_a_spare() -> None:
    team = Team.planned(JOB).lose(1, "lost").choose(JOB, ALL - {1}, {})
    assert (team.nodes, team.replaced) == ((0, 3, 2), ((1, 3),))
    assert [entry.node for entry in team.excluded(JOB)] == ["worker-1"]
    assert team.choose(JOB, ALL, {}).nodes == (0, 3, 2), "it works again only if it must"
    back = Team.planned(JOB).lose(1, "lost").lose(2, "lost").choose(JOB, {0, 1, 2}, {})
    assert back.nodes == (0, 1, 2), "nodes that work again have their own places"
    again = team.lose(3, "lost").lose(2, "lost").choose(JOB, {0, 1, 4}, {})
    assert again.nodes == (0, 1, 4)
    assert [entry.node for entry in again.excluded(JOB)] == ["worker-2", "worker-3"]


def test_a_node_that_was_lost_while_the_attempt_ended_is_replaced_too() -> None:
    team = Team.planned(JOB).lose(1, "lost first")
    then = team.without({1: "lost again", 2: "lost then", 4: "a lost spare"}, {0, 3})
    assert then.reasons == {1: "lost first", 2: "lost then"}
    assert then.expected == {0, 3}


@pytest.mark.parametrize(
    "cause",
    [
        None,
        replace(ECC, retry="same"),
        replace(ECC, certainty="low"),
        replace(ECC, node=""),
        replace(ECC, node="worker-0 (h0)"),  # the others are called from there
    ],
)
def test_only_a_certain_cause_counts_against_a_node(cause: Cause | None) -> None:
    team = Team.planned(JOB)
    for _ in range(4):
        team = team.blame(JOB, failed(cause))
    assert team == Team.planned(JOB)


def test_a_node_that_is_to_blame_twice_never_works_again() -> None:
    once = Team.planned(JOB).blame(JOB, failed(ECC))
    assert once.choose(JOB, ALL, {}).nodes == (0, 1, 2)
    twice = once.blame(JOB, failed(ECC))
    assert twice.choose(JOB, ALL, {}).nodes == (0, 3, 2)
    with pytest.raises(HostError) as error:
        twice.choose(JOB, {0, 1, 2}, {})
    assert (
        str(error.value) == "EP622 only 2 nodes of the 3 that are needed can work | worker-1 (h1):"
        " EP600 rank 1 exited with 7 | start the job on other nodes, or give it more spares"
    )


def test_a_loss_bars_no_node() -> None:
    """A job with spares goes on wherever the same job without them would."""
    team = Team.planned(JOB)
    for _ in range(3):
        team = team.lose(1, "lost").choose(JOB, {0, 1, 2}, {})
        assert team.nodes == (0, 1, 2)
    once = team.blame(JOB, failed(ECC))
    assert once.can_work(1)
    assert not once.blame(JOB, failed(ECC)).can_work(1)


def test_of_those_that_were_replaced_the_last_one_comes_last() -> None:
    team = Team.planned(JOB).lose(2, "lost").choose(JOB, {0, 1, 3}, {})
    assert team.lose(1, "lost").choose(JOB, {0, 1, 2, 3}, {}).nodes == (0, 2, 3)


def test_a_node_that_cannot_work_is_replaced_with_its_reason() -> None:
    team = Team.planned(JOB).choose(JOB, {0, 1, 4}, {2: "a full disk"})
    assert (team.nodes, dict(team.reasons)) == ((0, 1, 4), {2: "a full disk"})
    team = Team.planned(JOB).choose(JOB, ALL - {2}, {})
    assert dict(team.reasons) == {2: "it did not answer the roll call in time"}


def test_enough_means_the_leader_and_all_other_places() -> None:
    team = Team.planned(JOB)
    assert team.is_enough({0, 3, 4})
    assert not team.is_enough({0, 4})
    assert not team.is_enough({1, 2, 3, 4})


def test_later_attempts_wait_for_those_that_were_there() -> None:
    team = Team.planned(JOB)
    assert team.awaits(JOB, {0, 1, 2, 3}, {0, 1, 2, 3})
    assert not team.awaits(JOB, ALL, ALL)
    later = replace(team, expected=frozenset({0, 2, 3}))
    assert not later.awaits(JOB, {0, 2, 3}, {0, 2, 3})
    assert later.awaits(JOB, {0, 1, 2}, {0, 1, 2})


def test_a_node_that_was_replaced_works_only_if_no_other_may_come() -> None:
    lost = replace(Team.planned(JOB).lose(1, "lost"), expected=frozenset({0, 2}))
    assert lost.awaits(JOB, {0, 1, 2}, {0, 1, 2}), "a spare may come back, too"
    assert not lost.awaits(JOB, {0, 2, 3}, {0, 2, 3})
    both = lost.lose(3, "lost").lose(4, "lost")
    assert not both.awaits(JOB, {0, 1, 2}, {0, 1, 2}), "no other is better"


@pytest.mark.parametrize(
    ("replaced", "expected"),
    [
        ((), (0, 1, 2)),
        (((1, 4),), (0, 4, 2)),
        (((1, 2), (2, 1)), (0, 2, 1)),
        (((0, 4),), None),  # the leader's place
        (((1, 0),), None),
        (((3, 4),), None),  # no such place
        (((1, 5),), None),  # no such node
        (((1, 2),), None),  # a node with two places
    ],
)
def test_a_team_that_the_job_can_have(
    replaced: tuple[tuple[int, int], ...], expected: tuple[int, ...] | None
) -> None:
    assert is_team(JOB, replaced) == (expected is not None)
    if expected:
        assert team_of(JOB, replaced) == expected
    without = replace(JOB, spares=0)
    assert is_team(without, replaced) == (not replaced), "a job without spares has one team"
    if replaced:
        with pytest.raises(ValueError, match="this job has no spares"):
            team_of(without, replaced)


def test_the_launcher_sees_the_team_alone_counted_anew() -> None:
    members = Members(tuple(NodeReport(rank, rank + 1, "") for rank in range(5)))
    places = working(replace(JOB, me=4), members, ((1, 4),))
    assert places.hosts == ("h0", "h4", "h2")
    assert [node.label for node in places.nodes] == ["worker-0", "worker-1", "worker-2"]
    assert (places.me, places.spares, places.world_size) == (1, 0, 9)
    assert [report.slots for report in places.members.reports] == [1, 5, 3]
    spare = working(replace(JOB, me=4), members)
    assert (spare.hosts, spare.me) == (("h0", "h1", "h4"), 2), "it plans as one of them"


@pytest.mark.promise("a node whose rank hangs twice is replaced by a spare")
def test_a_node_is_replaced_after_its_second_fault_of_any_kind() -> None:
    once = Team.planned(JOB).fault(1, "EP610 the job stalled")
    assert once.choose(JOB, ALL, {}).nodes == (0, 1, 2)
    assert once.blame(JOB, failed(ECC)).choose(JOB, ALL, {}).nodes == (0, 3, 2)
    twice = once.fault(1, "EP610 the job stalled").choose(JOB, ALL, {})
    assert [entry.why for entry in twice.excluded(JOB)] == ["EP610 the job stalled"]
