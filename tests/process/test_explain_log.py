"""`entrypoint explain FILE`: the judgement on the log of a job that this toolkit did not run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from entrypoint.cli import explain
from tests import table

LOG = """\
2024-05-01T10:00:00Z [rank3]: Traceback (most recent call last):
2024-05-01T10:00:00Z [rank3]: RuntimeError: CUDA error: uncorrectable ECC error encountered
2024-05-01T10:00:01Z [rank1]: RuntimeError: Connection closed by peer [10.0.0.3]:28040
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
"""
FIELDS = ["cause", "text", "role", "blame", "retry", "certainty", "lines", "fix"]


def explained(
    cwd: Path, *words: str, stdin: bytes = b"", limit: float = 60
) -> tuple[int, str, str]:
    argv = [sys.executable, "-m", "entrypoint", "explain", *words]
    env = {"PATH": os.environ["PATH"], "COLUMNS": "100"}
    done = subprocess.run(
        argv, cwd=cwd, env=env, input=stdin, capture_output=True, timeout=limit, check=False
    )
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def judged(cwd: Path, *words: str, stdin: bytes = b"") -> dict[str, Any]:
    status, out, err = explained(cwd, "--json", *words, stdin=stdin)
    assert (status, err) == (0, "")
    document: dict[str, Any] = json.loads(out)
    assert list(document) == FIELDS
    return document


@pytest.mark.promise(
    "`explain FILE` says why a job failed, and whether a retry helps",
    control="a log without a failure, below",
)
def test_a_file_and_stdin_are_judged_alike(tmp_path: Path) -> None:
    (tmp_path / "job.log").write_text(LOG)
    document = judged(tmp_path, "job.log")
    assert document == judged(tmp_path, "-", stdin=LOG.encode())
    assert document == judged(tmp_path, str(tmp_path / "job.log"))
    assert {name: document[name] for name in FIELDS[:6]} == {
        "cause": "gpu-ecc",
        "text": "an accelerator reported an uncorrectable ECC error in rank 3 (device; retry elsewhere)",
        "role": "root",
        "blame": "device",
        "retry": "elsewhere",
        "certainty": "high",
    }
    assert document["lines"] == [LOG.splitlines()[1]]
    status, out, err = explained(tmp_path, "job.log")
    assert (status, err) == (0, "")
    assert "reported an uncorrectable ECC error in rank 3 (device; retry elsewhere)" in out
    assert max(map(len, out.splitlines())) <= 100


def test_what_is_known_about_the_end_counts(tmp_path: Path) -> None:
    (tmp_path / "job.log").write_text("step 1\n")
    assert judged(tmp_path, "job.log")["cause"] == "user-code"
    for words in (
        ("--status", "137"),
        ("--status", "-9"),
        ("--signal", "SIGKILL"),
        ("--signal", "kill"),
    ):
        assert judged(tmp_path, *words, "job.log")["cause"] == "killed-unknown"
    assert judged(tmp_path, "--status", "0", "job.log")["cause"] == "harmless"


def test_what_is_quoted_has_no_secret(tmp_path: Path) -> None:
    log = "ValueError: no access with hf_aaaabbbbccccddddeeee1234 at s3://me:topsecret@host/x\n"
    _, text, _ = explained(tmp_path, "-", stdin=log.encode())
    for out in (text, str(judged(tmp_path, "-", stdin=log.encode()))):
        assert "no access with (not shown) at s3://me:(not shown)@host" in out


def test_a_file_wins_over_a_text(tmp_path: Path) -> None:
    (tmp_path / "shared memory").write_text(LOG)
    (tmp_path / "75").write_text(LOG)
    assert explained(tmp_path, "shared memory")[1].startswith("gpu-ecc")
    assert explained(tmp_path, "75")[1].startswith("gpu-ecc")
    assert explained(tmp_path, "EP500")[1].startswith("EP500")
    (tmp_path / "75").unlink()
    assert "EP602" in explained(tmp_path, "75")[1]


@pytest.mark.parametrize(
    ("words", "status", "message"),
    table("tests/tables/explain_log.yaml"),
)
def test_what_is_wrong_is_said_once(
    tmp_path: Path, words: tuple[str, ...], status: int, message: str
) -> None:
    (tmp_path / "loop").symlink_to("loop")
    found, out, err = explained(tmp_path, *words)
    assert (found, out) == (status, "")
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("data", "cause"),
    [
        (b"", "user-code"),
        (b"\0\xff\xfe\x1b[31m" * 1000, "user-code"),
        (os.urandom(100_000), None),
        (LOG.encode("utf-16"), "gpu-ecc"),
        (LOG.replace("\n", "\r\n").encode(), "gpu-ecc"),
        (b"\r".join(b"step %d" % n for n in range(10_000)) + b"\n" + LOG.encode(), "gpu-ecc"),
        (json.dumps({"log": "KeyError: 'a'\n", "stream": "stderr"}).encode(), "user-code"),
        (json.dumps({"rank": 3, "text": "ModuleNotFoundError: x"}).encode(), "user-import"),
        (b'{"log": ' * 5000, None),
        ((("step 1\n" * 2_000_000) + LOG).encode(), "gpu-ecc"),
    ],
    ids=range(10),
)
def test_any_bytes_are_judged(tmp_path: Path, data: bytes, cause: str | None) -> None:
    (tmp_path / "job.log").write_bytes(data)
    for document in (judged(tmp_path, "job.log"), judged(tmp_path, "-", stdin=data)):
        assert cause in (None, document["cause"])
        assert len(document["lines"]) <= 3
        assert all(line.isprintable() and len(line) < 400 for line in document["lines"])


def test_a_long_log_costs_little(tmp_path: Path) -> None:
    """No more than five MiB of it are read."""
    with (tmp_path / "job.log").open("wb") as file:
        file.truncate(2 << 30)  # no byte of it is on the disk
        file.seek(0, os.SEEK_END)
        file.write(b"\n" + LOG.encode())
    assert judged(tmp_path, "job.log")["cause"] == "gpu-ecc"
    assert len(explain._log(str(tmp_path / "job.log"))) == (5 << 20) + 1  # a line's end between
