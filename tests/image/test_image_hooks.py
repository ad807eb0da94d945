"""Point 6: start hooks in /etc/entrypoint/start.d."""

from __future__ import annotations

from pathlib import Path
from shlex import split

import pytest

from tests.containers import logs
from tests.image.boxes import Pair, run, write

FOLDER = "/etc/entrypoint/start.d"
JOB = ("-e", "ENTRYPOINT_NAME=job")  # a job, and not only a program


def hook(folder: Path, name: str, script: str, mode: int = 0o755) -> None:
    write(folder / name, f"#!/bin/sh\n{script}\n", mode)


def test_hooks_run_in_order(image: str, folder: Path) -> None:
    """6.1 executables run by name, before the job, with its environment; others are named and
    skipped"""
    hook(folder, "20-second", 'echo "second $WHO in $(pwd)"')
    hook(folder, "10-first", "echo first")
    hook(folder, "15-text", "echo never", mode=0o644)
    (folder / "30-folder").mkdir()
    hook(folder, ".hidden", "echo never")
    mount = ("-v", f"{folder}:{FOLDER}:ro", "-e", "WHO=me")
    done = run(image, "echo", "the job", options=(*mount, *JOB))
    assert (done.status, done.out) == (0, "the job\n")  # stdout is the job's
    assert done.err.split("\n") == [
        "[entrypoint] start hook 10-first",
        "first",
        (
            "[entrypoint] EP442 start hook 15-text is skipped | not an executable file:"
            f" {FOLDER}/15-text | chmod +x it, or give its volume defaultMode: 0555"
        ),
        "[entrypoint] start hook 20-second",
        "second me in /home/ma-user",
        (
            "[entrypoint] EP442 start hook 30-folder is skipped | not an executable file:"
            f" {FOLDER}/30-folder | put files there alone"
        ),
        "",
    ]
    # A program alone is no job.
    done = run(image, "echo", "a program", options=mount)
    assert (done.out, done.err) == ("a program\n", "")


def test_a_failing_hook_stops_the_start(image: str, folder: Path) -> None:
    """6.2 a failing hook stops the start with its status"""
    hook(folder, "10-fails", "exit 9")
    hook(folder, "20-next", "echo never")
    options = ("-v", f"{folder}:{FOLDER}:ro", *JOB)
    done = run(image, "echo", "never", options=options)
    assert (done.status, done.out) == (9, "")
    assert "start hook 10-fails exited with 9; exit 9" in done.err
    assert "never" not in done.err
    (folder / "10-fails").unlink()  # the control
    assert run(image, "echo", "the job", options=options).out == "the job\n"


def test_hooks_that_cannot_run(image: str, folder: Path) -> None:
    """6.3 a hook that no program can run stops it with 126, one that is killed with 128 and the
    signal"""
    options = ("-v", f"{folder}:{FOLDER}:ro", *JOB)
    write(folder / "10-odd", "#!/nowhere/at/all\n", 0o755)
    done = run(image, "echo", "never", options=options)
    assert (done.status in (126, 127), done.out) == (True, ""), done
    hook(folder, "10-odd", "kill -9 $$")
    assert run(image, "echo", "never", options=options).status == 137


@pytest.mark.parametrize("failing", [0, 1])
def test_a_hook_that_fails_on_one_node_ends_all(image: str, folder: Path, failing: int) -> None:
    """6.5 a hook that fails on one node of many is every node's end, at once and with its name"""
    hook(folder, "10-fails", f"[ $(hostname) != worker-{failing} ] || exit 9")
    with Pair(image, ("-v", f"{folder}:{FOLDER}:ro")) as pair:
        pair.start_both("echo", "never")
        assert pair.ends() == [9, 9], pair.logs()
        for box in pair.boxes.values():
            assert logs(box).endswith(
                f"EP441 start hook 10-fails on worker-{failing} exited with 9; exit 9\n"
            ), pair.logs()
            assert "never" not in logs(box, stderr=False)


def test_every_node_runs_its_hooks(image: str, folder: Path) -> None:
    """6.4 on many nodes each runs its own, before its part of the job"""
    hook(folder, "10-mark", "echo $(hostname) >/tmp/mark")
    with Pair(image, ("-v", f"{folder}:{FOLDER}:ro")) as pair:
        pair.start_both("sh", "-c", "cat /tmp/mark")
        assert pair.ends() == [0, 0], pair.logs()
        out = logs(pair.boxes[0], stderr=False).split("\n")
        assert sorted(line for line in out if line) == split("worker-0 worker-0 worker-1 worker-1")
