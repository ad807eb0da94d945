"""The batch script of `entrypoint deploy slurm`, run by a real bash, with the commands of
tests/slurm.py."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from entrypoint import spec as specs
from entrypoint.tools.deploy import slurm
from entrypoint.tools.deploy._options import Options
from tests import table
from tests.command import captured
from tests.golden_deploy import cases, made
from tests.slurm import Slurm
from tests.waits import until

SCRIPTS = {case.name: made(case) for case in cases() if case.parent.name == "slurm"}

# What a node does instead of training: it ends as it is told to, or at SIGTERM after half a second
# of grace.
NODE = """
import os, signal, sys
heard = {signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2}
signal.pthread_sigmask(signal.SIG_BLOCK, heard)
me = os.environ["SLURM_NODEID"]
def tell(word):
    open(os.environ["FAKE_SLURM"] + "/node-" + me, "a").write(word + "\\n")
tell("started")
if f"END_{me}" in os.environ:
    sys.exit(int(os.environ[f"END_{me}"]))
while (got := signal.sigwait(heard)) != signal.SIGTERM:
    tell(got.name)
tell("forced" if signal.sigtimedwait({signal.SIGTERM}, 0.5) else "grace")
sys.exit(int(os.environ.get("END_AT_TERM", "143")))
"""
# The real command, as a program of the fake cluster.
REAL = f'#!/bin/sh\nexec {sys.executable} -m entrypoint "$@"\n'

PLAIN = "name: demo\nslots: 1\ncommand: [train]\n"
WITH_SPARES = f"{PLAIN}spares: 1\nrestarts: 1\n"
Cluster = Callable[..., Slurm]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made: list[Slurm] = []

    def make(program: str = NODE, nodes: int = 2) -> Slurm:
        made.append(Slurm(tmp_path, program, nodes))
        return made[-1]

    yield make
    for each in made:
        each.close()


def script(folder: Path, text: str = PLAIN, nodes: int = 2, **more: Any) -> Path:
    """The batch script of a job in this folder, whose secret is there."""
    (folder / "job.yaml").write_text(text)
    (folder / "secret").write_text("0" * 64)
    (folder / "secret").chmod(0o600)
    spec = specs.load(text, "job.yaml", {}, more.pop("overrides", {}))
    made = folder / "job.sh"
    made.write_text(slurm.render(spec, Options(image="", folder=str(folder), nodes=nodes, **more)))
    return made


def started(made: Slurm) -> None:
    until(lambda: all(made.nodes_said()) and made.said("tasks"), "all tasks")


def ended(batch: subprocess.Popen[str]) -> tuple[int, str]:
    _, stderr = batch.communicate()
    return batch.returncode, stderr


@pytest.mark.deployed("slurm", "every script", "shellcheck")
def test_shellcheck_has_nothing_to_say(tmp_path: Path) -> None:
    if shutil.which("shellcheck") is None:
        pytest.skip("shellcheck is not installed")
    for case, text in SCRIPTS.items():
        (tmp_path / case).write_text(text)
    checked = captured(["shellcheck", "--norc", *SCRIPTS], cwd=tmp_path)
    assert checked.stdout == ""


@pytest.mark.control(
    "a batch script ends with the failing status, requeues retriable ends, passes signals"
)
@pytest.mark.parametrize("status", [0, 1, 63, 64, 70, 77, 79, 127, 143])
def test_the_status_of_a_failing_node_is_the_job_s(
    status: int, cluster: Cluster, tmp_path: Path
) -> None:
    made = cluster()
    assert ended(made.batch(script(tmp_path), END_0="0", END_1=str(status))) == (status, "")
    assert made.said("scontrol") == []


@pytest.mark.parametrize(("first", "other"), [(0, 137), (0, 71), (7, 75), (75, 0)])
def test_the_status_of_a_job_with_spares_is_that_of_worker_0(
    first: int, other: int, cluster: Cluster, tmp_path: Path
) -> None:
    """A node that a spare has replaced was killed, or has a reason of its own."""
    made = cluster()
    batch = made.batch(script(tmp_path, WITH_SPARES), END_0=str(first), END_1=str(other))
    assert ended(batch)[0] == first
    assert made.said("scontrol") == ["requeue 7"] * (first == 75)


REQUEUES = table("tests/tables/requeues.yaml")


@pytest.mark.promise(
    "a batch script ends with the failing status, requeues retriable ends, passes signals"
)
@pytest.mark.parametrize("case", REQUEUES)
def test_what_a_retry_may_help_is_requeued(case: str, cluster: Cluster, tmp_path: Path) -> None:
    made = cluster()
    ends, before, refuses, counted, asks, says = REQUEUES[case]
    if refuses:
        (tmp_path / "refuse").touch()
    if counted:
        (tmp_path / "restarts").write_text(counted)
    count = {"SLURM_RESTART_COUNT": before} if before else {}
    status, said = ended(made.batch(script(tmp_path), END_0=ends, END_1=ends, **count))
    assert (status, made.said("scontrol")) == (int(ends), ["requeue 7"] * asks)
    assert f"[entrypoint sbatch] {says}" in said


@pytest.mark.parametrize("status", [0, 7, 143])
def test_a_shell_that_forgets_the_status_ends_with_the_job_s(
    status: int, cluster: Cluster, tmp_path: Path
) -> None:
    """bash's `wait` ends with -1 where a signal and the end of srun come at the same time."""
    made, path = cluster(), script(tmp_path)
    forgetful = 'wait() { builtin wait "$@"; return 255; }\n'
    path.write_text(path.read_text().replace("set -u\n", f"set -u\n{forgetful}"))
    assert ended(made.batch(path, END_0=str(status), END_1="0")) == (status, "")


