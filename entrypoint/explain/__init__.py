"""What exit statuses and messages mean: messages.yaml, searched and put in words. No start of a job imports this."""

from __future__ import annotations

import difflib
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from entrypoint.job.analysis import ended
from entrypoint.values import dataclass

ID = re.compile(r"\bEP[0-9]{3}\b")
WARNING = "warning"
_MOST = 5  # messages that a search shows
_ALIKE = 0.6  # of a message's words that a text must have


@dataclass(frozen=True)
class Entry:
    """What a message or a status means. `statuses`: as messages.yaml has them, such as `75`, `1-255`, or `warning`."""

    id: str
    says: str
    statuses: tuple[str, ...]
    cause: str
    confirm: str
    fix: str

    def text(self, width: int) -> str:
        """The entry for a terminal of so many columns."""
        rows = (("cause", self.cause), ("confirm", self.confirm), ("fix", self.fix))
        head = textwrap.fill(self.says, width, initial_indent="  ", subsequent_indent="  ")
        return "\n".join(
            [f"{self.id}  ({ends(self.statuses)})", head, *(_row(name, words, width) for name, words in rows)]
        )


@cache
def source() -> Mapping[str, Any]:
    """messages.yaml as it is."""
    found: Mapping[str, Any] = yaml.safe_load(Path(__file__).with_name("messages.yaml").read_text(encoding="utf-8"))
    return found


def groups() -> Iterator[tuple[str, list[Entry]]]:
    """Every message, in groups with a title."""
    for group in source()["groups"]:
        yield group["title"], [_entry(id, **about) for id, about in group["messages"].items()]


@cache
def messages() -> Mapping[str, Entry]:
    """Every message by its id."""
    return {entry.id: entry for _, entries in groups() for entry in entries}


def statuses() -> list[Entry]:
    """Every kind of exit status."""
    return [
        Entry(key, about["name"], (key,), about["cause"], about["confirm"], about["fix"])
        for key, about in source()["statuses"].items()
    ]


def of_status(number: int) -> Entry:
    """What an exit status (0 to 255) means."""
    entry = next((entry for entry in statuses() if fits(number, entry.id)), None)
    if entry is None:  # a program may end with any number
        entry = next(entry for entry in statuses() if entry.id == "1-63")
    says = entry.says
    if entry.id == "128+n":
        says = ended("it", number)
    return Entry(str(number), says, entry.statuses, entry.cause, entry.confirm, entry.fix)


def fits(number: int, kind: str) -> bool:
    """Whether a status is of the kind that is written `75`, `1-63` or `128+n`."""
    if kind == "128+n":
        return "was ended by" in ended("it", number)
    low, _, high = kind.partition("-")
    return kind != WARNING and int(low) <= number <= int(high or low)


def ending_with(number: int) -> list[Entry]:
    """The messages that a job with this status may have ended with, those of one status alone first."""
    found = [entry for entry in messages().values() if any(fits(number, kind) for kind in entry.statuses)]
    return sorted(found, key=lambda entry: (len(entry.statuses), "-" in entry.statuses[0], entry.id))


def named(text: str) -> list[Entry]:
    """The messages whose ids are in the text, such as a whole line of a log."""
    return [messages()[id] for id in dict.fromkeys(ID.findall(text)) if id in messages()]


def near(id: str) -> list[str]:
    """Ids that somebody who wrote this one may have meant."""
    return difflib.get_close_matches(id.upper(), messages(), 3, 0.7)


def like(text: str) -> list[Entry]:
    """The messages that have most of their words in common with the text, the nearest first."""
    asked = _words(text)
    scored = sorted(((_likeness(asked, entry.says), entry) for entry in messages().values()), key=lambda it: -it[0])
    best = scored[0][0] if scored else 0
    return [entry for score, entry in scored if score >= _ALIKE and score > best - 0.2][:_MOST]


def also_like(text: str) -> list[Mapping[str, str]]:
    """What is explained and is no message of ours: states of a wait, words of programs, with its cause and fix."""
    asked = _words(text)
    return [each for each in (*source()["waiting"], *source()["others"]) if _likeness(asked, each["says"]) >= _ALIKE]


def ends(kinds: Sequence[str]) -> str:
    """In words, what a message's statuses are."""
    numbers = [kind for kind in kinds if kind != WARNING]
    also = ["a warning: the job goes on"] if WARNING in kinds else []
    return "; or ".join([*([f"exit {', '.join(numbers)}"] if numbers else []), *also])


def _entry(id: str, says: str, status: Sequence[int | str], cause: str, confirm: str, fix: str) -> Entry:
    return Entry(id, says, tuple(map(str, status)), cause, confirm, fix)


def _row(name: str, words: str, width: int) -> str:
    return textwrap.fill(words, width, initial_indent=f"  {name:<8} ", subsequent_indent=" " * 11)


def _words(text: str) -> set[str]:
    return set(re.findall(r"[a-z_]{2,}|[0-9]+", text.lower()))


def _likeness(asked: set[str], says: str) -> float:
    """The share of words in common, of the shorter of the two texts; `says` has several forms, with a `;` between."""
    best = 0.0
    for form in says.split("; "):
        own = _words(form)
        common = len(asked & own)
        if own and asked and (common > 1 or common == len(asked)):
            best = max(best, common / min(len(own), len(asked)) - 0.01 * abs(len(own) - len(asked)))
    return best
