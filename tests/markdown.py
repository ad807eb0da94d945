"""Markdown that the pages have which are rendered from the code."""

from __future__ import annotations

from collections.abc import Sequence


def markdown_table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the rows as the lines of a table in Markdown; the first is the head."""
    lines = [" | ".join(cell.replace("|", "\\|") for cell in row) for row in rows]
    return [f"| {lines[0]} |", "|" + "---|" * len(rows[0]), *(f"| {line} |" for line in lines[1:])]
