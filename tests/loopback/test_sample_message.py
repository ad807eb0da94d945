"""CONTRIBUTING.md's "Add a message", done as described: it is sent and received, between two nodes
and in the simulation."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.contributing import Copy, blocks, section
from tests.local import Make

SPEAKERS = """
from entrypoint.job.messages import Heat
from tests.unit import test_speakers as tests
tests.test_each_message_is_in_the_table()
for launcher in tests.REFUSED:
    tests.test_what_a_worker_may_say_of_a_running_job(launcher, Heat)
    tests.test_what_a_worker_may_say_before_the_start(launcher, Heat)
"""
SEED = "3"  # of a schedule whose programs start


@pytest.mark.promise(
    "a new message is a class, two rows and a call",
    control="the job before, in the same test",
)
def test_a_message_is_a_class_two_rows_and_a_call(tmp_path: Path, local: Make) -> None:
    copy = Copy(tmp_path, "simulation")

    def run() -> str:
        words = ("--nodes", "2", "--launcher", "plain", "--", "true")
        job = local(*words, cwd=copy.tree, PYTHONPATH=str(copy.tree))
        assert job.ends() == 0, job.err
        return job.err

    assert "(40, 95)" not in run()
    message, condition, receiver, send, simulated = blocks("Add a message")
    (sample,) = re.findall(r"`(messages\.Heat\(.*?)`", section("Add a message"))
    for path, text, before in (
        ("entrypoint/job/messages.py", f"{message}\n\n", "@dataclass(frozen=True)\nclass Failed:"),
        ("entrypoint/job/messages.py", condition, "    Limit: (STARTED"),
        ("entrypoint/job/leader.py", receiver, "    messages.Goodbye: "),
        ("entrypoint/ranks/runner.py", send, "        # Count all first: "),
        ("tests/unit/test_speakers.py", f"        {sample},\n", "        messages.Limit("),
        ("tests/unit/test_speakers.py", "    messages.Heat,\n", "    messages.Diagnosis,\n"),
        ("tests/simulation/programs.py", simulated, "        self.attempt = order."),
    ):
        copy.insert(path, text, before)
    copy.lint()
    done = copy.python("-c", SPEAKERS)
    assert done.returncode == 0, done.stderr
    done = copy.python("-m", "tests.simulation", "--seed", SEED)
    assert done.returncode == 0, done.stdout
    assert "node-0    MessageReceived(node=1, message=Heat(degrees=(40,)))" in done.stdout
    lines = run()
    for worker in ("worker-0", "worker-1"):
        assert f"[entrypoint worker-0] {worker}: (40, 95)\n" in lines
