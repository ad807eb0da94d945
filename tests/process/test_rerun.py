"""`entrypoint rerun`: what it starts, and what it needs for that, with real programs."""

from __future__ import annotations

import json
import os
import resource
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from entrypoint.base.kept import MARK, VERDICT
from entrypoint.base.model import Device, Launch, LaunchRanks, Topology
from entrypoint.base.model import Node as TopologyNode
from entrypoint.base.rankkind import UNDER_DAEMONS
from entrypoint.ranks import command_line, orders
from tests import command
from tests.cluster import processes
from tests.process.bench import Process
from tests.waits import until

KEY = "0f9c1d72aa3be845"
OTHER = "horse-battery"  # which alone looks like no secret
# Writes what it is into a file of its rank; rank 3 fails.
TRAIN = """
import json, os, sys
rank = os.environ["JAX_PROCESS_ID"]
what = {"argv": sys.argv, "cwd": os.getcwd(), "env": dict(os.environ), "pid": os.getpid()}
with open(f"/proc/self/cwd/rank-{rank}", "w") as file:
    json.dump(what, file)
sys.exit(3 * (rank == "3"))
"""
WORDS = ("", "b c", "line\nend", "\u00e9", "$HOME", "(")


class Node:
    """A node whose jobs have four ranks, on this machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.run_dir = folder / "run"
        self.ranks = folder / "run-ranks"
        (folder / "work").mkdir()
        (folder / "work/train.py").write_text(TRAIN)
        self.env = {"PATH": os.environ["PATH"], "ENTRYPOINT_RUN_DIR": str(self.run_dir)}

    def run(self, *words: str, **env: str) -> command.Done:
        """Run a job to its end: this program, or the one above with six words."""
        program = words or (sys.executable, "train.py", *WORDS)
        argv = ("run", "--launcher", "jax", "--slots", "4", "--", *program)
        return command.run(self.folder / "work", *argv, env={**self.env, **env})

    def rerun(self, *words: str, **env: str) -> command.Done:
        return command.run(self.folder, "rerun", *words, env={**self.env, **env})

    def seen(self) -> dict[str, Any]:
        """Return what rank 3 has written, which is removed."""
        file = self.folder / "work/rank-3"
        what: dict[str, Any] = json.loads(file.read_text())
        file.unlink()
        for name in (MARK, VERDICT):  # of the keeper, which a rank that is started again has not
            what["env"].pop(name, None)
        return what


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_a_rank_starts_again_as_it_was(node: Node) -> None:
    given = {"WANDB_API_KEY": KEY, "COPY": f"key={KEY}", "ODD": "two\nlines \udcfe"}
    done = node.run(**given)
    assert done.returncode == 3, done.stderr
    first = node.seen()
    again = node.rerun("--rank", "3", **given)
    assert (again.returncode, again.stdout) == (3, "")
    assert {**node.seen(), "pid": 0} == {**first, "pid": 0}
    (line,) = again.stderr.splitlines()
    assert line.startswith("[entrypoint] rank 3 of job job, attempt 1, again: ")
    assert line.endswith(" | the job ended: EP600 rank 3 exited with 3")
    assert KEY not in line


def test_nothing_is_stored_that_the_container_was_given(node: Node) -> None:
    """and what is not here any more is named; of the spec's variables, what may be a secret"""
    secrets = {"WANDB_API_KEY": KEY, "PROXY": f"http://me:{KEY}@proxy", "COPY": f"key={KEY}"}
    secrets["SETTINGS"] = json.dumps({"api_key": OTHER})
    secrets["HEADER"] = f"Authorization: Bearer {OTHER}"
    secrets["ENTRYPOINT_ENV"] = json.dumps({"SHOWN": "of everybody", "MY_SK": OTHER})
    node.run(**secrets)
    secrets["MY_SK"] = OTHER
    first = node.seen()
    files = [path.read_bytes() for path in node.folder.rglob("run*/*") if path.is_file()]
    assert len(files) == 4
    assert all(b"SHOWN=of everybody" in file and KEY.encode() not in file for file in files)
    assert not any(OTHER.encode() in file for file in files)
    again = node.rerun("--rank", "3", COPY="mine", OTHER="is not the rank's")
    assert again.returncode == 3
    env = {name: value for name, value in first["env"].items() if name not in secrets}
    assert node.seen()["env"] == {**env, "COPY": "mine"}
    line = "may be secrets, so not stored, and not set here: ENTRYPOINT_ENV, HEADER, MY_SK, PROXY, SETTINGS"
    assert f"[entrypoint] {line}, WANDB_API_KEY\n" in again.stderr