def test_a_job_that_was_told_to_stop_is_not_requeued(cluster: Cluster, tmp_path: Path) -> None:
    made = cluster()
    batch = made.batch(script(tmp_path), END_AT_TERM="75")
    started(made)
    batch.send_signal(signal.SIGTERM)
    status, said = ended(batch)
    assert (status, made.said("scontrol")) == (75, [])
    assert "not requeued | the job was told to stop" in said


@pytest.mark.promise(
    "a batch script ends with the failing status, requeues retriable ends, passes signals"
)
@pytest.mark.parametrize("text", [PLAIN, WITH_SPARES], ids=["", "with spares"])
def test_signals_go_on_to_every_node_and_a_stop_leaves_its_grace(
    text: str, cluster: Cluster, tmp_path: Path
) -> None:
    made = cluster()
    batch = made.batch(script(tmp_path, text))
    started(made)
    heard = ["started"]
    for name in ("SIGUSR1", "SIGUSR2", "SIGUSR1"):
        batch.send_signal(signal.Signals[name])
        heard.append(name)
        until(lambda: made.nodes_said() == [heard] * 2, name)
    batch.send_signal(signal.SIGTERM)
    assert ended(batch) == (143, "")
    assert made.said("scancel")[-1] == "--signal=TERM 7"
    assert made.nodes_said() == [[*heard, "grace"]] * 2


@pytest.mark.promise(
    "a batch script ends with the failing status, requeues retriable ends, passes signals"
)
@pytest.mark.parametrize("way", [Slurm.cancel, Slurm.signal_all])
def test_a_cancelled_job_has_its_grace(
    way: Callable[[Slurm, subprocess.Popen[str]], None], cluster: Cluster, tmp_path: Path
) -> None:
    """`scancel JOB` signals tasks and the batch shell: the shell waits for the tasks, and nobody is
    signalled twice. `scancel --full --signal=TERM JOB` signals the group of the batch shell, where
    srun would kill all tasks."""
    made = cluster()
    batch = made.batch(script(tmp_path))
    started(made)
    way(made, batch)
    status, said = ended(batch)
    assert (status, "forcing job termination" in said) == (143, False)
    if way is Slurm.cancel:
        assert made.nodes_said() == [["started", "grace"]] * 2


