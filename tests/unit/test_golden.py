"""What every node of every case gets comes out as it is written down."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from entrypoint.base.errors import SpecError
from entrypoint.base.model import Plan
from entrypoint.base.registry import names
from entrypoint.spec import fields
from entrypoint.spec.former import FORMER
from tests import golden_pages
from tests.golden import (
    CASES,
    COMPLETE,
    COUNTED,
    cases,
    changed,
    compared,
    counted,
    expectation,
    golden,
    plan,
    start,
    written,
)

READ = "run `make golden` and read the difference"


def document(case: Path) -> dict[str, Any]:
    """Return the spec of a case."""
    found: dict[str, Any] = yaml.safe_load((case / "job.yaml").read_text("utf-8"))
    return found


def options(made: Plan) -> set[str]:
    """Return the options with a value that the programs of a node start with."""
    return {word for program in made.launch.programs for word in program.argv if "=" in word}


def is_passed_on(case: Path, option: str) -> bool:
    """Return whether `launcher_args` may set an option to another value."""
    other = f"{option.partition('=')[0]}=none"
    try:
        return other in options(changed(case, "launcher_args", [other]))
    except SpecError:
        return False


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


# The sections of launchers. process/test_mpirun_line.py has that of mpi, and
# process/test_torch_scripts.py has torch.rdzv_backend.
SECTIONS = ["torch", "tensorflow", "ray", "ascend"]
OF_LAUNCHERS = [
    (field.path, tuple(names("launchers")))
    for field in fields()
    if field.path.partition(".")[0] in SECTIONS and field.path != "torch.rdzv_backend"
] + [(former.now, former.launchers) for former in FORMER.values() if "." not in former.now]


@pytest.mark.parametrize(("path", "launchers"), OF_LAUNCHERS)
def test_every_field_of_a_launcher_changes_a_case(path: str, launchers: tuple[str, ...]) -> None:
    """A field that no case has or that its launcher does not use is named, with what is missing;
    so is an option that the field sets and that `launcher_args` could set, too."""
    section, _, name = path.rpartition(".")
    those = [
        case
        for case in cases()
        if case.parent.name in launchers
        and name in ((document(case).get(section) or {}) if section else document(case))
    ]
    assert those, f"give {path} a value in a job.yaml of tests/launchers, under {launchers}"
    plans = [(case, plan(case, "node-0"), changed(case, path, None)) for case in those]
    assert any(start(with_it) != start(without) for _, with_it, without in plans), (
        f"use {path} in entrypoint/launchers: no case changes without it"
    )
    both = [
        option
        for case, with_it, without in plans
        for option in sorted(options(with_it) - options(without))
        if path != "launcher_args" and is_passed_on(case, option)
    ]
    assert both == [], f"have launcher_args refuse the options of {path}: _SETTLED"


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
