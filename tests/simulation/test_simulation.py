"""A short simulation in each run; `scripts/test simulate` is the long one, also of 1,000 nodes."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.simulation.__main__ import LARGE, schedule_of, timeline
from tests.simulation.invariants import check
from tests.simulation.mutations import MUTATIONS, find
from tests.simulation.named import NAMED, differences
from tests.simulation.schedule import GRACE, MOVED, Fault, Schedule, draw


@pytest.mark.promise("a worker leaves when worker-0 has read its goodbye, or 2 s after it")
@pytest.mark.promise("`entrypoint status` shows each node's phase from the first wait to the end")
@pytest.mark.promise("every schedule of failures ends in time, with one status and a grace period")
@settings(max_examples=200, suppress_health_check=list(HealthCheck))
@given(st.randoms(use_true_random=False))
def test_the_invariants_hold(random: Random) -> None:
    schedule = draw(random)
    world, wrong = check(schedule, keep_log=True)
    assert not wrong, "\n".join([*wrong, str(schedule), *timeline(world)][:300])


@pytest.mark.promise(
    "a node that is missing, hangs or sends nonsense is named; others have their table"
)
@pytest.mark.promise("a node of an elastic job counts once its launcher has met the others")
@pytest.mark.promise(
    "an elastic job starts with the minimum, survives a lost node, admits a late one"
)
@pytest.mark.promise("a node is believed only about itself, its own ranks and its own programs")
@pytest.mark.promise("restarts are counted once for all nodes, and only retriable ends restart")
@pytest.mark.parametrize("name", NAMED)
def test_what_was_found_outside(name: str) -> None:
    world, wrong = differences(NAMED[name])
    assert not wrong, "\n".join([*wrong, *timeline(world)])


@pytest.mark.promise("ranks of two attempts never run at the same time")
@pytest.mark.parametrize("seconds", [0.01, 1.0, 12.0])
@pytest.mark.parametrize("kind", ["fixed", "spares", "elastic"])
def test_worker_0_is_killed_at_every_moment_and_comes_back(kind: str, seconds: float) -> None:
    """While the ranks of the others use most of their grace, or more than that."""
    for moment in range(40):
        least, spares = 2 * (kind == "elastic"), int(kind == "spares")
        schedule = Schedule(
            nodes=3, launcher=("torchrun", "mpirun")[moment % 2] if not least else "torchrun",
            least=least, spares=spares, restarts=2, starts=(0.0, 0.1, 0.2), duration=8.0,
            save=(GRACE - 1, GRACE - 1, GRACE + 5), join=0.5,
            faults=(Fault(0.35 * moment, ("kill", "reboot", MOVED)[moment % 3], 0, seconds),),
        )  # fmt: skip
        world, wrong = check(schedule, keep_log=True)
        assert not wrong, "\n".join([*wrong, str(schedule), *timeline(world)])


@pytest.mark.textual
@pytest.mark.parametrize("name", MUTATIONS)
def test_every_mutation_applies(name: str) -> None:
    assert not MUTATIONS[name].problem()


@pytest.mark.textual
@pytest.mark.control("a worker leaves when worker-0 has read its goodbye, or 2 s after it")
@pytest.mark.control(
    "a node that is missing, hangs or sends nonsense is named; others have their table"
)
@pytest.mark.control("`entrypoint status` shows each node's phase from the first wait to the end")
@pytest.mark.control("a stop between two attempts ends every node with 143")
@pytest.mark.control("a node that cannot write its files tells the others")
@pytest.mark.control("every schedule of failures ends in time, with one status and a grace period")
@pytest.mark.control("ranks of two attempts never run at the same time")
@pytest.mark.parametrize(
    "name",
    [
        "the leader ignores missing heartbeats",
        "a failure becomes status 0",
        "the leader ignores SIGTERM during a restart",
        "a lost node is not shown as lost",
        "a node that hangs delays a check forever",
        "a worker leaves before its goodbye has arrived",
        "a new leader does not learn that another one has led",
        "a call that finds nobody is taken for a sign that no rank runs",
    ],
)
def test_a_mutation_is_found(name: str) -> None:
    """`scripts/test simulate` tries all of them."""
    found, words = find(MUTATIONS[name])
    assert found, words


@pytest.mark.textual
@pytest.mark.parametrize("old", ["no such text", "self"])
def test_a_mutation_that_does_not_apply_is_an_error(old: str) -> None:
    changed = replace(MUTATIONS["restarts have no limit"], old=old)
    with pytest.raises(ValueError, match="'restarts have no limit' does not apply"):
        find(changed)


@pytest.mark.slow
@pytest.mark.timeout(600)  # all named schedules fail, which takes 20 s of CPU
@pytest.mark.textual
def test_a_mutation_that_breaks_the_code_is_not_found() -> None:
    broken = replace(MUTATIONS["restarts have no limit"], new="if no_such_name or not")
    found, words = find(broken, 20)
    assert not found
    assert "internal error: NameError" in words


def test_a_seed_shows_the_same_timeline_again() -> None:
    first, again = (list(timeline(check(schedule_of(7), keep_log=True)[0])) for _ in range(2))
    assert first == again
    assert len(first) > 20


def test_a_schedule_that_takes_too_long_is_a_violation() -> None:
    assert check(schedule_of(LARGE), most_seconds=0.05)[1] == ["it took more than 0.05 s of CPU"]
