"""Several nodes without a secret: refused before anything starts, unless `roll_call: none` says
that it is meant."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from entrypoint.base import registry
from tests.command import run

PATH = {"PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/sbin:/usr/bin:/bin"}
NONE = {"ENTRYPOINT_ROLL_CALL": "none"}
WARNING = (
    "[entrypoint worker-0] warning: EP506 no roll call, roll_call: none (env ENTRYPOINT_ROLL_CALL)"
    " | nobody notices"
)


def entrypoint(
    folder: Path, command: str, *argv: str, hosts: str = "worker-0,worker-1", **env: str
) -> tuple[int, str]:
    """The exit status of this node, which is worker-0 of two unless `hosts` says otherwise, and its
    lines on stderr."""
    words = (command, "--hosts", hosts, "--node-rank", "0", *argv)
    done = run(folder, *words, env={**PATH, "ENTRYPOINT_RUN_DIR": f"{folder}/run", **env})
    return done.returncode, done.stderr


@pytest.mark.promise("several nodes without a secret do not start unless `roll_call: none`")
@pytest.mark.parametrize("launcher", registry.names("launchers"))
def test_without_a_secret_no_launcher_starts_on_several_nodes(
    launcher: str, tmp_path: Path
) -> None:
    for command in ("plan", "run"):
        status, said = entrypoint(
            tmp_path, command, "--launcher", launcher, "--", "touch", "started"
        )
        assert status == 78, said
        assert (
            "EP300 no secret configured (required for 2 nodes) | no secret and no key files" in said
        )
    assert not (tmp_path / "started").exists()


def test_no_start_hook_runs_for_a_job_that_is_refused(tmp_path: Path) -> None:
    pre = tmp_path / "code" / "ma-pre-start.sh"
    pre.parent.mkdir()
    pre.write_text(f"touch {tmp_path}/hooked\n")
    env = {
        "MA_JOB_DIR": str(tmp_path),
        "MA_VJ_NAME": "job",
        "MA_NUM_HOSTS": "2",
        "VC_TASK_INDEX": "0",
    }
    env |= {"VC_WORKER_HOSTS": "a,b"}
    assert entrypoint(tmp_path, "run", "--launcher", "plain", "--", "true", **env)[0] == 78
    assert not (tmp_path / "hooked").exists()
    entrypoint(tmp_path, "run", "--launcher", "plain", "--", "true", **env, **NONE)
    assert (tmp_path / "hooked").exists()  # the control


@pytest.mark.promise("several nodes without a secret do not start unless `roll_call: none`")
@pytest.mark.parametrize("launcher", ["plain", "pytorch"])
def test_a_job_that_asks_for_none_runs_and_is_warned(launcher: str, tmp_path: Path) -> None:
    """test_plan_is_run.py has every launcher."""
    words = ("run", "--launcher", launcher, "--", "sh", "-c", "touch started")
    status, said = entrypoint(tmp_path, *words, **NONE)
    assert (status, (tmp_path / "started").exists()) == (0, True), said
    assert said.startswith(WARNING), said
    if launcher == "pytorch":  # the end of one node is not called the job's
        last = "[entrypoint worker-0] this node's part is done: pytorch exited with 0"
        assert said.splitlines()[-1] == last


@pytest.mark.control("several nodes without a secret do not start unless `roll_call: none`")
def test_one_node_needs_neither(tmp_path: Path) -> None:
    status, said = entrypoint(
        tmp_path, "run", "--launcher", "plain", "--", "true", hosts="worker-0"
    )
    assert (status, said) == (0, "")


@pytest.mark.parametrize(
    "command",
    [("check", "--all", "--limit", "1", "--launcher", "plain"), ("netcheck",)],
    ids=lambda words: words[0],
)
def test_what_asks_all_nodes_needs_the_roll_call(command: tuple[str, ...], tmp_path: Path) -> None:
    status, said = entrypoint(tmp_path, command[0], *command[1:])
    assert status == 78, said
    assert "EP300" in said
    status, said = entrypoint(tmp_path, command[0], *command[1:], **NONE)
    assert status == 78, said
    assert "EP011 this job has no roll call" in said
