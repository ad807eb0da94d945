"""Explains exit statuses and messages: reads, searches and formats messages.yaml. No start of a job
imports this."""

from __future__ import annotations

import re
import textwrap
from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from entrypoint.base.errors import UsageError
from entrypoint.base.text import escaped, signal_name
from entrypoint.base.values import frozen, replace
from entrypoint.features.explain.layout import LONG, row
from entrypoint.job.failure import ended

ID = re.compile(r"\bEP[0-9]{3}\b")
WARNING = "warning"
_ALL = "`entrypoint explain` lists all"


@frozen
class Entry:
    """The meaning of a message or a status. `statuses`: as in messages.yaml, such as `75`, `1-255`,
    or `warning`."""

    id: str
    says: str
    statuses: tuple[str, ...]
    cause: str
    confirm: str
    fix: str

    def text(self, width: int) -> str:
        """Return the entry for a terminal of `width` columns."""
        head = textwrap.fill(self.says, width, initial_indent="  ", subsequent_indent="  ")
        rows = (row(name, getattr(self, name), width) for name in ("cause", "confirm", "fix"))
        return "\n".join([f"{self.id}  ({ends(self.statuses)})", head, *rows])


@cache
def source() -> Mapping[str, Any]:
    """Return the content of messages.yaml, with the messages of features and tools, which their
    folders have in a file of this name, in its groups."""
    own = Path(__file__).with_name("messages.yaml")
    files = own.parents[2].glob("*/*/messages.yaml")
    content = {path: yaml.safe_load(path.read_text(encoding="utf-8")) for path in files}
    data: dict[str, Any] = content.pop(own)
    for id, about in ChainMap(*content.values()).items():
        data["groups"][int(id[2])]["messages"][id] = about
    return data


def groups() -> Iterator[tuple[str, list[Entry]]]:
    """Yield every message, in groups with a title."""
    for group in source()["groups"]:
        if entries := [_entry(*each) for each in sorted(group["messages"].items())]:
            yield group["title"], entries


@cache
def messages() -> Mapping[str, Entry]:
    """Return every message by its id."""
    return {entry.id: entry for _, entries in groups() for entry in entries}


def statuses() -> list[Entry]:
    """Return every kind of exit status."""
    return [
        _entry(key, {"status": [key], "says": about["name"], **about})
        for key, about in source()["statuses"].items()
    ]


def of_status(number: int) -> Entry:
    """Return the meaning of an exit status (0 to 255)."""
    kinds = {entry.id: entry for entry in statuses()}
    # a program may end with any number
    entry = next((entry for id, entry in kinds.items() if fits(number, id)), kinds["1-63"])
    if entry.id != "128+n":
        return replace(entry, id=str(number))
    parts = (_without_others(text, number) for text in (entry.cause, entry.confirm, entry.fix))
    return Entry(str(number), ended("it", number), entry.statuses, *parts)


def _without_others(text: str, number: int) -> str:
    """Return a text about several statuses without what is about others than this one."""
    parts = re.split(r"[:,;] (?=\d{3} )|; ", text)
    kept = [part for part in parts if {*re.findall(r"\b1[2-9]\d\b", part)} <= {str(number)}]
    return "; ".join(kept).removeprefix("otherwise ")


def fits(number: int, kind: str) -> bool:
    """Return whether a status is of a kind, which is written `75`, `1-63` or `128+n`."""
    if kind == "128+n":
        return signal_name(number - 128) != ""
    low, _, high = kind.partition("-")
    return kind != WARNING and int(low) <= number <= int(high or low)


def ending_with(number: int) -> list[Entry]:
    """Return the messages that a job with this status may have ended with, those with only one
    status first."""
    entries = [
        entry for entry in messages().values() if any(fits(number, kind) for kind in entry.statuses)
    ]
    return sorted(
        entries, key=lambda entry: (len(entry.statuses), "-" in entry.statuses[0], entry.id)
    )


def find(text: str) -> tuple[list[Entry], list[Mapping[str, str]]]:
    """Return the messages whose ids are in the text, such as a line of a log; if there are none,
    the messages that contain it, and the states of a wait and messages of other programs that
    do."""
    known = messages()
    ids = dict.fromkeys(ID.findall(text.upper()))
    if named := [known[id] for id in ids if id in known]:
        return named, []
    others = (*source()["waiting"], *source()["others"])
    return (
        [entry for entry in known.values() if text.lower() in entry.says.lower()],
        [entry for entry in others if text.lower() in entry["says"].lower()],
    )


def ends(kinds: Sequence[str]) -> str:
    """Return a message's statuses as text, such as `exit 69; or a warning: the job continues`."""
    numbers = [kind for kind in kinds if kind != WARNING]
    parts = [f"exit {', '.join(numbers)}"] if numbers else []
    parts += ["a warning: the job continues"] if WARNING in kinds else []
    return "; or ".join(parts)


def _entry(id: str, about: Mapping[str, Any]) -> Entry:
    statuses = tuple(map(str, about["status"]))
    return Entry(id, about["says"], statuses, about["cause"], about["confirm"], about["fix"])


def explanation(question: str, columns: int) -> str:
    """Return the explanation for a terminal of `columns` columns. Raises UsageError if there is
    none."""
    if not question:
        return _all(columns)
    is_number = question.isascii() and question.isdigit()
    if is_number and int(question[:20]) < 256:
        return _status(int(question), columns)
    entries, others = find(f"EP{question}" if is_number else question)
    if not entries and not others:
        from entrypoint.features.explain.failures import about

        if not is_number and (answer := about(question, columns)):
            return answer
        kind = "exit status" if is_number else "message"
        hint = (
            "give an id, such as EP500, a status from 0 to 255, a part of a message or of an error"
            f" as it is written, or a cause; {_ALL}"
        )
        raise UsageError(f"EP130 there is no such {kind}", question[:80], hint)
    if len(entries) > LONG:
        parts = ["\n".join(_line(entry, columns) for entry in entries)]
    else:
        parts = [entry.text(columns) for entry in entries]
    parts += [
        f"{other['says']}\n  cause    {other['cause']}\n  fix      {other['fix']}"
        for other in others
    ]
    return "\n\n".join(parts) + "\n"


def _status(number: int, columns: int) -> str:
    lines = [of_status(number).text(columns)]
    if entries := ending_with(number):
        rows = "\n".join(_line(entry, columns) for entry in entries)
        lines.append(f"Messages that end with it:\n{rows}")
    return "\n\n".join(lines) + "\n"


def _all(columns: int) -> str:
    parts = [
        "\n".join([title, *(_line(entry, columns, room) for entry in entries)])
        for title, entries, room in (
            ("Exit statuses", statuses(), 6),
            *((title, entries, 5) for title, entries in groups()),
        )
    ]
    return "\n\n".join([*parts, "Details: `entrypoint explain EP500`, or `explain 75`."]) + "\n"


def _line(entry: Entry, columns: int, room: int = 5) -> str:
    return escaped(f"  {entry.id:<{room}}  {entry.says}", columns)
