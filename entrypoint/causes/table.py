"""The kinds of causes, and the signatures of failures: kinds.tsv, signatures.tsv and ends.tsv,
checked row by row.

In all, an empty line and one that begins with `#` is no row. The first row names the columns; the
cells of a row are separated by tabs, and the last ones may be left out.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from entrypoint.base.cause import (
    BLAMES,
    CERTAINTIES,
    REASON,
    RETRIES,
    ROLES,
    Blame,
    Certainty,
    Retry,
    Role,
)
from entrypoint.base.tables import rows
from entrypoint.causes.clean import LONGEST, compiled

if sys.version_info >= (3, 11):
    import re._parser as parser
else:
    import sre_parse as parser

# How decisive a row is. Of several that match, the smallest number wins; in doubt the one that was
# printed first. The tables write `named`, or `named-2` for what is a little more decisive.
_WEIGHTS = {
    name: int(weight)
    for name, weight, _ in rows("""
        hardware       | 10 | reported by a device, the kernel or the scheduler
        named          | 20 | a system call or library names what failed
        likely         | 30 | named, but the message has several causes
        python         | 36 | an exception whose type or text names what failed
        last-exception | 40 | any other exception, or a crash
        warned         | 46 | a warning, or an error that was followed by progress
        killed         | 48 | the end itself is known, but not why
        waited         | 52 | others did not come: mostly a consequence
        consequence    | 60 | the other end is gone
        reported       | 70 | the launcher's report that something failed elsewhere
    """)
}
HARDWARE = _WEIGHTS["hardware"]
LAST_EXCEPTION = _WEIGHTS["last-exception"]
WARNED = _WEIGHTS["warned"]
_CONSEQUENCE = _WEIGHTS["consequence"]
_CHOICES: Mapping[str, Sequence[str]] = {
    "role": ROLES,
    "blame": BLAMES,
    "retry": RETRIES,
    "certainty": CERTAINTIES,
}
# Ways in which a site's pattern may match at one place: more may take seconds on one line.
_MOST_WAYS = 10_000
_USUAL_WAYS = 100
_SIGNATURE = ("cause", "needle", "pattern", "says", "other")
_OTHERS = frozenset((*_CHOICES, "weight", "also", "fix"))


class Signature(NamedTuple):
    """Words of a program, library, kernel or scheduler, and what they say about a failure; a kind
    of cause is one without words, and has the usual values."""

    slug: str
    weight: int
    blame: Blame
    retry: Retry
    role: Role
    certainty: Certainty
    meaning: str  # of the kind, for the documentation
    says: str  # in words; may hold `{device}` and the names of the pattern's groups
    fix: str  # an instruction
    needle: str = ""  # literal part of the line
    # of a line with the needle; linear. "" means that the needle is enough
    pattern: str = ""
    also: str = ""  # literal that must be somewhere else in the output
    # of a site's row: how many times as long as a usual pattern it may take; else 0
    cost: int = 0

    def match(self, line: str) -> dict[str, str] | None:
        """Return the named groups of the pattern in a line that holds the needle; None if the
        pattern does not match."""
        if not self.pattern:
            return {}
        found = compiled(self.pattern).search(line)
        return found and {name: text or "" for name, text in found.groupdict().items()}


_KIND = ("cause", *Signature._fields[1:9])


def of_kind(slug: str, **values: Any) -> Signature:
    """Return a signature, whose other values are those of its kind. What may be a consequence,
    though its kind is a root, is no more decisive than a consequence."""
    kind = KINDS[slug]
    if kind.role == "root" and values.get("role", "root") != "root":
        kind = kind._replace(weight=max(kind.weight, _CONSEQUENCE))
    return kind._replace(**values)


def read_kinds(text: str, file: str) -> dict[str, Signature]:
    """Return the kinds of a table by their names. Raises ValueError, with file and line, if a row
    is wrong."""
    kinds: dict[str, Signature] = {}
    for place, cells in _rows(text, file, _KIND):
        values: list[Any] = [_value(*cell, place) for cell in zip(_KIND, cells, strict=True)]
        if "" in cells or cells[0] in kinds:
            raise ValueError(f"{place}: a cell is empty, or the cause has a row already")
        kinds[cells[0]] = Signature(*values)
    return kinds


def read_signatures(text: str, file: str, are_compiled: bool = False) -> tuple[Signature, ...]:
    """Return the signatures of a table. Raises ValueError, with file and line, if a row is wrong;
    its pattern is tried only if `are_compiled`, since compiling the whole table takes long: it must
    be one that no line can keep for long."""
    found = []
    for place, (slug, needle, pattern, says, other) in _rows(text, file, _SIGNATURE):
        if slug not in KINDS or not needle.strip():
            raise ValueError(f"{place}: no kind of cause: {slug!r}; or no needle: {needle!r}")
        values: dict[str, Any] = {}
        if are_compiled:
            values["cost"] = _cost(pattern, place)
        for option in other.split("; ") if other else ():
            name, _, value = option.partition("=")
            if name not in _OTHERS or not value:
                raise ValueError(f"{place}: not known: {option!r}")
            values[name] = _value(name, value, place)
        if says:
            values["says"] = _value("says", says, place)
        found.append(of_kind(slug, needle=needle, pattern=pattern, **values))
    return tuple(found)


def _cost(pattern: str, place: str) -> int:
    """Return how many times as long as a usual pattern this one may take. Raises ValueError if it
    is wrong, or some line could keep it for long."""
    try:
        re.compile(pattern)
        count = _ways(parser.parse(pattern))
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"{place}: pattern: {error}") from None
    if count > _MOST_WAYS:
        why = "give each repetition a bound, such as {1,80}, and repeat no group that repeats"
        raise ValueError(f"{place}: pattern: it may take too long: {why}")
    return -(-count // _USUAL_WAYS)


def _ways(items: Any) -> int:
    """Return in how many ways the items of a parsed pattern may match at one place of a line. So
    many, at most, does a matcher try that goes back when it cannot go on."""
    ways = 1
    for operation, value in items:
        parts = value if isinstance(value, tuple) else (value,)
        inner = [_ways(part) for part in parts if isinstance(part, parser.SubPattern)]
        if str(operation) == "BRANCH":
            ways *= sum(map(_ways, value[1]))
        elif "REPEAT" in str(operation):
            least, most = (min(int(bound), LONGEST) for bound in value[:2])
            ways *= sum(inner[0] ** count for count in range(least, most + 1))
        else:  # a group, a look ahead or behind, a choice by a group
            ways *= sum(inner) or 1
        ways = min(ways, _MOST_WAYS + 1)
    return ways


def _rows(text: str, file: str, columns: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield the place of each row and its cells, as many as there are columns."""
    is_head = True
    for number, line in enumerate(text.split("\n"), 1):
        if not line or line.startswith("#"):
            continue
        cells = line.split("\t")
        place = f"{file}:{number}"
        if is_head and cells != list(columns):
            raise ValueError(f"{place}: the columns are {', '.join(columns)}")
        if len(cells) > len(columns):
            raise ValueError(f"{place}: {len(cells)} cells for {len(columns)} columns")
        if not is_head:
            yield place, cells + [""] * (len(columns) - len(cells))
        is_head = False


