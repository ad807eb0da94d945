"""The lines of `check`. Their texts are in findings.tsv, a row for each id."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

from entrypoint.base.model import Finding

Findings = Iterator[Finding]


def finding(
    level: str, key: str, seen: str, nodes: tuple[str, ...] = (), **values: object
) -> Finding:
    """Return a line with the texts of a row; `values` fill their places."""
    what, needed, fix = (text.format(**values) for text in texts()[key])
    return Finding(level, key.partition("/")[0], what, seen, needed, fix, nodes)


@cache
def texts() -> dict[str, list[str]]:
    """Return what each row says: the name of the thing, what is needed, and what to do."""
    lines = Path(__file__).with_name("findings.tsv").read_text("utf-8").splitlines()
    rows = [line.split("\t") for line in lines if line and not line.startswith("#")]
    return {key: [*cells, "", "", ""][:3] for key, *cells in rows}
