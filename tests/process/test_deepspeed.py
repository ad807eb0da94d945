"""The program that runs DeepSpeed's launcher, here with a launcher of our own that does what
DeepSpeed's does."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from entrypoint.base.render import render
from tests.command import captured
from tests.waits import until

# As deepspeed/launcher/launch.py of 0.19.8, but for what it prints and for its options.
LAUNCH = """
import base64, json, os, signal, subprocess, sys, time
from argparse import REMAINDER, ArgumentParser


def terminate_process_tree(pid):
    raise AssertionError("it would have 30 s")


def main():
    parser = ArgumentParser()
    parser.add_argument("--world_info")
    parser.add_argument("--node_rank", type=int)
    parser.add_argument("command", nargs=REMAINDER)
    args = parser.parse_args()
    hosts = json.loads(base64.urlsafe_b64decode(args.world_info))
    processes = []
    for rank in hosts[list(hosts)[args.node_rank]]:
        processes.append(subprocess.Popen(args.command, env={**os.environ, "RANK": str(rank)}))
    last_return_code = None

    def sigkill_handler(signum, frame):
        for process in processes:
            terminate_process_tree(process.pid)
        if last_return_code is not None:
            sys.exit(last_return_code)
        sys.exit(1)

    signal.signal(signal.SIGINT, sigkill_handler)
    signal.signal(signal.SIGTERM, sigkill_handler)
    alive = set(processes)
    while alive:
        for process in list(alive):
            if process.poll() is None:
                continue
            alive.remove(process)
            if process.returncode:
                last_return_code = process.returncode
                sigkill_handler(signal.SIGTERM, None)
        time.sleep(0.05)
"""


def start(folder: Path, program: str) -> subprocess.Popen[bytes]:
    package = folder / "deepspeed/launcher"
    package.mkdir(parents=True)
    (package / "launch.py").write_text(LAUNCH)
    # As rank.sh does, without what tells the entrypoint.
    (folder / "rank.sh").write_text('echo "$RANK $*" >>started\nexec "$@"\n')
    (folder / "deepspeed_launch.py").write_text(render("deepspeed/deepspeed_launch.py", {}))
    line = [
        sys.executable, "deepspeed_launch.py", '{"a": 1, "b": 2}', "--node_rank=1", "sh", "-c",
        program,
    ]  # fmt: skip
    with (folder / "out").open("wb") as out:
        return subprocess.Popen(line, cwd=folder, stdout=out, stderr=out, start_new_session=True)


def heeds(pid: int, signum: int) -> bool:
    """Whether the process has a handler for this signal."""
    found = re.search(r"SigCgt:\s*(\w+)", Path(f"/proc/{pid}/status").read_text())
    return bool(found and int(found[1], 16) >> (signum - 1) & 1)


@pytest.mark.parametrize(("failure", "status"), [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137)])
def test_the_status_is_that_of_the_process_that_failed(
    tmp_path: Path, failure: str, status: int
) -> None:
    # Not before the other is up, since the launcher waits for nobody after a failure.
    both_are_up = "until grep -q ^0 started; do sleep 0.02; done"
    process = start(tmp_path, f'[ "$RANK" = 0 ] || {{ {both_are_up}; {failure}; }}')
    assert (process.wait(), (tmp_path / "out").read_text()) == (status, "")
    assert sorted(line[0] for line in (tmp_path / "started").read_text().splitlines()) == ["0", "1"]


def test_after_a_failure_it_leaves_at_once_and_its_other_processes_to_the_entrypoint(
    tmp_path: Path,
) -> None:
    fails = "{ until [ -s other ]; do sleep 0.02; done; exit 7; }"
    process = start(tmp_path, f'[ "$RANK" = 0 ] || {fails}; echo $$ >other; exec sleep 600')
    try:
        assert process.wait() == 7
        os.kill(int((tmp_path / "other").read_text()), 0)  # it is there
    finally:
        os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.promise(
    "DeepSpeed's launcher keeps a signal's status and leaves ranks the whole grace",
    control="the launcher's own `terminate_process_tree` in that file, which fails",
)
def test_told_to_stop_it_waits_for_all_as_long_as_they_take(tmp_path: Path) -> None:
    saves = (
        "trap 'sleep $((RANK + 1)); echo saved; exit 0' TERM; echo up; while :; do sleep 0.05; done"
    )
    process = start(tmp_path, f"exec 1>>said; {saves}")
    said = tmp_path / "said"
    until(lambda: said.exists() and said.read_text().count("up") == 2, "both are up")
    until(lambda: heeds(process.pid, signal.SIGTERM), "the launcher, which is later than they are")
    os.killpg(process.pid, signal.SIGTERM)  # as the entrypoint does: to all at once
    assert process.wait() == 143
    assert said.read_text().count("saved") == 2, (tmp_path / "out").read_text()


def test_a_message_of_the_launcher_is_shown(tmp_path: Path) -> None:
    process = start(tmp_path, "true")
    process.wait()
    launch = tmp_path / "deepspeed/launcher/launch.py"
    launch.write_text(
        LAUNCH.replace("    args = parser.parse_args()\n", "    sys.exit('no such card')\n")
    )
    line = [sys.executable, "deepspeed_launch.py", "{}"]
    done = captured(line, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (1, "no such card\n")
