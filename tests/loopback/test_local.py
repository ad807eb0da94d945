"""`entrypoint local`: real nodes of one command, what each fault switch does to them, and that
nothing stays."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from shlex import split

import pytest

from tests.cluster import clean_environment
from tests.command import captured
from tests.local import Make
from tests.waits import PATIENCE, until

pytestmark = pytest.mark.see

UP = "trap 'echo saved $HOSTNAME; exit 0' TERM; echo up $HOSTNAME; while :; do sleep 0.1; done"
PLAIN = ("--launcher", "plain", "--timeout", "30", "--env", "X=1")


def test_a_spec_is_run_as_it_is_but_for_its_hosts(local: Make) -> None:
    """Hosts that nobody knows, a secret that is not there, another's ports and interface: all are
    settled here."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(
            "hosts: [gpu-17:1, gpu-18:3]\nslots: 2\nlauncher: mpirun\nsecret_file:"
            " /nowhere/secret\nnetwork: {interface: ib7}\nssh: {port: 22}\ncommand: [sh, -c, 'echo"
            " rank $OMPI_COMM_WORLD_RANK on $HOSTNAME, $(stat -c %a $ENTRYPOINT_RUN_DIR/../secret)']\n"
        )
        file.flush()
        job = local(
            "--spec", file.name, MY_TASK_INDEX="7", ENTRYPOINT_SECRET="short", VC_TASK_INDEX="3"
        )
        assert job.ends() == 0
    assert sorted(job.out.splitlines()) == [
        "rank 0 on worker-0, 600",
        *(f"rank {rank} on worker-1, 600" for rank in (1, 2, 3)),
    ]


@pytest.mark.promise("`entrypoint local` runs nodes, makes faults and leaves nothing behind")
def test_a_node_that_is_killed(local: Make) -> None:
    job = local("--nodes", "3", *PLAIN, "--kill", "worker-1@12s", "--", "sh", "-c", UP)
    assert job.ends() == 75
    assert re.search(
        r"local\] 12s after the start: SIGKILL to worker-1, \d+ processes \(--kill worker-1@12s\)",
        job.err,
    )
    assert "worker-0] EP602 worker-1 is lost" in job.err
    ended = "worker-0 75, worker-1 137 (--kill worker-1@12s), worker-2 75; this ends with worker-0's, 75"
    assert f"the nodes ended differently: {ended}" in job.err
    assert sorted(job.out.splitlines()[3:]) == ["saved worker-0", "saved worker-2"]


def test_a_killed_node_that_comes_back_joins_the_next_attempt(local: Make) -> None:
    """A rehearsal of `restarts`: as a platform replaces a lost node."""
    program = "echo up; [ $ENTRYPOINT_ATTEMPT = 2 ] || exec sleep 600"
    fault = ("--kill", "worker-1@12s+1s")
    job = local("--nodes", "2", *PLAIN, "--restarts", "1", *fault, "--", "sh", "-c", program)
    assert job.ends() == 0, job.err
    assert re.search(
        r"12s after the start: SIGKILL to worker-1, .*; it starts again at 13s", job.err
    )
    assert "13s after the start: starting worker-1 again (--kill worker-1@12s+1s)" in job.err
    assert "attempt 1 of 2 is over" in job.err
    assert "all 2 nodes ended with 0" in job.err
    assert job.out.count("up") == 4


def test_a_job_that_ends_without_its_late_node(local: Make) -> None:
    job = local(*split("--nodes 2 --launcher plain --timeout 1 --late worker-1@5m -- true"))
    assert job.ends() == 69
    assert "worker-0 69, worker-1 not started; this ends with worker-0's, 69" in job.err


def test_a_fault_that_finds_nobody_is_told(local: Make) -> None:
    """Of a node that is not started yet, and of one whose job is over."""
    faults = split("--late worker-0@2s --kill worker-0@1s --kill worker-1@5m")
    job = local("--nodes", "2", *PLAIN, *faults, "--", "echo", "here")
    assert job.ends() == 0
    assert "worker-0 is not started yet, so nothing happens to it (--kill worker-0@1s)" in job.err
    assert "the job was over before --kill worker-1@5m" in job.err
    assert job.out == "here\n" * 2


# --------------------------------------------------------------------------------------------------
# Ctrl-C, a kill, and a second run


def test_ctrl_c_stops_the_job_and_each_node_has_its_grace(local: Make) -> None:
    job = local("--nodes", "2", *PLAIN, "--", "sh", "-c", UP)
    job.says("up worker", 2)
    job.interrupt()
    assert job.ends() == 130, "as `run` ends"
    assert "[entrypoint local] SIGINT: stopping\n" in job.err
    assert sorted(job.out.splitlines()[2:]) == ["saved worker-0", "saved worker-1"]


