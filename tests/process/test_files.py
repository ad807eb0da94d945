"""The run directory and the files that people name, where another process has a hand in it."""

from __future__ import annotations

import inspect
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from entrypoint.system.files import RunDir, read
from tests.process.bench import Process
from tests.rundirs import held, refusal

HOLDER = """\
import os, sys
from entrypoint.system.files import RunDir, make_folders
run_dir = RunDir(sys.argv[1])
run_dir.write("left", "behind", 0o600)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.mark.promise("the run directory is ours, private from its first byte, and of one job")
def test_what_a_killed_holder_left_is_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "run"
    with Process(
        [sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout.readline() == b"held\n"
        assert "EP414 another entrypoint uses" in refusal(path)
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    with held(path) as run_dir:
        run_dir.write("left", "new", 0o600)
    assert not path.exists()


def test_a_program_does_not_inherit_the_lock(tmp_path: Path) -> None:
    """A child that outlives us must not keep the directory."""
    with held(tmp_path / "run"):
        child = subprocess.Popen(["cat"], stdin=subprocess.PIPE, close_fds=False)
    with child:
        RunDir(str(tmp_path / "run")).close()
        assert child.poll() is None
        child.communicate()


def test_a_tree_too_deep_to_remove_does_not_stop_the_end(tmp_path: Path) -> None:
    """Too deep for a lower limit: what an interrupted test leaves must not stop pytest's own
    clean-up."""
    run_dir = RunDir(str(tmp_path / "run"))
    (run_dir.path / "/".join("d" * 200)).mkdir(parents=True)
    run_dir.write("secret", "s", 0o600)
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + 100)
    try:
        run_dir.close()
    finally:
        sys.setrecursionlimit(limit)
    assert (run_dir.path / "d").exists()
    assert not (run_dir.path / "secret").exists()


KILLED_AT = """
import os, signal, sys
from entrypoint.system.files import RunDir
run_dir = RunDir(sys.argv[1])
for name in ("a", "k", "z"):  # before, around and after the lock, however they are ordered
    run_dir.write(name, "secret", 0o600)
(run_dir.path / "tmp/folder").mkdir()
(run_dir.path / "tmp/folder/b").write_text("secret")
left = int(sys.argv[2])
def counted(event, _):
    global left
    if event in ("os.remove", "os.rmdir"):
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(counted)
run_dir.close()
"""


def test_a_run_that_is_killed_while_it_tidies_up_is_known_for_ours(tmp_path: Path) -> None:
    for removals in range(20):
        words = [sys.executable, "-c", KILLED_AT, str(tmp_path / "run"), str(removals)]
        status = subprocess.run(words, check=False).returncode
        with held(tmp_path / "run"):
            pass
        assert not (tmp_path / "run").exists()
        if status == 0:  # it was not killed: there is no more to remove
            break
        assert status == -signal.SIGKILL
    assert 7 <= removals < 20  # four files, two folders, the lock, the directory


def test_a_file_and_a_pipe_are_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 100_000)
    assert read(str(tmp_path / "file")) == b"x" * 100_000
    assert read("/dev/null") == b""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    writer = threading.Thread(target=lambda: fifo.write_bytes(b"x" * 100_000), daemon=True)
    writer.start()
    assert read(str(fifo)) == b"x" * 100_000
    writer.join()
