"""Where a boot's time went, by real nodes: who was last, and that no time is lost."""

from __future__ import annotations

import json
import re
import sys
import time
from shlex import split

import pytest

from entrypoint.features.record.file import record_of
from entrypoint.features.record.status import load
from entrypoint.features.record.timeline import Timeline, merge
from tests.cluster import Cluster, Make
from tests.command import captured
from tests.waits import until


def reported(job: Cluster, rank: int = 0) -> Timeline:
    return merge(load(record_of(str(job.run_dir(rank)))))


def report(job: Cluster, *words: str) -> str:
    done = captured([sys.executable, "-m", "entrypoint", "report", str(job.run_dir(0)), *words])
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.promise(
    "a node's phases have no gap and add up; the late node is the last",
    control="the node that was in time, in the same test",
)
def test_all_phases_are_there_and_the_late_node_was_last(cluster: Make) -> None:
    job = cluster(2, slots=1)
    program = ("sh", "-c", "sleep 0.5; echo up; sleep 0.5")
    job.start(0, *program)
    until(lambda: "waiting for 1 of 1 peers" in job.err(0), "who is waited for")
    job.start(1, *program)
    assert job.ends() == {0: 0, 1: 0}, job.both()
    made = reported(job)
    expected = {*split("facts keys sshd files launch run release"), "roll call", "first output"}
    for bar in made.bars:
        assert expected <= {each.name for each in bar.phases}, bar
        assert sum(each.seconds for each in bar.phases) == pytest.approx(bar.seconds)
        (waited,) = (each for each in bar.spans if each.name == "first output")
        assert waited.about == f"rank {bar.rank}"
        assert waited.seconds > 0.4
    assert {(each.name, each.about) for each in made.bars[0].spans} >= {
        ("DNS", "worker-1 (node-1)"),
        ("roll call", "worker-1 (node-1)"),
    }
    first, second = (bar.phases[0].start for bar in made.bars)
    assert first < second
    assert made.last is not None
    assert made.last.name == "worker-1 (node-1)"
    # A machine that is busy takes more than a second for the login, which is the reason then.
    why = r"(started .* after the first|worker-0 reached it .* after its sshd listened.*)"
    assert re.search(rf"(?m)^worker-1 \(node-1\) was last: .* {why}\.$", report(job))
    # A worker's own file has its own part alone.
    assert [bool(bar.phases) for bar in reported(job, rank=1).bars] == [False, True]

    report(job, "--html", str(job.folder / "page.html"), "--trace", str(job.folder / "trace.json"))
    assert (job.folder / "page.html").read_text().count('<section class="node') == 2
    assert json.loads((job.folder / "trace.json").read_text())["otherData"] == {"job": "job"}


@pytest.mark.promise(
    "a node that dies leaves its part out, and the report says so",
    control="the nodes that are there, in the same tests",
)
def test_a_node_that_is_killed_leaves_its_part_out(cluster: Make) -> None:
    job = cluster(2, slots=1)
    job.start_all("sh", "-c", "echo up; sleep 600", env={"ENTRYPOINT_TIMEOUTS_GRACE": "1"})
    until(lambda: job.out(0).count("up") == 2, "the ranks")
    job.signal(1, 9)
    assert job.ends()[0] == 75, job.both()
    made = reported(job)
    assert [bool(bar.phases) for bar in made.bars] == [True, False]
    assert "worker-1 (node-1): its part did not arrive: " in report(job)


# Trains until it is killed, with a checkpoint after 3 s; the next attempt ends soon.
TRAINS = """
[ -e "$OUT/step_1" ] && exec sleep 1
sleep 3
[ $NODE = 0 ] && echo 1 >"$OUT/step_1"
exec sleep 600
"""


@pytest.mark.promise("the parts of a job's time add up, over all its attempts")
def test_the_time_of_a_job_whose_worker_is_killed_adds_up(cluster: Make) -> None:
    job = cluster(2, slots=1)
    out = job.folder / "out"
    out.mkdir()
    env = {"ENTRYPOINT_RESTARTS": "1", "ENTRYPOINT_RESTARTS_PROGRESS": str(out), "OUT": str(out)}
    env |= {"ENTRYPOINT_TIMEOUTS_GRACE": "1"}
    began = time.monotonic()
    job.start_all("sh", "-c", TRAINS, env=env)
    until((out / "step_1").exists, "a checkpoint")
    saved = time.monotonic()
    time.sleep(4.0)  # what is trained in this time is lost
    job.signal(1, 9)
    killed = time.monotonic()
    job.processes[1].wait()
    until(lambda: "starting again" in job.err(0), "the next attempt")
    called = time.monotonic()
    job.start(1, "sh", "-c", TRAINS, env=env)
    assert job.ends() == {0: 0, 1: 0}, job.both()
    spent = reported(job).spent
    assert spent is not None
    parts = spent.seconds
    assert called - saved + 1 < sum(parts.values()) < time.monotonic() - began + 0.1
    assert killed - saved - 0.3 < parts["lost"] < called - began, parts
    assert parts["training"] > 3.5
    assert all(seconds > 0 for name, seconds in parts.items() if name != "detection"), parts
    assert spent.checkpoints
    assert [(name, cost.count) for name, cost in spent.causes.items()] == [("node-lost", 1)]
    assert [*spent.nodes] == ["worker-1 (node-1)"]
    assert "Effective training time: " in report(job)