def test_a_quick_second_ctrl_c_counts() -> None:
    """A terminal sends each to the whole group, whoever is the parent."""
    stubborn = "trap '' TERM; echo up; while :; do sleep 0.1; done"
    argv = [sys.executable, "-m", "entrypoint", "local", "--nodes", "2", *PLAIN]
    pid, terminal = pty.fork()
    if not pid:
        grace = {"ENTRYPOINT_TIMEOUTS_GRACE": "600"}
        os.execve(argv[0], [*argv, "--", "sh", "-c", stubborn], {**clean_environment(), **grace})
    try:
        _read_until(terminal, lambda text: text.count("up\r\n") == 2)
        for _ in range(2):
            os.write(terminal, b"\x03")
            select.select([], [], [], 0.05)
        output = _read_until(terminal, lambda text: "ended with" in text)
    finally:
        os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 130
    assert "SIGINT again: not waiting for the grace to end" in output


def _read_until(terminal: int, is_done: Callable[[str], bool]) -> str:
    """Return what is printed on a terminal until then."""
    text = ""
    while not is_done(text):
        assert select.select([terminal], [], [], PATIENCE)[0], text
        try:
            text += os.read(terminal, 1 << 16).decode(errors="replace")
        except OSError:  # all that had the terminal open have ended
            pytest.fail(text)
    return text


@pytest.mark.parametrize("times", [2, 3])
def test_nodes_that_do_not_answer_are_killed(local: Make, times: int, tmp_path: Path) -> None:
    """Some time after the second Ctrl-C, or at once at the third, where that time is ten minutes:
    the nodes are stopped, and hear nothing."""
    wait = f"from entrypoint.tools.local import cluster\ncluster._FORCED = {0.5 if times == 2 else 600}\n"
    (tmp_path / "sitecustomize.py").write_text(wait)
    job = local("--nodes", "2", *PLAIN, "--", "sh", "-c", UP, PYTHONPATH=str(tmp_path))
    job.says("up worker", 2)
    pid = job.process.pid
    for node in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        os.kill(int(node), signal.SIGSTOP)
    job.interrupt()
    job.says("SIGINT: stopping")
    until(lambda: job.interrupt() or "SIGINT again" in job.err, "the second Ctrl-C")
    if times == 3:
        until(lambda: job.interrupt() or job.process.poll() is not None, "the end")
    assert job.ends() == 137


@pytest.mark.promise(
    "`entrypoint local` runs nodes, makes faults and leaves nothing behind",
    control="and that the same search finds the job's processes while it runs",
)
@pytest.mark.parametrize("launcher", ["plain", "mpirun"])
def test_no_process_stays_where_it_is_killed(local: Make, launcher: str) -> None:
    job = local("--nodes", "2", *PLAIN, "--launcher", launcher, "--", "sh", "-c", UP)
    job.says("up worker", 2)
    assert job.pids()  # the control: it sees what there is
    os.killpg(job.process.pid, signal.SIGKILL)
    assert job.process.wait() == -signal.SIGKILL
    until(lambda: not job.pids(), "no process left")


def test_a_second_run_beside_the_first(local: Make) -> None:
    program = ("--nodes", "2", "--launcher", "mpirun", "--", "sh", "-c")
    first = local(*program, UP)
    first.says("up worker", 2)
    second = local(*program, "echo second")
    assert second.ends() == 0
    assert second.out == "second\n" * 2
    assert "lost" not in first.err
    first.interrupt()
    assert first.ends() == 130


def test_json_is_all_that_is_printed(local: Make) -> None:
    job = local("--nodes", "2", "--launcher", "plain", "--log-format", "json", "--", "echo", "up")
    assert job.ends() == 0
    found = [json.loads(line) for line in (job.out + job.err).splitlines()]
    said = [each["text"] for each in found if each["stream"] == "entrypoint"]
    assert "all 2 nodes ended with 0" in said
    assert [each["text"] for each in found if each["stream"] == "stdout"] == ["up", "up"]


# --------------------------------------------------------------------------------------------------
# What cannot be


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (("--", "true"), 64, "EP020 number of nodes unknown | the spec has no hosts | add --nodes 2"),
        (
            ("--nodes", "2", "--hosts", "a,b", "--ssh-port", "1", "--", "true"),
            64,
            "EP020 `entrypoint local` sets this itself | --hosts, --ssh-port | leave it out",
        ),
        (("--nodes", "2"), 78, "there is no program to run"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_error(
    local: Make, words: tuple[str, ...], status: int, message: str
) -> None:
    job = local(*words)
    assert job.ends() == status
    assert len(job.err.splitlines()) == 1, job.err
    assert message in job.err


def test_what_the_machine_lacks_is_one_error_that_names_all() -> None:
    code = (
        "import sys; from entrypoint import cli; from entrypoint.system import facts\n"
        "facts._SYSTEM_PATH = facts.os.environ['PATH'] = '/nowhere'\n"
        "sys.argv = 'entrypoint local --nodes 2 --launcher mpirun -- true'.split()\n"
        "cli.script()"
    )
    done = captured([sys.executable, "-c", code], env=clean_environment())
    assert done.returncode == 78
    assert (
        done.stderr
        == "[entrypoint local] EP022 this machine lacks what the job needs | sshd, mpirun |"
        " install them; on Debian: apt-get install openssh-server openmpi-bin\n"
    )
