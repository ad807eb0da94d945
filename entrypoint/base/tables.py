"""Tables that are written as text: a row on each line, whose cells are separated by `|`. After a
backslash at the end of a line its row goes on."""

from __future__ import annotations


def rows(text: str) -> list[list[str]]:
    """Return the rows of a table, with their cells."""
    lines = text.strip().splitlines()
    return [[" ".join(cell.split()) for cell in line.split("|")] for line in lines]


def table(text: str) -> dict[str, str]:
    """Return the names in the first cells of a table -> the second cell of their row."""
    return {name: value for names, value in rows(text) for name in names.split()}
