"""Draw the table of phases as the diagram in docs/architecture.md: python -m
tests.golden_phases."""

from __future__ import annotations

import re
from pathlib import Path

from entrypoint.phases import ALLOWED, Phase

PAGE = Path(__file__).parents[1] / "docs/architecture.md"
PLACE = re.compile(r"(?s)<!-- phases -->\n.*?<!-- end of phases -->")


def diagram() -> str:
    """Return the block of the page."""
    lines = ["stateDiagram-v2", f"    [*] --> {Phase.CHECKS.name}"]
    lines += [
        f"    {before.name} --> {after.name}"
        for before, others in ALLOWED.items()
        for after in others
    ]
    lines += [f"    {Phase.ENDED.name} --> [*]"]
    body = "\n".join(lines)
    return f"<!-- phases -->\n```mermaid\n{body}\n```\n<!-- end of phases -->"


if __name__ == "__main__":
    PAGE.write_text(PLACE.sub(lambda _: diagram(), PAGE.read_text()))
