"""The page of the benchmarks is that of the committed numbers. Nothing is timed."""

from __future__ import annotations

import json
import re
from pathlib import Path

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
