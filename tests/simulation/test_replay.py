"""The time of jobs by part, beside what is known of them; replay.py prints both."""

from __future__ import annotations

import pytest

from entrypoint.features.record.ettr import AttemptTimes, account
from tests.simulation.replay import JOBS, error, replay


@pytest.mark.promise("the report's times of 50 jobs with known faults are exact to 1 %")
@pytest.mark.parametrize("jobs", [10, pytest.param(JOBS, marks=pytest.mark.slow)])
def test_the_report_is_what_has_happened(jobs: int) -> None:
    faults = 0
    for seed in range(jobs):
        truth, spent = replay(seed)
        assert error(truth, spent) <= 0.01, (truth.schedule, truth.seconds, spent)
        assert spent.whole == pytest.approx(truth.containers[0].outcomes[-1][0], abs=0.01)
        assert {name: each.count for name, each in spent.causes.items()} == truth.why
        assert {name: each.count for name, each in spent.nodes.items()} == truth.where
        faults += sum(truth.why.values())
    assert faults > jobs


@pytest.mark.control("the report's times of 50 jobs with known faults are exact to 1 %")
@pytest.mark.control("the parts of a job's time add up, over all its attempts")
@pytest.mark.parametrize("seed", [0, 9])
def test_a_part_that_is_forgotten_is_an_error(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    truth, spent = replay(seed)
    attempts = truth.containers[0].observer._ledger.attempts
    now = truth.containers[0].outcomes[-1][0]
    assert account(attempts, now) == spent
    rest = account(attempts[1:], now)
    assert error(truth, rest) > 0.01
    assert rest.whole < 0.9 * now
    monkeypatch.setattr(AttemptTimes, "_saved", lambda attempt, unknown: unknown)
    assert error(truth, account(attempts, now)) > 0.01
