"""What was called the program's own failure, or its memory, and is not: whose it is, and what the cause
names."""

from __future__ import annotations

import pytest

from entrypoint.causes.judge import judge
from tests import table

TABLE = table("tests/tables/blame.yaml")

TRACEBACK = ["Traceback (most recent call last):", '  File "train.py", line 3, in <module>']
PSEC = """\
A requested component was not found, or was unable to be opened.  This
means that this component is either not installed or is unable to be
used on your system (e.g., sometimes this means that shared libraries
that the component requires are unable to be found/loaded).  Note that
PMIx stopped checking at the first component that it did not find.

Host:      vm
Framework: psec
Component: munge"""
RAY = """\
RuntimeError: Version mismatch: The cluster was started with:
    Ray: 2.9.0
    Python: 3.10.12
This process on node 10.0.0.4 was started with:
    Ray: 2.10.0
    Python: 3.11.4"""
GRPC = """\
grpc._channel._InactiveRpcError: <_InactiveRpcError of RPC that terminated with:
\tstatus = StatusCode.{}
\tdetails = "{}"
\tdebug_error_string = "UNKNOWN:Error received from peer"
>"""


@pytest.mark.parametrize(
    ("output", "slug", "words"),
    [
        *TABLE["verdicts"],
        (PSEC, "setup", "PMIX_MCA_"),
        (PSEC.replace("psec", "btl"), "setup", "component"),
        (RAY, "lib-mismatch", "Ray 2.9.0 with Python 3.10.12, and Ray 2.10.0 with Python 3.11.4"),
        (GRPC.format("UNAVAILABLE", "Socket was reset"), "net-unreachable", ""),
        (GRPC.format("DEADLINE_EXCEEDED", "Deadline Exceeded"), "collective-timeout", ""),
    ],
)  # fmt: skip
@pytest.mark.promise("labelled failures are judged rightly, and no mistake is retried")
def test_whose_it_is(output: str, slug: str, words: str) -> None:
    cause = judge([*TRACEBACK, *output.split("\n")], 1)
    assert (cause.slug, words in f"{cause.says} {cause.fix}") == (slug, True), cause
    assert cause.retry in ("no", "unknown"), cause


@pytest.mark.parametrize(("output", "slug"), TABLE["others"])
@pytest.mark.control("labelled failures are judged rightly, and no mistake is retried")
def test_what_only_looks_like_it(output: str, slug: str) -> None:
    cause = judge([*TRACEBACK, *output.split("\n")], 1)
    assert (cause.slug, "HOME" in cause.fix) == (slug, False)
