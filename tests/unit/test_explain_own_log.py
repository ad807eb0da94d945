"""`entrypoint explain` on the log of a job of this toolkit: what the toolkit has said in it is the
answer, and the node is the one that it names."""

from __future__ import annotations

import itertools
import re

import pytest

from entrypoint.base.cause import Cause
from entrypoint.base.errors import UsageError
from entrypoint.base.values import replace
from entrypoint.causes.judge import judge
from entrypoint.causes.phrase import phrase
from entrypoint.causes.table import KINDS, signatures
from entrypoint.features.explain import explanation
from entrypoint.features.explain.failures import explained, read_phrase
from tests.unit.devicefaults import OLD_ECC, fault

GPU = (
    "GPU 2 of worker-3 (node-3) reported an uncorrectable ECC error, in rank 13 (device; retry"
    " elsewhere)"
)
LOG = (
    "[entrypoint worker-0] last 1 line of rank 13 on worker-3 (node-3):",
    "[entrypoint worker-0]   | RuntimeError: CUDA error: uncorrectable ECC error encountered",
    f"[entrypoint worker-0] cause: {GPU}",
    "[entrypoint worker-0] EP600 rank 13 on worker-3 (node-3) exited with 1; exit 1",
)
OOM = (
    "the memory of this container was used up, and the kernel killed a process, in rank 1 on"
    " worker-1 (b)"
)


@pytest.mark.promise("`explain FILE` says what the toolkit has said in the job's log")
@pytest.mark.parametrize("prefix", ["", "2024-05-01T10:00:00.123Z ", "pod-0  | ", "worker-0: "])
@pytest.mark.parametrize("before", [[], ["[rank1]: Connection reset by peer"], ["KeyError: 'a'"]])
def test_the_cause_in_the_log_is_the_answer(prefix: str, before: list[str]) -> None:
    cause = explained([prefix + line for line in [*before, *LOG]])
    assert (cause.slug, cause.retry, cause.certainty) == ("gpu-ecc", "elsewhere", "high")
    assert phrase(cause) == GPU
    assert cause.lines == (f"cause: {GPU}",)


@pytest.mark.control("`explain FILE` says what the toolkit has said in the job's log")
def test_what_a_program_says_of_a_cause_is_none() -> None:
    assert explained(["the cause: perhaps (who knows)", "KeyError: 'a'"]).slug == "user-code"
    assert explained(["cause: nothing", "KeyError: 'a'"]).slug == "user-code"


@pytest.mark.parametrize(
    ("end", "said"),
    [
        (
            "EP601 rank 1 on worker-1 (b) exited with 137 (128 + SIGKILL); exit 137",
            "program; a retry does not help",
        ),
        ("EP628 more; exit 1", "a retry does not help"),
    ],
)
def test_the_log_of_each_node_gives_the_same_cause(end: str, said: str) -> None:
    """Those of a job whose rank was killed for memory: a stop, a lost peer, and the rank's own."""
    for own in (
        ["[rank0]: torch.distributed.DistBackendError: Connection closed by peer"],
        ["[entrypoint worker-2] SIGTERM: stopping", "Terminated"],
        ["KeyError: 'a'", "slurmstepd: error: *** JOB 1 ON a CANCELLED AT x ***"],
    ):
        lines = [
            *own,
            f"[entrypoint worker-2] cause: {OOM} ({said})",
            f"[entrypoint worker-2] {end}",
        ]
        cause = explained(lines)
        assert (cause.slug, cause.retry, phrase(cause)) == ("host-oom", "no", f"{OOM} ({said})")


def test_the_node_that_the_toolkit_names_beats_the_prefix() -> None:
    place = ("rank 13", "worker-3 (node-3)")
    for lines in ([*LOG[:2], LOG[3]], LOG[:2]):
        cause = explained(lines)
        assert (cause.slug, cause.retry) == ("gpu-ecc", "elsewhere")
        assert (cause.rank, cause.node) == place
    shown = ["worker-0: [rank13]: RuntimeError: CUDA error: uncorrectable ECC error", LOG[3]]
    assert (explained(shown).rank, explained(shown).node) == place
    other = ["[rank7]: RuntimeError: CUDA error: uncorrectable ECC error encountered", LOG[3]]
    assert explained(other).rank == "rank 7"


