"""The command that works on rank tables."""

from __future__ import annotations

import os
from pathlib import Path
from shlex import split

import pytest

from entrypoint import ranktable
from tests import command, table
from tests.unit.ranktables import HCCN, TABLES, read, rows


def entrypoint(cwd: Path, *args: str) -> command.Done:
    return command.run(cwd, "ranktable", *args, env={"PATH": os.environ["PATH"]})


def test_check_prints_a_table(tmp_path: Path) -> None:
    done = entrypoint(
        tmp_path, "check", str(TABLES / "good/v0.1-two-groups.json"), "--me", "job-ps-1"
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert (
        done.stdout == "v0.1: 2 servers, 3 devices\n"
        "rank  server        pod           device  address    own\n"
        "0     192.168.0.25  job-ps-0      0       192.1.0.0\n"
        "1     192.168.0.26  job-ps-1      0       192.1.0.1  *\n"
        "2     192.168.0.25  job-worker-0  1       192.2.0.0\n"
    )


def test_convert_writes_a_file_or_to_stdout(tmp_path: Path) -> None:
    source = str(TABLES / "good/v1.0-numbers.json")
    done = entrypoint(
        tmp_path, "convert", source, "--to", "v0.1", "--out", "sub/jobstart_hccl.json"
    )
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "[entrypoint] wrote sub/jobstart_hccl.json\n"
    assert [path.name for path in (tmp_path / "sub").iterdir()] == ["jobstart_hccl.json"]
    back = entrypoint(tmp_path, "convert", "sub/jobstart_hccl.json")
    assert (back.returncode, back.stderr) == (0, "")
    assert back.stdout == ranktable.to_v1(read("good/v1.0-numbers"))


def test_make_pairs_servers_with_what_follows(tmp_path: Path) -> None:
    (tmp_path / "hccn.conf").write_text(HCCN, encoding="utf-8")
    done = entrypoint(
        tmp_path,
        *("make", "--server-id", "10.0.0.2", "--hccn-conf", "hccn.conf"),
        *("--server-id", "10.0.0.1", "--addresses", "10.1.0.1, 10.1.0.2"),
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert rows(ranktable.parse(done.stdout, "")) == [
        ["10.0.0.2", 9, "192.98.92.109"],
        ["10.0.0.2", 10, "192.98.92.110"],
        ["10.0.0.1", 0, "10.1.0.1"],
        ["10.0.0.1", 1, "10.1.0.2"],
    ]


@pytest.mark.parametrize(
    ("args", "status", "message"),
    table("tests/tables/ranktable.yaml"),
)  # fmt: skip
def test_what_is_wrong_is_one_line(args: str, status: int, message: str, tmp_path: Path) -> None:
    (tmp_path / "empty.json").touch()
    (tmp_path / "bad.json").write_text('{"status": "completed", "version": "2.0"}')
    done = entrypoint(tmp_path, *split(args))
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (status, "", 1)
    assert done.stderr.startswith(f"[entrypoint] {message}")
