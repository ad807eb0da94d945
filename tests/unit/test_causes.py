"""Why a rank or program failed: the table of signatures, and the rules by which one wins."""

from __future__ import annotations

import itertools
import re
from typing import Any

import pytest

from entrypoint.base.cause import Cause
from entrypoint.base.values import replace
from entrypoint.causes.evidence import DeviceFault, Evidence
from entrypoint.causes.judge import judge
from entrypoint.causes.phrase import first_cause, phrase
from entrypoint.causes.table import HARDWARE, KINDS, Signature, signatures
from tests import table
from tests.backtracking import parsed, sample
from tests.unit.devicefaults import fault

TABLE = table("tests/tables/causes.yaml")

KEY_ERROR = ["Traceback (most recent call last):", '  File "train.py", line 3', "KeyError: 'a'"]
ECC = "RuntimeError: CUDA error: uncorrectable ECC error encountered"
RESET = "RuntimeError: [pair.cc:598] Connection closed by peer [10.0.0.3]:28040"
CHILD = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: "
MODULE = "ModuleNotFoundError: No module named 'apex'"
LAUNCH_FAILURE = "RuntimeError: CUDA error: unspecified launch failure"
OOM = "RuntimeError: CUDA out of memory."
FULL = (
    "CUDA out of memory. Tried to allocate 2.00 GiB (GPU 1; 79.15 GiB total capacity; {} GiB already"
    " allocated; 20.00 MiB free; {} GiB reserved in total by PyTorch)"
)
NAMED = {
    "KEY_ERROR": KEY_ERROR, "ECC": [ECC], "RESET": [RESET], "CHILD": [CHILD], "MODULE": [MODULE],
    "LAUNCH_FAILURE": [LAUNCH_FAILURE], "OOM": [OOM], "FULL": [FULL.format(70, 75)],
}  # fmt: skip
RETRY = re.compile(
    r"[(;] ?(a retry does not help|retry( elsewhere)?|whether a retry helps is unknown)[;)]"
)


def spelled(lines: list[str]) -> list[str]:
    """Return an output of the table with the lines that it names."""
    return [line for word in lines for line in NAMED.get(word, [word])]


# --------------------------------------------------------------------------------------------------
# The table


def test_the_kinds_are_those_of_the_documentation() -> None:
    assert len(KINDS) == 48
    assert {row.slug for row in signatures()} == KINDS.keys() - {
        "harmless",
        "gpu-oom-foreign",
        "node-unhealthy",
        "node-left",
        "own-word",
    }
    for kind in KINDS.values():
        assert not kind.fix.endswith("."), kind.slug
        assert not kind.says.endswith("."), kind.slug


def test_every_row_is_well_formed() -> None:
    for row in signatures():
        assert row.needle.strip(), row
        held = set(re.findall(r"{(\w+)}", row.says))
        assert held <= {"device", *re.compile(row.pattern).groupindex}, row
        assert not row.says.endswith("."), row


@pytest.mark.parametrize("rank", ["", "7"])
def test_every_row_reads_as_a_sentence(rank: str) -> None:
    for row, device in itertools.product(signatures(), ("", "GPU 2")):
        cause = _cause(row.slug, row, device)
        text = phrase(placed(cause, "worker-3 (node-3)", rank))
        assert "worker-3 (node-3)" in text
        assert "{device}" not in text
        assert text.isprintable()
        assert not rank or "rank 7" in text
        assert RETRY.search(text), text
        assert ("not certain" in text) == (cause.certainty == "low")


def placed(cause: Cause, node: str, rank: str = "") -> Cause:
    return replace(cause, node=node, rank=f"rank {rank}" if rank else "")


def _cause(slug: str, row: Signature | None = None, device: str = "") -> Cause:
    said = row or KINDS[slug]
    about = (said.role, said.blame, said.retry, said.certainty, said.says)
    return Cause(slug, *about, device=device)


@pytest.mark.parametrize(
    ("cause", "rank", "text"),
    [
        (
            _cause("gpu-ecc", device="GPU 2"),
            "",
            "GPU 2 of worker-3 reported an uncorrectable ECC error (device; retry elsewhere)",
        ),
        (
            _cause("gpu-ecc"),
            "5",
            "an accelerator of worker-3 reported an uncorrectable ECC error in rank 5 (device; retry"
            " elsewhere)",
        ),
        (_cause("shm-full"), "5", "/dev/shm was full in rank 5 on worker-3 (platform; a retry does not help)"),
        (
            _cause("killed-unknown"),
            "",
            "a process was killed, and nothing says why, on worker-3 (whether a retry helps is"
            " unknown; not certain)",
        ),
    ],
)  # fmt: skip
def test_a_phrase(cause: Cause, rank: str, text: str) -> None:
    assert phrase(placed(cause, "worker-3", rank)) == text


