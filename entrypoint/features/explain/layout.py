"""The layout of an explanation in a terminal."""

from __future__ import annotations

import textwrap

LONG = 5  # messages that are explained in full; of more, only the first lines are shown


def row(name: str, text: str, width: int) -> str:
    """Return a row of an explanation for a terminal of `width` columns."""
    return textwrap.fill(text, width, initial_indent=f"  {name:<8} ", subsequent_indent=" " * 11)
