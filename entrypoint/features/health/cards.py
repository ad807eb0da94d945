"""Judges a node's accelerators by what the driver's tool says of them, for `check` and before each
attempt."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from entrypoint.base.model import Finding
from entrypoint.system.smi import MILD, Card

_FILES = re.compile(r"(?<!\d)(\d{1,9}) /dev/")
_BUSY = 1024  # MiB in use before a job: more than a driver takes for itself


def expected(origin: str, usable: int) -> int:
    """Return how many cards a tool has to show: one for each device file, of which a program may be
    given fewer (`origin`: where the number of usable cards comes from)."""
    files = _FILES.search(origin)
    return int(files[1]) if files else usable


def lost(cards: Sequence[Card], number: int, tool: str) -> Iterator[Finding]:
    """Return whether the tool sees each card that has a device file."""
    if cards and len(cards) < number:
        what, seen = "accelerators that answer", f"{len(cards)} answer {tool}"
        fix = (
            "look at dmesg for Xid or card errors; reset or replace the card, or take the machine"
            " out"
        )
        yield Finding("error", "accelerators-lost", what, seen, f"{number}", fix)


def health(card: Card) -> Iterator[Finding]:
    """Return what the tool says of a card that is not well."""
    if card.problem:
        level = "warning" if card.problem in MILD else "error"
        what = f"{card.called('accelerator')}: health"
        fix = "reset the card, or take the machine out and have it looked at"
        yield Finding(level, "accelerator-health", what, card.problem, "healthy", fix)


def in_use(card: Card) -> Iterator[Finding]:
    """Return who uses a card already."""
    if card.processes or (card.used or 0) >= _BUSY:
        who = ", ".join(card.processes) or "by processes that are not seen from this container"
        actual = f"{card.used:g} MiB in use: {who}" if card.used is not None else f"in use: {who}"
        what, needed = f"{card.called('accelerator')}: in use", "no other process"
        fix = "end them, or take another machine: they take memory and time from the job"
        yield Finding("warning", "accelerator-in-use", what, actual, needed, fix)