# --------------------------------------------------------------------------------------------------
# The rules


@pytest.mark.parametrize(("lines", "slug"), TABLE["winners"])
def test_which_cause_wins(lines: list[str], slug: str) -> None:
    assert judge(spelled(lines), 1).slug == slug


@pytest.mark.parametrize(
    ("lines", "faults", "certainty"),
    [
        ([ECC], (), "high"),
        (["Warning: will abort on an uncorrectable ECC error"], (), "low"),
        ([ECC, "step 12 loss 0.3"], (), "low"),
        ([ECC, "step 12 loss 0.3"], (DeviceFault("GPU 2", "ecc", "3 errors", 3),), "high"),
        ([ECC, "step 12 loss 0.3"], (DeviceFault("GPU 2", "missing", "gone"),), "low"),
    ],
)
def test_a_device_is_certain_only_if_nothing_speaks_against_it(
    lines: list[str], faults: tuple[DeviceFault, ...], certainty: str
) -> None:
    """A job boots again after certain causes alone."""
    cause = judge(lines, 7, evidence=Evidence(device_faults=faults))
    assert (cause.slug, cause.certainty) == ("gpu-ecc", certainty)
    assert cause.device == ("GPU 2" if certainty == "high" and faults else "")


# What healthy jobs print, too. A mistake after it stays the program's.
HARMLESS: list[str] = table("tests/tables/harmless.yaml")


@pytest.mark.promise("labelled failures are judged rightly, and no mistake is retried")
@pytest.mark.parametrize("noise", HARMLESS)
def test_noise_before_a_mistake_changes_nothing(noise: str) -> None:
    for lines in ([noise, *KEY_ERROR], ["step 1 loss 0.3", noise, "step 2 loss 0.2", *KEY_ERROR]):
        cause = judge(lines, 1)
        assert (cause.slug, cause.retry, cause.certainty) == ("user-code", "no", "high")
    assert judge([noise], 0).slug == "harmless"


REAL = [(spelled(lines), status) for lines, status in TABLE["real"]]
# A host without an address of one family: torch goes on with the other one.
NO_IPV6 = (
    "[W{} socket.cpp:601] [c10d] The IPv6 network addresses of (node-0, 29500) cannot be retrieved"
    " (gai error: {})."
)


@pytest.mark.promise("a warning hides no real cause")
@pytest.mark.parametrize("mark", ["", "1128 10:00:00.123456789"])
@pytest.mark.parametrize(
    "error",
    [
        "-2 - Name or service not known",
        "-3 - Temporary failure in name resolution",
        "-5 - No address associated with hostname",
        "-9 - Address family for hostname not supported",
    ],
)
def test_a_host_without_ipv6_hides_no_cause(error: str, mark: str) -> None:
    line = NO_IPV6.format(mark, error)
    for real, status in REAL:
        for noise in ([line], [line, line, "step 1 loss 10.9"], [f"[rank3]:{line}"]):
            assert judge([*noise, *real], status).slug == judge(real, status).slug, real
    assert judge([line], 1).slug == "user-code"


@pytest.mark.promise("a warning hides no real cause")
@pytest.mark.parametrize(("real", "status"), REAL[:5])
def test_no_row_counts_in_full_on_a_warning(real: list[str], status: int) -> None:
    for row in signatures():
        text = sample(parsed(row.pattern)) if row.pattern else row.needle
        if row.weight > HARDWARE + 5 and row.needle in text and not row.also:
            lines = [f"WARNING: trainer: {text}", "step 12 loss 0.3", *real]
            assert judge(lines, status).slug == judge(real, status).slug, text


@pytest.mark.control("a warning hides no real cause")
def test_a_name_without_any_address_is_a_cause() -> None:
    six = NO_IPV6.format("", "-2 - Name or service not known")
    four = six.replace("IPv6", "IPv4")
    late = "[E socket.cpp:860] [c10d] The client socket has timed out after 1800s while trying to"
    assert judge([six, four], 1).slug == "dns"
    assert judge([six, f"{late} connect to (node-0, 29500)."], 1).slug == "dns"
    assert judge([f"{late} connect to (node-0, 29500)."], 1).slug == "rendezvous-timeout"


def test_code_in_a_traceback_is_no_evidence() -> None:
    frame = '  File "a.py", line 3, in f'
    for code in ("except KeyboardInterrupt:", "raise OSError('No space left on device')"):
        assert judge([frame, f"    {code}", "KeyError: 'a'"], 1).slug == "user-code"


