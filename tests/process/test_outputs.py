"""Commands that write a file which the user has named: they replace what they have written, and
nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.command import Done, run
from tests.process.test_cli import PATH

TABLE = (
    '{"status": "completed", "version": "1.0", "server_count": "1", "server_list": [{"server_id":'
    ' "10.0.0.1", "device": [{"device_id": "0", "device_ip": "1.1.1.1", "rank_id": "0"}]}]}'
)
SPEC = "name: demo\nhosts: [a, b]\nslots: 1\ncommand: [prog]\n"
DEPLOY = ("deploy", "compose", "--spec", "job.yaml", "--image", "i", "--out", "made")
COMMANDS = {
    "render": (("render", "--spec", "job.yaml", "--out", "."), "run_mpi.sh"),
    "sshd_config": (("render", "--spec", "job.yaml", "--out", "."), "sshd_config"),
    "compose": (DEPLOY, "made"),
    "kubernetes": (("deploy", "kubernetes", *DEPLOY[2:]), "made"),
    "slurm": (("deploy", "slurm", *DEPLOY[2:]), "made"),
    "modelarts": (("deploy", "modelarts", *DEPLOY[2:], "--flavor", "f"), "made"),
    "ranktable": (("ranktable", "convert", "table.json", "--out", "made"), "made"),
}


@pytest.fixture(autouse=True)
def _inputs(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(SPEC)
    (tmp_path / "table.json").write_text(TABLE)


def entrypoint(folder: Path, *words: str) -> Done:
    return run(folder, *words, env=PATH)


def left(folder: Path) -> dict[str, str]:
    return {file.name: file.read_text() for file in folder.iterdir() if file.name != "job.yaml"}


@pytest.mark.promise("a command that writes a file replaces none that it has not written")
@pytest.mark.parametrize("command", COMMANDS)
def test_a_file_of_the_user_stays(command: str, tmp_path: Path) -> None:
    words, name = COMMANDS[command]
    (tmp_path / name).write_text("mine\n")
    before = left(tmp_path)
    done = entrypoint(tmp_path, *words)
    assert done.returncode == 73, done.stderr
    assert "EP134 " in done.stderr
    assert f"{name} exists" in done.stderr
    assert left(tmp_path) == before


@pytest.mark.control("a command that writes a file replaces none that it has not written")
@pytest.mark.parametrize("command", COMMANDS)
def test_what_it_has_written_is_replaced(command: str, tmp_path: Path) -> None:
    words, name = COMMANDS[command]
    assert entrypoint(tmp_path, *words).returncode == 0
    made = (tmp_path / name).read_text()
    (tmp_path / name).write_text(f"{made}\n")
    assert entrypoint(tmp_path, *words).returncode == 0
    assert (tmp_path / name).read_text() == made


def test_a_link_and_a_device_stay(tmp_path: Path) -> None:
    (tmp_path / "made").symlink_to(tmp_path / "elsewhere")
    assert entrypoint(tmp_path, *DEPLOY).returncode == 73
    os.mkfifo(tmp_path / "pipe")
    assert entrypoint(tmp_path, *DEPLOY[:-1], "pipe").returncode == 73
    assert sorted(left_names(tmp_path)) == ["job.yaml", "made", "pipe", "table.json"]


def left_names(folder: Path) -> list[str]:
    return [file.name for file in folder.iterdir()]


@pytest.mark.promise(
    "no rendered file has a secret in it that the spec has", control="a path, in the same test"
)
@pytest.mark.parametrize("target", ["compose", "kubernetes", "slurm", "modelarts"])
@pytest.mark.parametrize(
    ("value", "refused"), [("4f3a9c0177e2" * 5, True), ("keys/job-secret", False)]
)
def test_a_secret_in_place_of_its_file_is_not_rendered(
    target: str, value: str, refused: bool, tmp_path: Path
) -> None:
    (tmp_path / "job.yaml").write_text(f"{SPEC}secret_file: {value}\n")
    more = ("--flavor", "f") if target == "modelarts" else ()
    words = ("--spec", "job.yaml", "--image", "i", *more)
    done = entrypoint(tmp_path, "deploy", target, *words)
    assert (done.returncode, "EP802 secret_file holds a secret" in done.stderr) == (
        (78, True) if refused else (0, False)
    )
    if refused:
        assert value not in done.stdout + done.stderr


@pytest.mark.parametrize(
    "text",
    ["command: [prog, --api-key, 7d0f3b55c1aa9e42]", "mpi: {x_args: -x TOKEN=7d0f3b55c1aa9e42}"],
)
def test_no_secret_anywhere_in_a_spec_gets_into_a_config_map(text: str, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(SPEC.replace("command: [prog]\n", "") + text + "\n")
    words = ("deploy", "kubernetes", "--spec", "job.yaml", "--image", "i")
    done = entrypoint(tmp_path, *words)
    assert (done.returncode, done.stdout) == (78, "")
    assert "EP802 a ConfigMap is no place for secrets" in done.stderr
    assert "7d0f3b55" not in done.stderr
