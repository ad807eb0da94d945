"""The job's result, as a function; tests/process/test_result_file.py has real processes."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from entrypoint.base.cause import Cause, Exclusion, Saved
from entrypoint.base.errors import ConfigError
from entrypoint.base.model import Device, Node, Outcome, Topology
from entrypoint.features.record import file as files
from entrypoint.features.record.file import RecordFile, classify, result_of

CLASSES = {
    "success": (0,), "job": (7, 79, 127, 137), "stopped": (130, 143), "defect": (70,),
    "config": (64, 65, 66, 73, 77, 78), "infrastructure": (69, 71, 75),
}  # fmt: skip


@pytest.mark.parametrize(
    ("status", "kind"), [(status, kind) for kind in CLASSES for status in CLASSES[kind]]
)
def test_whose_it_is(status: int, kind: str) -> None:
    """A program may use our statuses itself; then they are the job's."""
    assert classify(Outcome(status, "a reason")) == kind
    own = kind if kind in ("success", "stopped") else "job"
    assert classify(Outcome(status, "rank 3 on worker-1 ended", program=True)) == own


def line(outcome: Outcome, node: str, job: str, environ: dict[str, str]) -> str:
    return f"{json.dumps(result_of(outcome, node, job, environ))}\n"


@pytest.mark.parametrize("character", ["x", "ä", "\U0001f600", "\udcff", "\n"])
@pytest.mark.parametrize("length", [100, 3900, 4096, 100_000])
def test_it_is_never_longer_than_kubernetes_takes(character: str, length: int) -> None:
    text = line(Outcome(75, "lost: " + character * length), "worker-0", "demo", {})
    assert len(text.encode()) <= 4096
    fields = json.loads(text)
    assert (fields["status"], fields["class"]) == (75, "infrastructure")
    assert length == 100 or len(text) > 3900
    whole = fields["reason"] == "lost: " + character * length
    assert whole == (length == 100 or (length == 3900 and character == "x"))
    assert whole or (
        fields["reason"].startswith("lost: " + character * 100) and fields["reason"].endswith("...")
    )


@pytest.mark.parametrize("character", ["x", "\U0001f600"])
@pytest.mark.parametrize("length", [100, 4000])
def test_no_other_field_makes_it_longer(character: str, length: int) -> None:
    """A field that is too long is cut, and leaves room for the reason."""
    long = character * length
    cause = Cause("gpu-ecc", "root", "device", "elsewhere", "high", long, long, lines=(long,) * 3)
    excluded = (Exclusion(long, long, long),) * 64
    outcome = Outcome(75, f"lost: {long}", cause=cause, excluded=excluded)
    text = line(outcome, long, long, {})
    assert len(text.encode()) <= 4096
    fields = json.loads(text)
    assert fields["reason"].startswith("lost: " + character * 10)
    is_whole = len(long.encode()) == 100
    assert len(fields["excluded"]) == (2 if is_whole else 1)
    for text in (fields["node"], fields["job"], fields["fix"], fields["lines"][2]):
        assert text == long if is_whole else text.endswith("...")


def test_it_counts_attempts_if_there_was_more_than_one() -> None:
    lost = Outcome(75, "worker-1 is lost")
    assert result_of(lost, "worker-0", "demo", {}, 3)["attempts"] == 3
    assert "attempts" not in result_of(lost, "worker-0", "demo", {}, 1)


def test_it_says_what_was_saved() -> None:
    stopped = Outcome(143, "stopped by SIGTERM", saved=Saved("\udcff" * 100, 4.0))
    result = result_of(stopped, "worker-0", "demo", {})
    assert result["saved"]["seconds"] == 4.0
    assert len(json.dumps(result["saved"])) < 300


def test_secrets_are_not_in_it() -> None:
    environ = {
        "HF_TOKEN": "hf_0123456789",
        "ENTRYPOINT_SECRET": "a-job's-own-secret",
        "API_KEY": "short",
        "NAME": "visible1",
    }
    reason = "EP440 cannot start prog-hf_0123456789: a-job's-own-secret, short, visible1"
    fields = json.loads(line(Outcome(127, reason), "n", "j", environ))
    assert fields["reason"] == "EP440 cannot start prog-(not shown): (not shown), short, visible1"


# --------------------------------------------------------------------------------------------------
# Its place, where others may write as well


@pytest.fixture
def shared() -> Iterator[Path]:
    """A directory like /tmp, and this process as a user that is not root."""
    if os.geteuid() != 0:
        pytest.skip("only root can be another user")
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        os.chmod(folder, 0o1777)
        os.seteuid(65534)
        try:
            yield Path(folder)
        finally:
            os.seteuid(0)


def topology(folder: Path) -> Topology:
    node, device = Node(0, "a", 1), Device("cpu", 0, "no accelerator")
    return Topology("demo", (node,), 0, "local", device, run_dir=str(folder / "run"), user="u")


def forge(folder: Path) -> Path:
    os.seteuid(0)
    file = folder / "run-state.json"
    file.write_text('{"status": 0}')
    os.chown(file, 1234, 1234)
    os.seteuid(65534)
    return file


def test_another_user_s_file_in_its_place_is_refused(shared: Path) -> None:
    file = forge(shared)
    with pytest.raises(ConfigError) as caught:
        RecordFile(print).about(topology(shared))
    assert (
        str(caught.value)
        == f"EP411 another user's file is in the place of this job's record | {file} is owned by 1234,"
        " this user is 65534 | remove it, or set ENTRYPOINT_RUN_DIR to another place"
    )


def test_a_result_that_cannot_be_written_is_said(shared: Path) -> None:
    """What came into its place while the job ran is not taken for it unnoticed."""
    said: list[str] = []
    result = RecordFile(said.append)
    result.about(topology(shared))
    result.end(Outcome(7, "x"))
    assert (json.loads((shared / "run-state.json").read_text())["result"]["status"], said) == (
        7,
        [],
    )
    result.about(topology(shared))
    file = forge(shared)
    result.end(Outcome(7, "x"))
    detail = f"{file}: Operation not permitted; an older file there is not this job's result"
    hint = "set ENTRYPOINT_RUN_DIR to a writable place"
    assert said == [f"warning: EP415 the result cannot be written | {detail} | {hint}"]
    assert sorted(os.listdir(shared)) == ["run-state.json"]


def test_the_file_that_kubernetes_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no line end, which kubectl's columns would show."""
    path = tmp_path / "termination-log"
    path.write_text("x" * 6000)  # of a container before
    monkeypatch.setattr(files, "TERMINATION_LOG", str(path))
    RecordFile(lambda line: None).end(Outcome(75, "worker-1 is lost"))
    assert json.loads(path.read_text())["status"] == 75
    assert path.read_text().endswith("}")


@pytest.mark.parametrize(
    ("before", "status", "after"),
    [(None, 75, "worker-1 is lost\n"), ("mine", 75, "mine"), (None, 0, None)],
    ids=["failed", "the-program-s-own", "succeeded"],
)
def test_the_file_that_sagemaker_reads(
    before: str | None,
    status: int,
    after: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It gets the reason of a failure, unless the program has written it."""
    path = tmp_path / "failure"
    monkeypatch.setattr(files, "SAGEMAKER_FAILURE", str(path))
    if before:
        path.write_text(before)
    RecordFile(lambda line: None).end(Outcome(status, "worker-1 is lost"))
    assert (path.read_text() if path.exists() else None) == after
    monkeypatch.setattr(files, "SAGEMAKER_FAILURE", str(tmp_path / "none" / "failure"))
    RecordFile(lambda line: None).end(Outcome(75, "\udcff"))
