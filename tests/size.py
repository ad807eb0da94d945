"""The numbers of this tree that may only fall. `python -m tests.size`, a part of `make golden`,
writes those that have fallen into size.yaml; a number that has to rise is written there by hand,
with the reason in the commit."""

from __future__ import annotations

import sys
from pathlib import Path

import yaml

from scripts import size
from tests import TREE

FIGURES = Path(__file__).with_suffix(".yaml")
_CORE = (
    "base spec plan system job output session ranks launchers platforms devices causes ranktable"
)
_HEAD = """\
# The numbers that may only fall: tests/process/test_size.py compares the tree with them, `make size` shows them.
"""


def now() -> dict[str, int]:
    """Return the numbers as they are."""
    tokens = {name.rstrip("/"): tokens for name, _, _, tokens in size.packages(TREE)}
    core = sum(tokens[name] for name in [*_CORE.split(), "(top)"])
    counts = size.counts(TREE)
    kept = ("settings", "message ids", "commands", "make targets", "lines of tests/*.py")
    return {"tokens": tokens["entrypoint"], "tokens of the core": core} | {
        name: counts[name] for name in kept
    }


def most() -> dict[str, int]:
    """Return the numbers that the tree may have at most."""
    figures: dict[str, int] = yaml.safe_load(FIGURES.read_text())
    return figures


def main() -> int:
    """Write the numbers that have fallen."""
    before = most() if FIGURES.exists() else {}
    lower = {name: min(number, before.get(name, number)) for name, number in now().items()}
    FIGURES.write_text(_HEAD + yaml.safe_dump(lower, sort_keys=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
