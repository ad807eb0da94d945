"""Commands that write a file which the user has named: they replace what they have written, and
nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.command import PATH, Done, run

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


@pytest.mark.promise(
    "a command that writes a file replaces none that it has not written",
    control="what it has written, in the same test",
)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_file_of_the_user_stays_and_what_it_has_written_is_replaced(
    command: str, tmp_path: Path
) -> None:
    words, name = COMMANDS[command]
    (tmp_path / name).write_text("mine\n")
    before = left(tmp_path)
    done = entrypoint(tmp_path, *words)
    assert (done.returncode, left(tmp_path)) == (73, before), done.stderr
    assert "EP134 " in done.stderr
    assert f"{name} exists" in done.stderr
    (tmp_path / name).unlink()
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
    names = {file.name for file in tmp_path.iterdir()}
    assert names == {"job.yaml", "made", "pipe", "table.json"}
