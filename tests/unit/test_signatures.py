"""The judge on single lines: every pattern is a regular expression, counts of zero are no errors, and
all nodes have the same lines."""

from __future__ import annotations

import json
import re

import pytest

from entrypoint.cause import Cause
from entrypoint.causes.judge import judge
from entrypoint.causes.signatures import SIGNATURES
from entrypoint.wire import read, to_json


def test_every_pattern_is_a_regular_expression() -> None:
    """One that is not would cost the diagnosis of every output with its needle."""
    for signature in SIGNATURES:
        re.compile(signature.pattern)


@pytest.mark.parametrize(
    "line",
    [
        "health check: 0 uncorrectable ECC errors, 0 Xid errors",
        "GPU 0: uncorrectable ECC errors: 0",
        "no uncorrectable ECC errors",
        "uncorrectable ECC errors = none",
    ],
)
def test_errors_that_did_not_happen(line: str) -> None:
    assert judge([line], 7).slug == "user-code"


@pytest.mark.parametrize(
    "line",
    ["2 uncorrectable ECC errors", "uncorrectable ECC errors: 10", "uncorrectable ECC error"],
)
def test_errors_that_did(line: str) -> None:
    """The control."""
    assert judge([line], 7).slug == "gpu-ecc"


def test_the_lines_of_a_cause_are_not_cut_again_on_the_way_to_other_nodes() -> None:
    """Ray colours its lines, and they are long."""
    end = "Worker unexpectedly exits with a connection error code 2."
    line = f"\x1b[33m(raylet)\x1b[0m A worker died. {'Worker ID: 6bd742af ' * 20} {end}"
    cause = judge([line], 1)
    assert cause.lines[0].startswith("(raylet) A worker died")
    assert read(Cause, json.loads(to_json(cause))) == cause
