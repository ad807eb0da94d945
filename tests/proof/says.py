"""What a test says that it shows: the cells of its line in the table of its area."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

# Markers whose words are the line; those of a fault are followed by its launcher and its bound.
MARKED = ("slurm", "deployed", "see", "fault")


def says(item: pytest.Item) -> tuple[str, ...]:
    """Return the cells. Tests of one area whose cells are the same are one line."""
    params = getattr(item, "callspec", None)
    given: Mapping[str, Any] = params.params if params else {}
    if staged := getattr(given.get("row"), "says", None):
        return tuple(staged)
    for name in MARKED:
        mark = item.get_closest_marker(name)
        if mark and mark.args:
            words = tuple(str(word).format(**given) for word in mark.args)
            if name != "fault":
                return words
            launcher = mark.kwargs.get("launcher", given.get("launcher", "any"))
            return *words, str(launcher), mark.kwargs.get("bound", "")
    doc = (getattr(getattr(item, "obj", None), "__doc__", None) or item.name).split("\n\n")[0]
    title = " ".join(doc.split()).rstrip(".")
    shown = [str(given[name]) for name in ("image", "launcher", "name") if name in given]
    return title, *shown