def test_another_command_takes_the_rank_s_place(node: Node) -> None:
    node.run()
    done = node.rerun("--rank", "2", "--", "sh", "-c", "echo $JAX_PROCESS_ID in $(pwd); exit 7")
    assert (done.returncode, done.stdout) == (7, f"2 in {node.folder}/work\n")
    done = node.rerun("--rank", "2", "--", "no-such-debugger")
    assert done.returncode == 127
    assert "EP440 cannot start no-such-debugger: " in done.stderr


def test_a_command_with_a_secret_is_asked_for(node: Node) -> None:
    words = ("sh", "-c", "test $JAX_PROCESS_ID != 3 || exit 5", "sh", "--api-key", KEY)
    node.run(*words)
    assert KEY.encode() not in (node.ranks / "3").read_bytes()
    done = node.rerun("--rank", "3")
    assert (done.returncode, done.stderr) == (
        66,
        "[entrypoint] EP030 rank 3 cannot be started again | a secret in its command is not stored"
        " | give it after --\n",
    )
    assert node.rerun("--rank", "3", "--", *words).returncode == 5


def test_a_rank_that_has_not_run_here(node: Node) -> None:
    """The last job counts: what an earlier one has left is gone."""
    node.run("true")
    for rank in ("4", "03", "../run-ranks/3", ".", "x"):
        done = node.rerun("--rank", rank)
        assert (done.returncode, done.stderr) == (
            66,
            f"[entrypoint] EP030 rank {rank} cannot be started again | ranks that ran here: 0-3\n",
        )
    argv = ("run", "--launcher", "plain", "--", "true")
    assert command.run(node.folder, *argv, env=node.env).returncode == 0
    done = node.rerun("--rank", "3")
    assert done.returncode == 66
    assert done.stderr.endswith(" | ranks that ran here: none\n")
    assert not node.ranks.exists()


def test_files_of_the_user_stay(node: Node) -> None:
    node.run("true")
    (node.ranks / "folder").mkdir()
    (node.ranks / "notes.txt").write_text("mine")
    argv = ("run", "--launcher", "plain", "--", "true")
    assert command.run(node.folder, *argv, env=node.env).returncode == 0
    assert sorted(path.name for path in node.ranks.iterdir()) == ["folder", "notes.txt"]
    assert "ranks that ran here: none" in node.rerun("--rank", "notes.txt").stderr


def test_the_last_attempt_counts(node: Node) -> None:
    fails = "RuntimeError: CUDA error: uncorrectable ECC error encountered"
    node.run("sh", "-c", f"echo {fails}; exit 1", ENTRYPOINT_RESTARTS="1")
    done = node.rerun("--rank", "0", "--", "true")
    assert "[entrypoint] rank 0 of job job, attempt 2, again: true | the job ended: " in done.stderr


def test_a_job_that_still_runs_is_left_alone(node: Node) -> None:
    argv = [sys.executable, "-m", "entrypoint", "run", "--launcher", "jax", "--slots", "4", "--"]
    program = 'echo >"up-$JAX_PROCESS_ID"; exec sleep 600'
    with Process([*argv, "sh", "-c", program], cwd=node.folder, env=node.env) as job:
        until(lambda: len([*node.folder.glob("up-*")]) == 4, "the ranks")
        done = node.rerun("--rank", "3")
        job.terminate()
        assert job.wait() == 143
    assert (done.returncode, done.stderr) == (
        66,
        "[entrypoint] EP030 rank 3 cannot be started again | its job still runs"
        " | see what it does: entrypoint stacks\n",
    )
    assert node.rerun("--rank", "3", "--", "true").returncode == 0


