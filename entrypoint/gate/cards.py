"""Judge a node's accelerators by what the driver's tool says of them: for `check` and for the gate
before each attempt."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from entrypoint.devices._smi import MILD, Card
from entrypoint.model import Finding

_FILES = re.compile(r"(?<!\d)(\d{1,9}) /dev/")
_BUSY = 1024  # MiB in use before a job: more than a driver takes for itself
SLOWED = "slowed down by"
"""How the problem of a card begins that is only slow for now."""


def expected(origin: str, usable: int) -> int:
    """Return how many cards a tool has to show: one for each device file, of which a program may be
    given fewer (`origin`: where the number of usable cards comes from)."""
    files = _FILES.search(origin)
    return int(files[1]) if files else usable


def lost(cards: Sequence[Card], number: int, tool: str) -> Iterator[Finding]:
    """Whether the tool sees each card that has a device file."""
    if cards and len(cards) < number:
        fix = (
            "look at dmesg for Xid or card errors; reset or replace the card, or take the"
            " machine out"
        )
        actual = f"{len(cards)} answer {tool}"
        yield Finding(
            "error", "accelerators-lost", "accelerators that answer", actual, f"{number}", fix
        )


def health(card: Card) -> Iterator[Finding]:
    """What the tool says of a card that is not well."""
    if card.problem:
        fix = "reset the card, or take the machine out and have it looked at"
        level = "warning" if card.problem in MILD else "error"
        yield Finding(
            level, "accelerator-health", f"{label(card)}: health", card.problem, "healthy", fix
        )


def in_use(card: Card) -> Iterator[Finding]:
    """Who uses a card already."""
    busy = (card.used or 0) >= _BUSY
    if card.processes or busy:
        who = ", ".join(card.processes) or "by processes that are not seen from this container"
        actual = f"{card.used:g} MiB in use: {who}" if card.used is not None else f"in use: {who}"
        fix = "end them, or take another machine: they take memory and time from the job"
        yield Finding(
            "warning",
            "accelerator-in-use",
            f"{label(card)}: in use",
            actual,
            "no other process",
            fix,
        )


def label(card: Card) -> str:
    """Return what a card is called in a finding."""
    return f"accelerator {card.index:g}" if card.index is not None else "accelerator"