@pytest.mark.control(
    "a batch script ends with the failing status, requeues retriable ends, passes signals"
)
def test_without_setsid_it_does_not(cluster: Cluster, tmp_path: Path) -> None:
    """The control."""
    made, path = cluster(), script(tmp_path)
    path.write_text(path.read_text().replace("setsid srun", "srun"))
    batch = made.batch(path)
    started(made)
    made.signal_all(batch)
    status, said = ended(batch)
    assert "forcing job termination" in said
    assert status in (137, 143)  # who was first: the task, or srun
    assert made.nodes_said() != [["started", "grace"]] * 2


def test_the_secret_is_a_file_of_the_user_s_alone(cluster: Cluster, tmp_path: Path) -> None:
    made, path, secret = cluster(), script(tmp_path), tmp_path / "secret"
    assert secret.read_text() not in path.read_text()
    secret.chmod(0o640)
    status, said = ended(made.batch(path))
    assert (status, made.said("srun")) == (78, [])
    assert (
        f"others can read the job's secret | {secret} has mode 640 | create another secret, and chmod 600 its file"
        in said
    )
    secret.unlink()
    status, said = ended(made.batch(path))
    assert (status, made.said("srun")) == (66, [])
    assert f"EP303 cannot read the job's secret | {secret} | " in said


TELL = """
import json, os, sys
open(os.environ["FAKE_SLURM"] + "/told-" + os.environ["SLURM_NODEID"], "w").write(
    json.dumps([sys.argv[1:], dict(os.environ), os.getcwd()]))
"""


@pytest.mark.promise(
    "no task of a Slurm job has another node's HOSTNAME",
    control="without Slurm's own name, in the second test",
)
def test_what_the_nodes_are_told(cluster: Cluster, tmp_path: Path) -> None:
    made = cluster(TELL)
    text = "name: demo\nhosts: [a:2, b:2]\n"
    overrides = {
        "command": specs.Override(["sh", "-c", "echo $HOME 'x'", ""], "--"),
        "env": specs.Override(["A=b $c"], "--env"),
    }
    path = script(tmp_path, text, overrides=overrides)
    own = {"ENTRYPOINT_SECRET": "of the shell that submitted", "HOSTNAME": "node-0"}
    assert ended(made.batch(path, **own)) == (0, "")
    for node in (0, 1):
        argv, env, cwd = json.loads((tmp_path / f"told-{node}").read_text())
        assert "HOSTNAME" not in env, "that of the batch script's node is not every node's"
        assert (argv, cwd) == (["run", "--", "sh", "-c", "echo $HOME 'x'", ""], str(tmp_path))
        assert {name: text for name, text in env.items() if name.startswith("ENTRYPOINT_")} == {
            "ENTRYPOINT_SPEC": f"{tmp_path}/job.yaml",
            "ENTRYPOINT_SECRET_FILE": f"{tmp_path}/secret",
            "ENTRYPOINT_HOSTS": "node-0,node-1",
            "ENTRYPOINT_SLOTS": "2",
            "ENTRYPOINT_ENV": '{"A": "b $c"}',
        }
    srun = made.said("srun")[0].split("\0")
    assert srun[: srun.index("entrypoint")] == [
        "--nodes=2", "--ntasks=2", "--ntasks-per-node=1", "--export=ALL", "--mpi=none", "--cpu-bind=none",
        "--kill-on-bad-exit=0", "--wait=0",
    ]  # fmt: skip


def test_the_real_command_finds_itself_in_a_step(cluster: Cluster, tmp_path: Path) -> None:
    """One node: the real entrypoint takes the step that the script made, and its program's status
    is the job's."""
    made = cluster(REAL, nodes=1)
    path = script(tmp_path, "name: demo\nlauncher: plain\ncommand: [sh, -c, 'exit 9']\n", nodes=1)
    status, _ = ended(made.batch(path))
    assert (status, made.said("scontrol")) == (9, [])
