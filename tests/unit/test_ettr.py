"""The time of a job by part: what a machine with its observer makes of it, and how it is shown."""

from __future__ import annotations

import re

import pytest

from entrypoint.base.cause import Saved
from entrypoint.base.errors import RetryError
from entrypoint.base.phases import Phase
from entrypoint.base.values import replace
from entrypoint.features.record import ettr
from entrypoint.features.record.content import TimeSpent
from entrypoint.features.record.page import page
from entrypoint.features.record.timeline import table
from entrypoint.job import actions, events, messages
from tests.made_up import timeline
from tests.unit.seen import STARTED, Seen, started

MOST = "restarts: {most: 2, on: any}"


def spent(seen: Seen) -> TimeSpent:
    found = seen.status().spent
    assert found is not None
    return found


def failed(saved: Saved | None, status: int = 7) -> Seen:
    """Worker-0 after an attempt whose rank 3 has failed 20 s after its start."""
    seen = started(more=MOST).step(STARTED).says(1, messages.RankStart(3, 77))
    seen.says(1, *[messages.Pong(0.0, 0)] * 20).says(1, messages.RankEnd(3, status, (), ""))
    while seen.machine.outcome is None:
        seen.step(events.TimerFired())
    seen.says(0, messages.Stopped()).says(1, messages.Stopped(saved))
    return seen.step(events.LaunchersGone()).says(1, messages.Goodbye())


def test_a_job_that_has_not_begun_waits() -> None:
    seen = Seen(0).open()
    seen.now += 30
    assert spent(seen).seconds["waiting"] == 30
    assert Seen(1).status().spent is None, "worker-0 knows it"


@pytest.mark.parametrize(
    ("saved", "lost"),
    [(None, 0), (Saved("", -8.0), 7), (Saved("", None), 22), (Saved("", -900.0), 22),
     (Saved("step_70", 2.0), 0)],
)  # fmt: skip
def test_what_was_not_saved_is_lost(saved: Saved | None, lost: float) -> None:
    seen = failed(saved)
    found = spent(seen)
    assert found.seconds["lost"] == pytest.approx(lost)
    assert found.seconds["detection"] == 1
    assert found.seconds["lost"] + found.seconds["training"] == 22
    assert found.whole == seen.now - 1000
    assert found.checkpoints == (saved is not None)
    assert (*found.causes, *found.nodes) == ("program", "worker-1 (b)")
    seen.observer.begin(seen.observer._plan, seen.now)
    seen.now += 5
    assert spent(seen).whole == seen.now - 1000
    assert spent(seen).causes["program"].seconds["restarting"] == 5


def test_a_stall_began_with_the_last_line() -> None:
    seen = started().step(STARTED).says(0, messages.Pong(9.0, 0)).says(1, messages.Pong(0.0, 0))
    seen.now += 80
    stalled = RetryError("EP610 the job stalled: no rank has printed").outcome
    for what in (actions.Entered(0, Phase.ENDING), actions.EndNode(stalled)):
        seen.observer.saw(what, seen.now)
    assert spent(seen).seconds["detection"] == 80
    assert [*spent(seen).causes] == ["stall"]


def test_the_report_and_its_page_show_the_parts() -> None:
    found = spent(failed(None))
    made = replace(timeline(), spent=found)
    text = table(made)
    assert f"\n{ettr.headline(found)}\n" in text
    assert re.search(r"(?m)^cause program: 1 ", text)
    assert "set restarts.progress" in text
    (job,) = re.findall(r"(?m)^job  .*$", text)
    *parts, whole = map(float, job.split()[1:])
    assert sum(parts) == pytest.approx(whole)
    widths = re.findall(r'width:([0-9.]+)%" title="([a-z]+): ', shown := page(made))
    named = [float(width) for width, name in widths if name in ettr.PARTS]
    assert sum(named) == pytest.approx(100, abs=0.01)
    assert "node worker-1 (b): 1" in shown
    for title in re.findall(r'title="(stopping: [^"]+)"', shown):
        assert f"</span>{title}</li>" in shown, "for who touches"
    assert "Effective" not in page(timeline())