@pytest.mark.parametrize(("status", "signal", "slug", "retry"), TABLE["ends"])
def test_an_end_without_words_is_a_guess(
    status: int | None, signal: str, slug: str, retry: str
) -> None:
    cause = judge(["step 3 done"], status, signal)
    assert (cause.slug, cause.retry, cause.certainty) == (slug, retry, "low")
    assert cause.lines == ()


def test_the_end_weighs_less_than_words() -> None:
    assert judge([ECC], 137).slug == "gpu-ecc"
    assert judge(KEY_ERROR, 143).slug == "user-code"
    # but handlers of Ctrl-C may print exceptions
    assert judge(KEY_ERROR, None, "SIGINT").slug == "stopped-outside"


def test_the_lines_of_a_cause_are_few_short_and_one_line_each() -> None:
    lines = [
        f"\x1b[1mOSError: [Errno 28] No space left on device: '/data/{n}{'x' * 5000}'"
        for n in range(9)
    ]
    cause = judge(lines, 1)
    assert cause.slug == "disk-full"
    assert 1 <= len(cause.lines) <= 3
    assert all(len(line) <= 320 and line.isprintable() for line in cause.lines)


def test_foreign_text_is_bounded_in_the_words_of_a_cause() -> None:
    cause = judge(["NVRM: Xid (PCI:0000:9b:00): 149, NETIR_LINK_EVT Fatal"], 1)
    assert (cause.slug, cause.device) == ("nvlink", "GPU 0000:9b:00")
    assert phrase(placed(cause, "worker-1")) == (
        "GPU 0000:9b:00 of worker-1 reported an NVLink fault (Xid 149) (device; retry elsewhere)"
    )


@pytest.mark.parametrize(
    ("line", "device"),
    [
        ("torch.cuda.OutOfMemoryError: CUDA out of memory. (GPU 3; 1.00 GiB total capacity)", "GPU 3"),
        ("NVRM: GPU6 heartbeat timed out", "GPU 6"),
        ("EZ9999: The error from device(chipId:4, dieId:0), aicore exception", "NPU 4"),
        ("Unable to determine the device handle for GPU 0000:02:00.0: GPU is lost.", "GPU 0000:02:00.0"),
        ("KeyError: 'GPU 3'", ""),
    ],
)  # fmt: skip
def test_the_device_is_named(line: str, device: str) -> None:
    assert judge([line], 1).device == device


@pytest.mark.parametrize(
    ("causes", "slug"),
    [
        (["launcher-stop", "peer-lost", "gpu-ecc"], "gpu-ecc"),
        (["peer-lost", "collective-timeout"], "collective-timeout"),
        (["user-code", "gpu-ecc"], "gpu-ecc"),
        (["user-code", "disk-full"], "disk-full"),
        (["collective-timeout", "killed-unknown"], "killed-unknown"),
    ],
)
def test_the_first_root_is_the_jobs(causes: list[str], slug: str) -> None:
    for order in itertools.permutations([_cause(name) for name in causes]):
        found = first_cause(order)
        assert found.slug == slug
    assert first_cause([]) is None
    two = [_cause("disk-full", device="a"), _cause("disk-full", device="b")]
    assert first_cause(two) is two[0]
    two[1] = replace(two[1], rank="rank 3")
    assert first_cause(two) is two[1], "a launcher repeats what its ranks print"


# --------------------------------------------------------------------------------------------------
# What the node measured


@pytest.mark.parametrize(("lines", "status", "measured", "slug", "certainty"), TABLE["measured"])
def test_measurements_are_weighed_with_the_output(
    lines: list[str], status: int, measured: dict[str, Any], slug: str, certainty: str
) -> None:
    device = fault(*measured["fault"]) if "fault" in measured else None
    evidence = device or Evidence(**measured)
    cause = judge(spelled(lines), status, "", evidence)
    assert (cause.slug, cause.certainty) == (slug, certainty)
    if evidence.device_faults and slug.startswith(("gpu-ecc", "gpu-lost", "nvlink")):
        assert cause.device == "GPU 2"
        assert cause.retry == "elsewhere"


def test_the_numbers_tell_whose_memory_was_full() -> None:
    assert judge([FULL.format(70, 75)], 1).slug == "gpu-oom"
    foreign = judge([FULL.format(10, 12)], 1)
    assert (foreign.slug, foreign.retry) == ("gpu-oom-foreign", "elsewhere")
    assert judge([OOM], 1).certainty == "low"
