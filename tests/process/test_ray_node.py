"""ray_node.py, here with a Ray of our own: what it makes of Ray's ends, the program's, and a
stop."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from entrypoint.base.render import render
from tests.cluster import free_port
from tests.process.bench import Process
from tests.waits import until

# Listens as Ray's head does, or stays as a worker's Ray; ends by itself where a file says so.
SCRIPTS = """
import os, pathlib, signal, socket, sys, time
folder = pathlib.Path(os.environ["FOLDER"])
(folder / f"started.{os.getpid()}").write_text(" ".join(sys.argv[1:]))
signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
if "--head" in sys.argv:
    port = next(int(word[7:]) for word in sys.argv if word.startswith("--port="))
    listener = socket.create_server(("127.0.0.1", port))
print("my last words", flush=True)
while not (folder / "crash").exists():
    time.sleep(0.02)
sys.exit(9)
"""
RAY = """
import os, pathlib
folder = pathlib.Path(os.environ["FOLDER"])
def is_initialized():
    return False
def init(**given):
    print("noise of Ray's")
def nodes():
    return [{"Alive": True}] * int((folder / "nodes").read_text())
"""


class Bed:
    """A folder with such a Ray, and the node's script."""

    def __init__(self, folder: Path, version: str = "2.60.0") -> None:
        self.folder, self.port = folder, free_port()
        (folder / "ray/scripts").mkdir(parents=True)
        for package in ("ray/scripts/__init__.py", "ray/__init__.py"):
            (folder / package).write_text(RAY if package == "ray/__init__.py" else "")
        (folder / "ray/scripts/scripts.py").write_text(SCRIPTS)
        (folder / f"ray-{version}.dist-info").mkdir()
        (folder / f"ray-{version}.dist-info/METADATA").write_text(
            f"Name: ray\nVersion: {version}\n"
        )
        (folder / "nodes").write_text("2")
        run_dir = folder / "run"
        run_dir.mkdir()
        (run_dir / "ray_node.py").write_text(render("ray/ray_node.py", {}))
        self.made: list[Process[str]] = []

    def start(self, head: bool, *program: str, seconds: int = 20, **env: str) -> Process[str]:
        address = f"127.0.0.1:{self.port}"
        options = ("--head", f"--port={self.port}") if head else (f"--address={address}",)
        words = (
            str(self.folder / "run/ray_node.py"), "2", str(seconds), address, "127.0.0.1", *options,
            "--", *program,
        )  # fmt: skip
        process = Process(
            [sys.executable, *words],
            env={**os.environ, "PYTHONPATH": str(self.folder), "FOLDER": str(self.folder), **env},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        self.made.append(process)
        return process

    def ended(self, process: Process[str]) -> tuple[int, str, str]:
        out, err = process.communicate()
        return process.returncode, out, err

    def rays(self) -> list[int]:
        """The processes of its Ray."""
        found = [int(path.name.partition(".")[2]) for path in self.folder.glob("started.*")]
        return [pid for pid in found if Path(f"/proc/{pid}/stat").exists()]

    def close(self) -> None:
        for process in self.made:
            # it may have left its program, which the entrypoint would end
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        for pid in self.rays():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for process in self.made:
            process.communicate()


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Bed]:
    made = Bed(tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("program", "status", "says"),
    [
        (("sh", "-c", "echo out; exit 0"), 0, "out\n"),
        (("sh", "-c", "echo out; exit 7"), 7, "out\n"),
        (("sh", "-c", "echo out; kill -9 $$"), 137, "out\n"),
        (("no-such-program",), 127, "the program cannot be started | no-such-program: "),
        (("/",), 126, "ray_node.py: the program cannot be started | /: "),
    ],
)
def test_the_program_s_status_is_this_one_s(
    bed: Bed, program: tuple[str, ...], status: int, says: str
) -> None:
    ended, out, err = bed.ended(bed.start(True, *program))
    assert ended == status
    assert says in (err if out == "" else out)


