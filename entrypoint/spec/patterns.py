"""Regular expressions that users write: only those whose time is bounded for every line.

Python's `re` tries one repetition after another. A line that nearly fits then takes a time that
grows with a power of its length, or exponentially. So a pattern may have at most one place at which
there is a choice: a repetition or an alternative that what follows it could match as well.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Sequence
from typing import Any

LONGEST = 200  # characters of a pattern
# characters of a line that a pattern is compared with; one choice and the search take the cube of
# them, at most
LINE = 256
_HINT = "write it simpler, such as `step (\\d+)`"
_OTHER = 128  # stands for every character that is not ASCII
_ALL = frozenset(range(_OTHER + 1))
_EMPTY: frozenset[int] = frozenset()


def check_line(text: str) -> tuple[str, str] | None:
    """Return what is wrong with a pattern for lines, and a hint; None for nothing."""
    if len(text) > LONGEST:
        return f"a pattern has at most {LONGEST} characters", _HINT
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # of `[[`, which may mean something else one day
            compiled = re.compile(text)
            tree = _parsed(text)
    except (re.error, RecursionError, OverflowError, Warning) as error:
        return f"this is no regular expression: {error}", _HINT
    if compiled.search("") is not None:
        return "this matches every line", _HINT
    checker = _Checker()
    checker.sequence(list(tree), _EMPTY)
    if checker.wrong:
        return f"a pattern for lines has no {checker.wrong}", _HINT
    if checker.choices > 1:
        return "this could take a long time: it has more than one ambiguous repetition", _HINT
    return None


def _parsed(text: str) -> Iterable[Any]:
    try:
        from re import _parser  # type: ignore[attr-defined]
    except ImportError:  # Python 3.10
        import sre_parse as _parser
    tree: Iterable[Any] = _parser.parse(text)
    return tree


class _Checker:
    """Walks a parsed pattern from its end to its beginning, and counts the choices."""

    def __init__(self) -> None:
        self.choices = 0
        self.wrong = ""  # a construct that no pattern may have

    def sequence(self, items: Sequence[Any], after: frozenset[int]) -> frozenset[int]:
        """Return the characters that these items, with what follows them, may begin with. `after`
        are those that may follow."""
        for kind, value in reversed(items):
            after = self._item(str(kind), value, after)
        return after

    def _item(self, kind: str, value: Any, after: frozenset[int]) -> frozenset[int]:
        if kind in ("LITERAL", "NOT_LITERAL", "ANY", "IN"):
            return _characters(kind, value)
        if kind == "SUBPATTERN":
            return self.sequence(list(value[-1]), after)
        if kind == "ATOMIC_GROUP":
            return self.sequence(list(value), after)
        if kind == "AT":
            return after
        if kind == "BRANCH":
            return self._branch([self.sequence(list(part), after) for part in value[1]])
        if kind in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
            return self._repetition(value, after)
        self.wrong = "reference to a group" if "GROUPREF" in kind else "look ahead or behind"
        return _ALL

    def _branch(self, starts: list[frozenset[int]]) -> frozenset[int]:
        union = frozenset().union(*starts)
        if sum(map(len, starts)) > len(union):
            self.choices += 1
        return union

    def _repetition(self, value: tuple[int, int, Any], after: frozenset[int]) -> frozenset[int]:
        least, most, items = value[0], value[1], list(value[2])
        # `(one|two)?` is no repetition, only a choice.
        if most > 1 and not _is_plain(items):
            self.wrong = "repetition or alternative within a repetition"
            return _ALL
        start = self.sequence(items, after)
        if least != most and start & after:
            self.choices += 1
        return start if least else start | after


def _is_plain(items: Sequence[Any]) -> bool:
    """Return whether nothing in these items is repeated or an alternative."""
    parts = list(items)
    while len(parts) == 1 and str(parts[0][0]) == "SUBPATTERN":
        parts = list(parts[0][1][-1])
    return bool(parts) and all(
        str(kind) in ("LITERAL", "NOT_LITERAL", "ANY", "IN") for kind, _ in parts
    )


def _characters(kind: str, value: Any) -> frozenset[int]:
    """Return the characters that one item matches, without regard to case."""
    if kind == "ANY":
        return _ALL
    if kind == "LITERAL":
        return _both_cases({min(value, _OTHER)})
    if kind == "NOT_LITERAL":
        return _ALL - {value} if value < _OTHER else _ALL
    taken: set[int] = set()
    negated = False
    for part, entry in value:
        name = str(part)
        if name == "NEGATE":
            negated = True
        elif name == "LITERAL":
            taken.add(min(entry, _OTHER))
        elif name == "RANGE":
            taken.update(range(min(entry[0], _OTHER), min(entry[1], _OTHER) + 1))
        else:
            taken |= _category(str(entry))
    # A negated class may leave out some characters that are not ASCII, never all.
    return (_ALL - (taken - {_OTHER})) if negated else _both_cases(taken)


def _category(name: str) -> frozenset[int]:
    """Return the characters of a class such as `\\d`."""
    letter = name.removeprefix("CATEGORY_").removeprefix("NOT_")[0].lower()
    pattern = re.compile({"d": r"\d", "s": r"\s", "w": r"\w"}[letter])
    ascii_part = {code for code in range(_OTHER) if pattern.match(chr(code))}
    if "NOT_" in name:
        return _ALL - frozenset(ascii_part)
    return frozenset(ascii_part | {_OTHER})


def _both_cases(codes: Iterable[int]) -> frozenset[int]:
    """Return the characters with their other case: a flag in the pattern may ignore it."""
    result = set(codes)
    for code in list(result):
        if code < _OTHER:
            result |= {ord(text) for text in (chr(code).lower(), chr(code).upper())}
    return frozenset(result)
