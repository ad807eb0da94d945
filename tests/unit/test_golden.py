"""What every node of every case gets comes out as it is written down."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import golden_pages
from tests.golden import (
    CASES,
    COMPLETE,
    COUNTED,
    cases,
    compared,
    counted,
    expectation,
    golden,
    written,
)

READ = "run `make golden` and read the difference"


def name(path: Path) -> str:
    return str(path.relative_to(CASES))


@pytest.mark.promise(
    "every file of every launcher is as written down", control="a changed line of a template"
)
@pytest.mark.promise(
    "every TensorFlow process is told the same number of workers",
    control="tensorflow/two, in the same test",
)
@pytest.mark.parametrize("case", cases(), ids=name)
def test_golden(case: Path) -> None:
    assert expectation(case) == (case / "expect.yaml").read_text(encoding="utf-8"), (
        f"{name(case)}: {READ}"
    )


@pytest.mark.parametrize("path", sorted(golden()))
def test_a_template_s_complete_file(path: str) -> None:
    assert golden()[path] == (COMPLETE / path).read_text(encoding="utf-8"), f"{path}: {READ}"


def test_every_complete_file_has_its_template() -> None:
    assert written() == {*golden()}, READ


def test_what_differs_is_shown_with_its_place() -> None:
    """The control: each line that is changed, added, removed or moved is in what a case says."""
    whole = "".join(f"line {number}\n" for number in range(9))
    assert compared("a/b.sh", whole, whole) == "same as a/b.sh\n"
    changed = whole.replace("line 4", "line four").replace("line 7\n", "")
    expected = ["differs from a/b.sh", "@@ line 3", "-line 4", "+line four", "@@ line 6", "-line 7"]
    assert compared("a/b.sh", whole, changed).split("\n      ") == [
        "|",
        *expected[:-1],
        "-line 7\n",
    ]
    # A line in another place is another text.
    first, second = (whole.replace(f"line {at}\n", f"line {at}\nnew\n") for at in (2, 5))
    assert compared("a/b.sh", whole, first) != compared("a/b.sh", whole, second)
    # Where most lines differ, all of them are there.
    assert compared("a/b.sh", whole, "one\ntwo\n") == "|\n      one\n      two\n"
    # Of lines that count, the first and the last; one that is missing or differs elsewhere is shown.
    assert counted(["a-8 x", "a-9 x", "a-10 x", "a-11 x"]) == ["a-8 x", COUNTED, "a-11 x"]
    for lines in ("a-1 a-2 a-3", "a-1 a-2 a-4 a-5", "1.1 2.2 3.3 4.4", "a-1 a-2 b-3 b-4"):
        assert counted(lines.split()) == lines.split()


@pytest.mark.parametrize("page", golden_pages.pages(), ids=lambda page: page.name)
def test_a_page_is_what_the_code_says(page: Path) -> None:
    assert page.read_text(encoding="utf-8") == golden_pages.pages()[page], "run make golden"
