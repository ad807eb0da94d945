"""`entrypoint init`: the file that it writes is a spec, and says what is here."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from entrypoint import spec as specs
from entrypoint.spec import fields
from tests import command, table

MODELARTS = {
    "MA_NUM_HOSTS": "2",
    "MA_NUM_GPUS": "8",
    "VC_WORKER_HOSTS": "job-0.job,job-1.job",
    "VC_TASK_INDEX": "1",
}


def init(folder: Path, *argv: str, **env: str) -> command.Done:
    return command.run(folder, "init", *argv, env={"PATH": "/usr/bin:/bin", **env})


@pytest.mark.parametrize(
    ("text", "launcher"),
    table("tests/tables/init.yaml"),
)
def test_a_script_in_the_folder_tells_command_and_launcher(
    text: str, launcher: str | None, tmp_path: Path
) -> None:
    (tmp_path / "other.py").write_text("x = 1\n")
    (tmp_path / "go.py").write_text(f"{text}\nif __name__ == '__main__':\n    pass\n")
    done = init(tmp_path)
    assert (done.returncode, "wrote job.yaml" in done.stderr) == (0, True)
    job = yaml.safe_load((tmp_path / "job.yaml").read_text())
    assert job.pop("command") == ["python", "go.py"]
    assert job.pop("launcher", None) == launcher
    assert not job


@pytest.mark.parametrize(
    ("words", "launcher", "command"),
    [
        ("bash torchrun.sh train.py --lr 1", "torchrun", ["train.py", "--lr", "1"]),
        ("./run_mpi.sh python train.py", "mpirun", ["python", "train.py"]),
    ],
)
def test_a_boot_script_tells_the_launcher(
    words: str, launcher: str, command: list[str], tmp_path: Path
) -> None:
    assert init(tmp_path, "--", *words.split()).returncode == 0
    job = yaml.safe_load((tmp_path / "job.yaml").read_text())
    assert job == {"command": command, "launcher": launcher}


def test_a_character_that_hides_what_is_written_is_escaped(tmp_path: Path) -> None:
    assert init(tmp_path, "--", "python", "a\u202eb.py", "漢").returncode == 0
    text = (tmp_path / "job.yaml").read_text()
    assert "\u202e" not in text
    assert yaml.safe_load(text)["command"] == ["python", "a\u202eb.py", "漢"]


def test_what_is_not_written_is_said(tmp_path: Path) -> None:
    """`init` reads no script, and takes only flags and the program of a command."""
    words = "MY_SSHD_PORT=222 API_TOKEN=verysecret timeout 9 bash run_mpi.sh python t.py"
    done = init(tmp_path, "--", *words.split(), MY_MPI_SLOTS="4")
    said = (
        "not in job.yaml: MY_SSHD_PORT=222 API_TOKEN=(not shown) timeout 9 bash run_mpi.sh,"
        " what run_mpi.sh sets, MY_MPI_SLOTS | add what you need: docs/how-to/job-yaml.md\n"
    )
    assert said in done.stderr
    assert "verysecret" not in done.stderr
    assert "not in " not in init(tmp_path, "--out", "b.yaml", "--", "python", "t.py").stderr


def test_flags_are_written_and_what_a_platform_tells_is_a_comment(tmp_path: Path) -> None:
    flags = ("--ssh-port", "40000", "-e", "A=no", "--name", "n", "--node-rank", "1")
    done = init(tmp_path, *flags, "--", "python", "t.py", "--lr=1", **MODELARTS)
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "job.yaml").read_text()
    assert yaml.safe_load(text) == {
        "name": "n",
        "command": ["python", "t.py", "--lr=1"],
        "env": {"A": "no"},
        "ssh": {"port": 40000},
    }
    found = (
        "platform modelarts, device cpu, 2 nodes (job-0.job, job-1.job; platform VC_WORKER_HOSTS)"
    )
    assert f"# Found here: {found}, 8 slots (platform MA_NUM_GPUS)." in text


def test_each_proposal_is_a_setting_as_soon_as_its_sign_is_taken_away(tmp_path: Path) -> None:
    init(tmp_path)
    text = (tmp_path / "job.yaml").read_text()
    proposed = re.sub(r"(?m)^# ( *[a-z_A-Z]+:( |$))", r"\1", text)
    assert proposed != text
    job = specs.load(proposed, "job.yaml", {}, {})
    found = {field.path for field in fields() if job.source(field.path).origin == "spec"}
    assert {"name", "command", "launcher", "hosts", "slots", "secret_file"} <= found
    assert (job.slots, job.timeouts.peers, job.env) == (8, 600, {"NCCL_DEBUG": "INFO"})


def test_a_secret_is_left_out_and_a_file_that_is_there_stays(tmp_path: Path) -> None:
    done = init(tmp_path, "-e", "API_TOKEN=verysecret", "-e", "B=1")
    text = (tmp_path / "job.yaml").read_text()
    assert "EP128 secrets are left out of the file | API_TOKEN" in done.stderr
    assert "verysecret" not in text + done.stderr
    assert "B: '1'" in text
    done = init(tmp_path)
    assert (done.returncode, (tmp_path / "job.yaml").read_text()) == (73, text)
    assert "EP134 job.yaml exists | it stays as it is" in done.stderr
    done = init(tmp_path, "--out", "job.yaml/no.yaml")
    assert (done.returncode, "EP112 cannot write into job.yaml" in done.stderr) == (73, True)
    done = init(tmp_path, "--hosts", "a,b c", "--slots", "0")
    assert done.returncode == 65
    done = init(tmp_path, "--out", "-")
    assert (done.returncode, done.stdout.startswith("# One training job")) == (0, True)


def test_several_nodes_without_a_secret_are_told_so(tmp_path: Path) -> None:
    """The file alone cannot start; a secret, or one node, leaves nothing to say"""
    words = ["--hosts", "a,b", "--", "x"]
    missing = "run would end: EP300 no secret configured (required for 2 nodes)"
    done = init(tmp_path, *words)
    assert (done.returncode, missing in done.stderr) == (0, True)
    for more in (["--secret-file", "/s", *words], words[2:]):
        (tmp_path / "job.yaml").unlink()
        done = init(tmp_path, *more)
        assert (done.returncode, "EP300" in done.stderr) == (0, False), done.stderr