def test_the_program_starts_when_all_have_joined(bed: Bed) -> None:
    (bed.folder / "nodes").write_text("1")
    process = bed.start(True, "sh", "-c", 'echo "begun $(cat $FOLDER/nodes)"')
    until(bed.rays, "Ray is up")
    assert process.poll() is None
    (bed.folder / "new").write_text("2")
    (bed.folder / "new").rename(bed.folder / "nodes")
    assert bed.ended(process)[:2] == (0, "begun 2\n")


def test_who_has_not_joined_in_time(bed: Bed) -> None:
    (bed.folder / "nodes").write_text("1")
    status, out, err = bed.ended(bed.start(True, "echo", "begun", seconds=1))
    assert (status, out) == (75, "")
    assert "1 of 2 nodes joined Ray within 1s | see the other nodes' logs" in err


@pytest.mark.control("with ray every node ends with the program's status and stops after it")
@pytest.mark.parametrize("head", [True, False])
def test_a_ray_that_ends_before_the_job(bed: Bed, head: bool) -> None:
    leader = bed.start(True, "sleep", "60")
    process = leader if head else bed.start(False, "sleep", "60")
    until(lambda: len(bed.rays()) == (1 if head else 2), "Ray is up")
    (bed.folder / "crash").touch()
    # If the program had begun, it is left to the entrypoint, and holds the output open.
    process.wait()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    status, _, err = bed.ended(process)
    assert status == 75
    assert "ray start | my last words\n" in err
    assert "EP612 Ray ended before the job | `ray start` exited with 9" in err


def test_a_head_that_never_answers(bed: Bed) -> None:
    status, _, err = bed.ended(bed.start(False, "true", seconds=1))
    assert status == 75
    assert (
        f"EP612 Ray's head did not answer within 1s | 127.0.0.1:{bed.port} | see worker-0's log"
        in err
    )
    assert bed.rays() == []


@pytest.mark.promise("with ray every node ends with the program's status and stops after it")
def test_at_a_stop_ray_stays_until_the_program_has_ended(bed: Bed) -> None:
    saves = "trap 'sleep 0.5; echo saved; exit 3' TERM; echo up; while :; do sleep 0.05; done"
    leader, worker = bed.start(True, "sh", "-c", saves), bed.start(False, "sh", "-c", saves)
    assert leader.stdout.readline() == "up\n"
    until(lambda: len(bed.rays()) == 2, "both are up")
    os.killpg(worker.pid, signal.SIGTERM)
    os.killpg(leader.pid, signal.SIGTERM)
    assert leader.stdout.readline() == "saved\n"
    assert worker.poll() is None
    assert len(bed.rays()) == 2  # their entrypoints end them
    assert leader.wait() == 3
    head = next(
        pid for pid in bed.rays() if "--head" in (bed.folder / f"started.{pid}").read_text()
    )
    os.kill(head, signal.SIGTERM)
    assert worker.wait() == 143


def test_a_user_s_signal_is_for_the_program(bed: Bed) -> None:
    leader = bed.start(
        True, "sh", "-c", "trap 'echo heard; exit 0' USR1; echo up; while :; do sleep 0.05; done"
    )
    assert leader.stdout.readline() == "up\n"
    os.killpg(leader.pid, signal.SIGUSR1)
    assert bed.ended(leader)[:2] == (0, "heard\n")


@pytest.mark.parametrize(("version", "warns"), [("2.51.2", True), ("2.52.0", False)])
def test_a_ray_without_tokens_is_named(tmp_path: Path, version: str, warns: bool) -> None:
    bed = Bed(tmp_path, version)
    try:
        status, out, err = bed.ended(
            bed.start(True, "sh", "-c", "echo ${#RAY_AUTH_TOKEN}", RAY_AUTH_MODE="token")
        )
    finally:
        bed.close()
    assert (status, out) == (0, "64\n")
    assert ("EP306 Ray is open to everybody who reaches its ports" in err) is warns
