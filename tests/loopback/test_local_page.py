"""docs/how-to/local.md shows what `entrypoint local` does: every command of it is run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests import TREE
from tests.local import Make

pytestmark = pytest.mark.see

# What may be another in each run.
_OTHER = (
    r"ssh port \d+|\d+ processes|last message [\d.]+s|heard of it for [\d.]+s|after [\d.]+s$|step"
    r" \d+|\d+s/600s"
    r"|\((no DNS|nothing listens there yet|not reached yet)\)"
)


def blocks() -> list[tuple[list[str], list[str]]]:
    """Each command of the page that shows its output: its words, and the lines."""
    page = (TREE / "docs/how-to/local.md").read_text()
    found = re.findall(r"^```\n\$ entrypoint local (.*)\n((?:.*\n)*?)```$", page, re.MULTILINE)
    return [
        (shlex.split(words), [line for line in text.splitlines() if line != "..."])
        for words, text in found
    ]


def missing(shown: list[str], seen: str) -> list[str]:
    """The lines that are shown and were not seen."""
    lines = {re.sub(_OTHER, "#", line) for line in seen.splitlines()}
    return [line for line in shown if re.sub(_OTHER, "#", line) not in lines]


@pytest.mark.promise(
    "the page about `entrypoint local` shows what it does",
    control="a line that is not there, in the same test",
)
@pytest.mark.slow
@pytest.mark.parametrize("first", [0, 3])
def test_the_page_shows_what_happens(local: Make, first: int) -> None:
    """Three at a time, since they mostly wait."""
    if not list(Path("/usr/lib").glob("*/libnss_wrapper.so")):
        pytest.skip("needs libnss-wrapper")
    assert len(blocks()) == 5
    jobs = [(local(*words, cwd=TREE), shown) for words, shown in blocks()[first : first + 3]]
    for job, shown in jobs:
        job.ends()
        assert missing(shown, job.out + job.err) == [], job.out + job.err
        assert missing(["node 7 of 3: step 3"], job.out + job.err)
