"""Words of a fault that a line only mentions make nobody boot a job again, or without a node; a
report of the device, the kernel or the scheduler itself does."""

from __future__ import annotations

import pytest

from entrypoint.causes.evidence import DeviceFault, Evidence
from entrypoint.causes.judge import judge
from entrypoint.causes.table import HARDWARE, signatures
from tests.backtracking import parsed, sample

MENTIONS = (
    "health check: looking for {}: none found", "checking for {} ... ok",
    "last run failed with: {} - starting again",
    '{{"event": "restart", "attempt": 1, "reason": "{}"}}', "INFO: {}", "WARNING: {}", "run12: {}",
    "| GPU 0 | {} | no |", "GPU 0: {}: no", "{}: none", "{} = false",
    "2024-01-02 10:00:00,123 ERROR trainer the job before ended with {}",
    "[ERROR] last attempt: {}", "E0512 10:00:00.123 123 train.py:55] last run: {}",
    "ValueError: cannot resume: last run ended with {}",
    "RuntimeError: cannot resume: last run ended with {}",
)  # fmt: skip
MISTAKES = (
    ("Traceback (most recent call last):", '  File "train.py", line 3', "KeyError: 'a'"),
    ("ModuleNotFoundError: No module named 'apex'",),
    ("train.py: error: unrecognized arguments: --x",),
)
REPORTS = (
    "{}",
    "RuntimeError: CUDA error: {}",
    "Nov 27 05:55:01 node-3 kernel: [ 1234.567] NVRM: {}",
    "slurmstepd: error: *** {} ***",
    "what():  CUDA error: {}",
    "[E1126 01:59:48.605 ProcessGroupNCCL.cpp:1575] ended with exception: {}",
    "node-3:57:57 [0] misc/socket.cc:63 NCCL WARN {}",
)


def words(of_devices_alone: bool = False) -> list[str]:
    """Return a text for each row that speaks for a retry; or for those of devices and schedulers
    that are certain."""
    found = []
    for row in signatures():
        text = sample(parsed(row.pattern)) if row.pattern else row.needle
        is_whole = row.needle in text and row.match(text) is not None and not row.also
        is_device_s = row.weight <= HARDWARE + 5
        is_sure = row.certainty == "high"
        may_retry = row.retry in ("same", "elsewhere")
        if is_whole and may_retry and ((is_device_s and is_sure) or not of_devices_alone):
            found.append(text)
    return found


@pytest.mark.promise("what a line only mentions starts no job again and excludes no node")
@pytest.mark.parametrize("mention", MENTIONS)
def test_a_mention_starts_no_job_again(mention: str) -> None:
    for text in words():
        line = mention.format(text)
        assert not judge([line], 1).is_infrastructure, line
        for mistake in MISTAKES:
            cause = judge([line, *mistake], 1)
            assert (cause.blame, cause.retry, cause.certainty) == ("program", "no", "high"), line


@pytest.mark.control("what a line only mentions starts no job again and excludes no node")
@pytest.mark.parametrize("report", REPORTS)
def test_a_report_does(report: str) -> None:
    texts = words(of_devices_alone=True)
    assert len(texts) > 40
    for text in texts:
        line = report.format(text)
        for mistake in ((), *MISTAKES):
            assert judge([*mistake, line], 1).is_infrastructure, line


@pytest.mark.parametrize(
    ("lines", "slug"),
    [
        (["health check: looking for Xid 79 (fallen off the bus): none found"], "gpu-lost"),
        (["last state of node-3: NODE_FAIL"], "node-lost"),
        (["spare: DUE TO PREEMPTION was seen yesterday"], "preempted"),
    ],
)
def test_a_mention_alone_is_no_reason_to_retry(lines: list[str], slug: str) -> None:
    """With nothing else in the output it is what is named, without certainty."""
    cause = judge(lines, 7)
    assert (cause.slug, cause.retry, cause.certainty) == (slug, "unknown", "low")


def test_a_mention_that_the_node_has_measured_is_none() -> None:
    fault = DeviceFault("GPU 2", "missing", "gone")
    lines = ["the card of the last run had GPU is lost in its log"]
    cause = judge(lines, 7, evidence=Evidence(device_faults=(fault,)))
    assert (cause.slug, cause.device, cause.is_infrastructure) == ("gpu-lost", "GPU 2", True)


def test_a_mention_after_a_mistake_is_none_either() -> None:
    lines = [*MISTAKES[0], "uploading the log: it has no report of an uncorrectable ECC error"]
    assert judge(lines, 1).slug == "user-code"


REAL = (
    "[ 1234.567890] NVRM: Xid (PCI:0000:3b:00): 79, pid=42, GPU has fallen off the bus.",
    "slurmstepd: error: *** STEP 12.0 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO PREEMPTION ***",
    "RuntimeError: CUDA error: uncorrectable ECC error encountered",
)
TRACEBACK = "Traceback (most recent call last):"
ERROR = (TRACEBACK, '  File "train.py", line 3, in <module>', "ValueError: bad learning rate")


@pytest.mark.promise("what a line only mentions starts no job again and excludes no node")
@pytest.mark.parametrize("report", REAL)
def test_a_plain_exception_at_the_end_outweighs_a_report_before_it(report: str) -> None:
    """The program has quoted it, or went on after it."""
    cause = judge(["tail of the log of attempt 1:", report, "resuming", *ERROR], 1)
    assert (cause.slug, cause.retry) == ("user-code", "no")


@pytest.mark.control("what a line only mentions starts no job again and excludes no node")
@pytest.mark.parametrize("report", REAL)
@pytest.mark.parametrize(
    "more",
    [
        ["", "During handling of the above exception, another exception occurred:", "", *ERROR],
        ["Exception ignored in: <function Cache.__del__ at 0x7f>", *ERROR],
        ["Exception in thread Thread-1 (pump):", *ERROR],
        ["Process SpawnProcess-1:", *ERROR],
        ["RuntimeError: step 12 failed"],
    ],
)
def test_an_exception_that_is_not_the_end_outweighs_none(report: str, more: list[str]) -> None:
    cause = judge([TRACEBACK, '  File "train.py", line 3, in <module>', report, *more], 1)
    assert cause.slug != "user-code"


def test_an_exception_of_another_rank_outweighs_none() -> None:
    lines = [f"[rank3]: {REAL[2]}", *(f"[rank0]: {line}" for line in ERROR)]
    assert judge(lines, 1).slug == "gpu-ecc"