def test_an_end_without_a_cause_is_what_its_message_says() -> None:
    lines = ["KeyError: 'a'", "[entrypoint] EP605 worker-1 did not answer within 300 s; exit 69"]
    assert explained(lines).slug == "rendezvous-timeout"
    assert (
        explained([*LOG, "[entrypoint] the program ended on all nodes; exit 0"]).slug == "harmless"
    )
    assert explained(["KeyError: 'a'", "[entrypoint] EP600 program 0 exited with 1; exit 1"]).lines


@pytest.mark.parametrize("rank", ["", "rank 7"])
def test_each_cause_is_read_as_it_is_said(rank: str) -> None:
    for row, node in itertools.product(signatures(), ("", "worker-3 (node-3)")):
        kind = KINDS[row.slug]
        about = (row.role or kind.role, row.blame or kind.blame, row.retry or kind.retry)
        says = (row.says or kind.says).replace("{xid}", "79").replace("{name}", "KeyError")
        cause = Cause(row.slug, *about, row.certainty or kind.certainty, says, rank=rank, node=node)
        _is_read(cause)


def test_what_a_node_has_measured_is_read_as_it_is_said() -> None:
    for lines, evidence in (
        (["RuntimeError: CUDA error: unspecified launch failure"], OLD_ECC),
        (["RuntimeError: CUDA error: unspecified launch failure"], fault("xid", 79)),
        (["RuntimeError: CUDA error: invalid device ordinal"], fault("missing")),
        (["the vector core execution is abnormal"], fault("health")),
    ):
        _is_read(replace(judge(lines, 1, "", evidence), node="worker-1 (b)"))


def _is_read(cause: Cause) -> None:
    found = read_phrase(phrase(cause))
    assert found is not None, cause
    assert phrase(found) == phrase(cause)
    assert (found.retry, found.certainty) == (cause.retry, cause.certainty)
    assert found.slug == cause.slug or found.says.startswith(KINDS[cause.slug].says), cause


@pytest.mark.parametrize(
    ("words", "causes"),
    [
        ("OOM", ["gpu-oom", "gpu-oom-foreign", "host-oom"]),
        ("Connection refused", ["net-unreachable"]),
        ("libuv", ["setup"]),
        ("gpu-oom", ["gpu-oom"]),
        ("GPU-OOM", ["gpu-oom"]),
        ("CUDA out of memory", ["gpu-oom"]),
        ("OSError: [Errno 28] No space left on device", ["disk-full"]),
    ],
)
def test_what_people_paste_is_explained(words: str, causes: list[str]) -> None:
    text = explanation(words, 100)
    assert [line for line in text.splitlines() if line and line[0] != " "] == causes
    assert text.count("  fix ") == len(causes)


def test_words_of_no_cause_are_refused() -> None:
    with pytest.raises(UsageError, match="EP130 there is no such message"):
        explanation("zebra crossing", 100)


def test_a_status_names_no_other() -> None:
    for number, name in ((137, "SIGKILL"), (139, "SIGSEGV"), (130, "SIGINT")):
        about = explanation(str(number), 100).partition("\n\n")[0]
        assert name in about
        assert {*re.findall(r"\b1[2-9]\d\b", about)} == {"128", str(number)}
    assert "after a preemption (143) retry" in explanation("143", 100)


@pytest.mark.parametrize(
    ("prefix", "node"),
    [
        ("worker_3.log-42-", "worker_3"),
        ("worker-3.log:42:", "worker-3"),
        ("node-12.out:7: ", "node-12"),
        ("worker-3: ", "worker-3"),
        ("worker-3.job-7: ", "worker-3.job-7"),
    ],
)
def test_a_file_of_grep_is_no_host(prefix: str, node: str) -> None:
    line = f"{prefix}RuntimeError: CUDA error: uncorrectable ECC error encountered"
    cause = explained([line], 1)
    assert (cause.slug, cause.node, cause.is_infrastructure) == ("gpu-ecc", node, True)


def test_the_words_of_an_exception_are_in_its_cause() -> None:
    words = "cannot shard 7 heads on 4 ranks: " + "x" * 200
    for text in (f"RuntimeError: {words}", f"RuntimeError:\n    {words}"):
        cause = explained(["Traceback (most recent call last):", *text.split("\n")], 1)
        assert cause.says.startswith(f"the program ended with RuntimeError: {words[:80]}")
        assert len(cause.says) < 130
        said = read_phrase(phrase(cause))
        assert said is not None
        assert (said.slug, said.says) == ("user-code", cause.says)
