"""A short simulation in each run; `make simulate` is the long one."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.simulation.__main__ import LARGE, found_in, schedule_of, timeline
from tests.simulation.defects import DEFECTS
from tests.simulation.invariants import check
from tests.simulation.named import NAMED
from tests.simulation.schedule import draw


@pytest.mark.promise("a worker leaves when worker-0 has read its goodbye, or 2 s after it")
@pytest.mark.promise("`entrypoint status` shows each node's phase from the first wait to the end")
@pytest.mark.promise("every schedule of failures ends in time, with one status and a grace period")
@settings(max_examples=300, suppress_health_check=list(HealthCheck))
@given(st.randoms(use_true_random=False))
def test_the_invariants_hold(random: Random) -> None:
    schedule = draw(random)
    world, wrong = check(schedule, keep_log=True)
    assert not wrong, "\n".join([*wrong, str(schedule), *timeline(world)][:300])


def test_they_hold_with_a_thousand_nodes() -> None:
    assert check(schedule_of(LARGE))[1] == []


@pytest.mark.promise("a node that is missing, hangs or sends nonsense is named; others have their table")
@pytest.mark.promise("a node of an elastic job counts once its launcher has met the others")
@pytest.mark.promise("an elastic job starts with the minimum, survives a lost node, admits a late one")
@pytest.mark.promise("a node is believed only about itself, its own ranks and its own programs")
@pytest.mark.parametrize("name", NAMED)
def test_what_was_found_outside(name: str) -> None:
    named = NAMED[name]
    world, wrong = check(named.schedule, keep_log=True)
    shown = "\n".join([*wrong, *timeline(world)])
    assert not wrong, shown
    ends = [None if each.killed else each.outcomes[-1] for each in world.containers]
    statuses = tuple(end[1].status if end else None for end in ends)
    assert statuses == named.statuses, shown
    assert max(end[0] for end in ends if end) < named.by, shown
    assert named.reason in next(end[1].reason for end in ends if end), shown
    killed = sum(fault.node == 0 for fault in named.schedule.of("kill", "reboot"))
    assert world.containers[0].boots == named.attempts + killed - (statuses[0] is None), shown


@pytest.mark.control("a worker leaves when worker-0 has read its goodbye, or 2 s after it")
@pytest.mark.control("a node that is missing, hangs or sends nonsense is named; others have their table")
@pytest.mark.control("`entrypoint status` shows each node's phase from the first wait to the end")
@pytest.mark.control("a stop between two attempts ends every node with 143")
@pytest.mark.control("a node that cannot write its files tells the others")
@pytest.mark.control("every schedule of failures ends in time, with one status and a grace period")
@pytest.mark.parametrize("defect", list(DEFECTS)[::7])  # `make simulate` plants them all
def test_a_planted_defect_is_found(defect: str) -> None:
    assert found_in(defect, 2000)[1] is not None


def test_a_seed_shows_the_same_timeline_again() -> None:
    first, again = (list(timeline(check(schedule_of(7), keep_log=True)[0])) for _ in range(2))
    assert first == again
    assert len(first) > 20