def _value(column: str, cell: str, place: str) -> str | int:
    """Return the value of a cell."""
    if column in _CHOICES and cell not in _CHOICES[column]:
        raise ValueError(f"{place}: {column}: {cell!r} is none of {', '.join(_CHOICES[column])}")
    if column in ("says", "fix") and (len(cell) > REASON or cell.endswith(".")):
        raise ValueError(f"{place}: {column}: more than {REASON} characters, or a full stop")
    if column != "weight":
        return cell
    found = re.fullmatch(r"([a-z-]{1,20}[a-z])([+-]\d{1,2})?", cell)
    if found is None or found[1] not in _WEIGHTS:
        raise ValueError(f"{place}: weight: {cell!r} is none of {', '.join(_WEIGHTS)}")
    return _WEIGHTS[found[1]] + int(found[2] or 0)


def _text(name: str) -> tuple[str, str]:
    path = f"{__file__.rpartition('/')[0]}/{name}"
    with open(path, encoding="utf-8") as file:
        return file.read(), name


KINDS = read_kinds(*_text("kinds.tsv"))
ENDS = {row.needle: row for row in read_signatures(*_text("ends.tsv"))}
"""Signal or status of a process's end -> its signature, if the output says less."""
_site: list[Signature] = []


def add_site(text: str, file: str) -> None:
    """Add the signatures of a site's table, before the first judgement. Raises ValueError, with
    file and line, if a row is wrong."""
    _site.extend(read_signatures(text, file, are_compiled=True))


@cache
def signatures() -> tuple[Signature, ...]:
    """Return the signatures of our table and of the site's, whose rows replace ours for the same
    words. The order decides nothing."""
    rows = (*read_signatures(*_text("signatures.tsv")), *_site)
    return tuple({(row.needle, row.pattern, row.also): row for row in rows}.values())