def test_after_an_entrypoint_that_was_killed(node: Node) -> None:
    argv = [sys.executable, "-m", "entrypoint", "run", "--launcher", "jax", "--slots", "2", "--"]
    with Process([*argv, "sleep", "600"], cwd=node.folder, env=node.env) as job:
        until(lambda: (node.ranks / "0").exists() and (node.ranks / "1").exists(), "the ranks")
        job.kill()
    until(lambda: not processes(f"ENTRYPOINT_RUN_DIR={node.run_dir}"), "the end of the ranks")
    done = node.rerun("--rank", "1", "--", "sh", "-c", "exit 4")
    assert done.returncode == 4
    assert "the job ended" not in done.stderr, "nobody knows how"


@pytest.mark.parametrize("place", ["a file", "a link", "a folder that others may enter"])
def test_a_folder_that_is_not_ours_gets_nothing_and_gives_nothing(place: str, node: Node) -> None:
    """Another user may have made it in /tmp."""
    assert node.run("true").returncode == 0
    other = node.folder / "other"
    node.ranks.rename(other)
    if place == "a file":
        node.ranks.touch()
    elif place == "a link":
        node.ranks.symlink_to(other)
    else:
        other.rename(node.ranks)
        node.ranks.chmod(0o750)
    done = node.rerun("--rank", "3")
    assert (done.returncode, done.stderr) == (
        66,
        "[entrypoint] EP030 rank 3 cannot be started again | ranks that ran here: none\n",
    )
    stored(node, 7)
    assert not [*node.folder.rglob("7")]
    shutil.move(node.ranks, node.folder / "away")  # the control
    stored(node, 7)
    assert [*node.folder.rglob("7")] == [node.ranks / "7"]


def stored(node: Node, rank: int) -> None:
    """Store a rank's program, as the entrypoint does."""
    topology = Topology(
        "job", (TopologyNode(0, "a", 8),), 0, "local", Device("cpu", 0, ""), str(node.run_dir), ""
    )
    env = (b"NAME=VALUE", f"{MARK}=1".encode())
    program = orders.StartedAs(orders.RANK, rank, (b"true",), env)
    launch = Launch(ranks=LaunchRanks(kind=UNDER_DAEMONS))
    command_line.store(topology, launch, rank, program)


def test_files_are_private_from_their_first_byte(node: Node) -> None:
    before = os.umask(0)
    try:
        node.run("true")
    finally:
        os.umask(before)
    modes = [oct(path.stat().st_mode) for path in (node.ranks, node.ranks / "3")]
    assert modes == ["0o40700", "0o100600"]


def test_a_disk_without_room_costs_no_job(node: Node) -> None:
    def small() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000))

    argv = [sys.executable, "-m", "entrypoint", "run", "--launcher", "jax", "--slots", "2", "--"]
    # Python would leave a module's compiled file cut off, too.
    env = {**node.env, "PYTHONDONTWRITEBYTECODE": "1"}
    env["ENTRYPOINT_ENV"] = json.dumps({f"LONG_{number}": "a b c" for number in range(400)})
    argv += ["sh", "-c", "exit 5"]
    done = command.captured(argv, cwd=node.folder, env=env, preexec_fn=small)
    assert done.returncode == 5, done.stderr
    assert [*node.ranks.iterdir()] == [], "not a part of a file, either"
    done = node.rerun("--rank", "0")
    assert done.stderr.endswith(
        "EP030 rank 0 cannot be started again | ranks that ran here: none\n"
    )
    command.captured(argv, cwd=node.folder, env=env)
    assert (node.ranks / "0").stat().st_size > 4000, "the control"
