"""Where a boot's time went, by real nodes: who was last, and that no time is lost."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from entrypoint.record.file import record_of
from entrypoint.record.merge import Timeline, merge
from entrypoint.record.status import load
from tests.cluster import Cluster, Make, until
from tests.command import captured

LATE = 15.0
PROGRAM = ("sh", "-c", "echo up; sleep 2")


def reported(job: Cluster, rank: int = 0) -> Timeline:
    recording = load(record_of(str(job.run_dir(rank)))).timeline
    assert recording
    return merge(recording)


def report(job: Cluster, *words: str) -> str:
    done = captured([sys.executable, "-m", "entrypoint", "report", str(job.run_dir(0)), *words])
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.promise(
    "a node's phases have no gap and add up; the late node is the last",
    control="the two that were in time, in the same test",
)
@pytest.mark.see("timeline", "a worker that is 15 s late: who was last, and the sum of the phases")
@pytest.mark.slow
def test_a_worker_that_is_late_is_the_last_and_the_phases_add_up(
    cluster: Make, record_property: Callable[[str, object], None]
) -> None:
    job = cluster(3, slots=1)
    started: dict[int, float] = {}

    def start(rank: int) -> None:
        started[rank] = time.monotonic()
        job.start(rank, *PROGRAM)

    start(0)
    start(1)
    until(lambda: time.monotonic() - started[0] >= LATE, LATE + 5, "the late one's time")
    start(2)
    assert job.ends() == {0: 0, 1: 0, 2: 0}, job.both()

    made = reported(job)
    assert made.last is not None
    assert made.last.name == "worker-2 (node-2)"
    text = report(job)
    walls = {rank: job.ended_at[rank] - started[rank] for rank in range(3)}
    # Of a worker: by its own file, which goes on until it leaves.
    sums = {
        rank: sum(each.seconds for each in reported(job, rank).bars[rank].phases)
        for rank in range(3)
    }
    rows = [f"{bar.name:18}{sums[bar.rank]:13.3f}{walls[bar.rank]:14.3f}" for bar in made.bars]
    least = min(sums[rank] / walls[rank] for rank in range(3))
    most = max(sums[rank] / walls[rank] for rank in range(3))
    record_property(
        "seen",
        f"{made.last.name} was last; phases add up to {least:.1%} to {most:.1%} of the wall time",
    )
    record_property("shown", "\n".join([text, "seconds  phases added     wall time", *rows]))
    assert re.search(
        r"^worker-2 \(node-2\) was last: .* started 1\d(\.\d)?s after the first\.$",
        text,
        re.MULTILINE,
    ), text
    assert made.last.phases[0].start == pytest.approx(started[2] - started[0], abs=3), (
        "its place, by another clock than this"
    )
    for bar in made.bars:
        assert sum(each.seconds for each in bar.phases) == pytest.approx(bar.seconds)
        # Their start and end here are looked at late on a busy machine; a phase that is missing is
        # longer.
        assert sums[bar.rank] == pytest.approx(walls[bar.rank], abs=3), (bar.name, text)
    assert max(bar.error for bar in made.bars) < 3


def test_all_phases_are_there_and_a_rank_s_first_output(cluster: Make) -> None:
    job = cluster(2, slots=1)
    job.start_all("sh", "-c", "sleep 0.5; echo up; sleep 0.5")
    assert job.ends() == {0: 0, 1: 0}, job.both()
    made = reported(job)
    expected = {
        "facts",
        "keys",
        "sshd",
        "roll call",
        "files",
        "launch",
        "first output",
        "run",
        "release",
    }
    for bar in made.bars:
        assert expected <= {each.name for each in bar.phases}, bar
        (waited,) = (each for each in bar.spans if each.name == "first output")
        assert waited.about == f"rank {bar.rank}"
        assert waited.seconds > 0.4
    assert {(each.name, each.about) for each in made.bars[0].spans} >= {
        ("DNS", "worker-1 (node-1)"),
        ("roll call", "worker-1 (node-1)"),
    }
    # A worker's own file has its own part alone.
    assert [bool(bar.phases) for bar in reported(job, rank=1).bars] == [False, True]

    report(job, "--html", str(job.folder / "page.html"), "--trace", str(job.folder / "trace.json"))
    assert (job.folder / "page.html").read_text().count('<section class="node') == 2
    assert json.loads((job.folder / "trace.json").read_text())["otherData"] == {"job": "job"}


@pytest.fixture
def busy() -> Iterator[None]:
    """A loop beside the test for each core, and one more."""
    loops = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"])
        for _ in range((os.cpu_count() or 1) + 1)
    ]
    yield
    for loop in loops:
        loop.kill()
        loop.wait()


@pytest.mark.promise("a worker leaves when worker-0 has read its goodbye, or 2 s after it")
def test_every_part_arrives_on_a_busy_machine(cluster: Make, busy: None) -> None:
    # 28 parts: where workers left at once, one of six was missing, busy or not.
    for _ in range(4):
        job = cluster(8, slots=1)
        job.start_all("echo", "up")
        assert set(job.ends().values()) == {0}, job.both()
        assert [bar.note for bar in reported(job).bars] == [""] * 8


@pytest.mark.promise(
    "a node that dies leaves its part out, and the report says so",
    control="the nodes that are there, in the same tests",
)
def test_a_node_that_is_killed_leaves_its_part_out(cluster: Make) -> None:
    job = cluster(2, slots=1)
    job.start_all("sh", "-c", "echo up; sleep 60", env={"ENTRYPOINT_TIMEOUTS_GRACE": "1"})
    until(lambda: job.out(0).count("up") == 2, 60, "the ranks")
    job.signal(1, 9)
    assert job.ends()[0] == 75, job.both()
    made = reported(job)
    assert [bool(bar.phases) for bar in made.bars] == [True, False]
    assert "worker-1 (node-1): its part did not arrive: " in report(job)
