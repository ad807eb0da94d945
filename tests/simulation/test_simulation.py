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


@settings(max_examples=300, suppress_health_check=list(HealthCheck))
@given(st.randoms(use_true_random=False))
def test_the_invariants_hold(random: Random) -> None:
    schedule = draw(random)
    world, wrong = check(schedule, keep_log=True)
    assert not wrong, "\n".join([*wrong, str(schedule), *timeline(world)][:300])


def test_they_hold_with_a_thousand_nodes() -> None:
    assert check(schedule_of(LARGE))[1] == []


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


@pytest.mark.parametrize("defect", list(DEFECTS)[::7])  # `make simulate` plants them all
def test_a_planted_defect_is_found(defect: str) -> None:
    assert found_in(defect, 2000)[1] is not None


def test_a_seed_shows_the_same_timeline_again() -> None:
    first, again = (list(timeline(check(schedule_of(7), keep_log=True)[0])) for _ in range(2))
    assert first == again
    assert len(first) > 20
