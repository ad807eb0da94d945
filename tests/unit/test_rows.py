"""The tables of tests: those named are there, and what the engines' look at would notice a job that
went wrong."""

from __future__ import annotations

import re

import pytest

from tests.containers import TREE
from tests.promises import promises, sources
from tests.rows import EXAMPLES, LAUNCHERS, ROWS, agrees, expected, places

GOOD = "loss 1.5 -> 0.5\ndifference to one process: 1.0e-13 (allowed 1e-12)\n"


def test_every_row_names_a_test_of_its_own() -> None:
    rows = (*ROWS, *LAUNCHERS)
    assert len({row.test for row in rows}) == len(rows)
    for row in rows:
        file, _, name = row.test.partition("::")
        function = re.escape(name.partition("[")[0])
        assert re.search(rf"^def {function}\(", (TREE / file).read_text(), re.M), row.test


def test_every_promise_has_a_test_and_a_control() -> None:
    every = promises(sources())
    assert len(every) > 100
    assert [(promise.text, promise.lacks) for promise in every if promise.lacks] == []
    # The control: one that has lost its test, and one without a control.
    module = (
        '@pytest.mark.control("a")\ndef test_a(): ...\n@pytest.mark.promise("b")\ndef test_b():'
        " ...\n"
    )
    assert [promise.lacks for promise in promises({"unit/test_x.py": module})] == [
        "a test",
        "a control",
    ]


def test_every_example_that_trains_is_in_a_row() -> None:
    text = "".join(
        (TREE / file).read_text() for file in {row.test.partition("::")[0] for row in ROWS}
    )
    text += " ".join(each.spec for each in EXAMPLES.values())
    for folder in sorted((TREE / "examples").iterdir()):
        if folder.name not in ("spec", "local") and list(folder.glob("*.yaml")):
            name = folder.name.removeprefix("pytorch-")
            assert f'"{name}' in text or f'"{folder.name}' in text or f"{folder.name}/" in text, (
                folder.name
            )


def test_agreement_is_noticed() -> None:
    agrees(GOOD, "1e-12")


@pytest.mark.control("every launcher trains over several nodes as one process would")
@pytest.mark.parametrize(
    "log",
    [
        pytest.param(GOOD.replace("1.0e-13", "1.0e-11"), id="apart"),
        pytest.param(GOOD.replace("1.0e-13", "nan"), id="not a number"),
        pytest.param(GOOD.replace("1e-12", "1e-02"), id="another tolerance"),
        pytest.param(GOOD.replace("0.5", "1.4"), id="no better"),
        pytest.param("loss 1.5 -> 0.5\n", id="not compared"),
    ],
)
def test_disagreement_is_noticed(log: str) -> None:
    with pytest.raises(AssertionError):
        agrees(log, "1e-12")


def test_ranks_that_all_ran_on_one_host_are_noticed() -> None:
    line = "rank {} of 4 on {}, local rank {}, pid 7\n"
    right = "".join(line.format(rank, f"w-{rank // 2}", rank % 2) for rank in range(4))
    wrong = "".join(line.format(rank, "w-0", rank) for rank in range(4))
    assert places(right) == expected(["w-0", "w-1"])
    assert places(wrong) != expected(["w-0", "w-1"])
