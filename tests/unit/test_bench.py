"""The page of the benchmarks is that of the committed numbers. Nothing is timed."""

from __future__ import annotations

import json
import re
from pathlib import Path

from scripts.bench import share
from scripts.bench.page import laid, text
from scripts.bench.rows import ROWS


def test_the_committed_page_is_that_of_the_committed_numbers() -> None:
    docs = Path(__file__).parents[2] / "docs"
    page = (docs / "performance.md").read_text()
    kept = json.loads((docs / "performance.json").read_text())
    assert laid(page, text(ROWS, kept)) == page
    # Control: other numbers, another page.
    assert laid(page, text(ROWS, {**kept, "boot": {**kept["boot"], "at": "another day"}})) != page


def test_the_first_table_has_figures_of_the_rows() -> None:
    page = (Path(__file__).parents[2] / "docs/performance.md").read_text()
    answer, _, figures = page.partition("## Figures")
    stated = re.findall(r"\| ([\d.]+ (?:s|MB|%))", answer)
    assert len(stated) == 8
    assert [figure for figure in stated if f": {figure} |" not in figures] == []


def test_the_toolkit_s_own_share_follows_from_the_raw_numbers() -> None:
    """2,047 workers: 1.20 + 0.1164 x 11.2 s of a restart, and so on; a stop each 11,135 s."""
    kept = json.loads((Path(__file__).parents[2] / "docs/performance.json").read_text())
    for each in (*kept["ten-thousand"]["series"], *kept["restart-at-scale"]["series"]):
        if each["case"].endswith("until it runs again"):
            each["runs"] = [6.0]
        elif each["case"].endswith("noticed"):
            each["runs"] = [21.0]
    lines = [line.strip("| ").split(" | ") for line in share.text(kept).splitlines()[4:]]
    assert [line[-2 if line[-1] in ("yes", "no") else -1] for line in lines] == [
        f"{100 * seconds / (54 * 86400 / 419):#.3g} %"
        for seconds in (8, 27, (331 * 8 + 88 * 27) / 419, (331 * 8 + 88 * 65) / 419)
    ]
    assert [line[-1] for line in lines[2:]] == ["no", "no"], "the control: the page says yes to one"
    assert share.text({}) == ""
