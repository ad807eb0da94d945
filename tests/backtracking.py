"""What a regular expression costs in the worst case: a matcher that backtracks as Python's does and
counts its steps, and the lines that are worst for an expression, made from the expression itself.

Letters count as equal in capitals or not, which makes an expression match more, never less.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, groupby
from typing import Any

try:
    import re._constants as sre
    import re._parser as parser
except ImportError:  # Python 3.10
    import sre_constants as sre
    import sre_parse as parser

Item = tuple[Any, Any]
After = Callable[[int], bool]
LETTERS = (sre.LITERAL, sre.NOT_LITERAL, sre.IN, sre.ANY)
_ANY = "x"


class TooManyStepsError(Exception):
    """The matcher has taken more steps than it may."""


def parsed(pattern: str) -> list[Item]:
    """Return the items of an expression."""
    return list(parser.parse(pattern))


def unbounded(items: Sequence[Item]) -> bool:
    """Return whether an expression has a repetition without a bound."""
    return any(
        (op in (sre.MAX_REPEAT, sre.MIN_REPEAT) and value[1] == sre.MAXREPEAT)
        or any(unbounded(list(part)) for part in _parts(op, value))
        for op, value in items
    )


def _parts(op: Any, value: Any) -> Sequence[Any]:
    if op in (sre.MAX_REPEAT, sre.MIN_REPEAT):
        return (value[2],)
    if op is sre.BRANCH:
        parts: Sequence[Any] = value[1]
        return parts
    if op is sre.SUBPATTERN:
        return (value[-1],)
    return (value[1],) if op in (sre.ASSERT, sre.ASSERT_NOT) else ()


# --------------------------------------------------------------------------------------------------
# The matcher


class Matcher:
    """Searches one text, and counts the steps."""

    def __init__(self, items: Sequence[Item], most: int) -> None:
        self._items = items
        self._most = most
        self._text = ""
        self.steps = 0

    def finds(self, text: str) -> bool:
        """Search a text as `re.search` does; `steps` are those that it took. Raises
        TooManyStepsError if these are more than they may be."""
        self._text = text.lower()
        self.steps = 0
        starts = range(len(text) + 1)
        return any(self._run(self._items, 0, start, lambda _: True) for start in starts)

    def _run(self, items: Sequence[Item], at: int, place: int, after: After) -> bool:
        op, value = None, None
        for number in range(at, len(items)):
            self.steps += 1
            op, value = items[number]
            if op not in LETTERS:
                break
            if not self._fits((op, value), place):
                return False
            place += 1
        else:
            return after(place)
        if self.steps > self._most:
            raise TooManyStepsError

        def rest(there: int) -> bool:
            return self._run(items, number + 1, there, after)

        if op is sre.BRANCH:
            return any(self._run(list(part), 0, place, rest) for part in value[1])
        if op is sre.SUBPATTERN:
            return self._run(list(value[-1]), 0, place, rest)
        if op in (sre.ASSERT, sre.ASSERT_NOT):
            found = self._looks(value, place)
            return found == (op is sre.ASSERT) and rest(place)
        if op is sre.AT:
            return self._is_at(value, place) and rest(place)
        if op in (sre.MAX_REPEAT, sre.MIN_REPEAT):
            return self._repeats(value, place, rest)
        raise NotImplementedError(op)

    def _repeats(self, value: Any, place: int, rest: After) -> bool:
        least, most, body = value[0], int(value[1]), list(value[2])
        if len(body) == 1 and body[0][0] in LETTERS:
            count = 0
            while count < most and self._fits(body[0], place + count):
                count += 1
            self.steps += count
            return any(rest(place + many) for many in range(count, least - 1, -1))

        def again(count: int, there: int) -> bool:
            if count < most and self._run(
                body, 0, there, lambda next: next > there and again(count + 1, next)
            ):
                return True
            return count >= least and rest(there)

        return again(0, place)

    def _looks(self, value: Any, place: int) -> bool:
        direction, body = value
        if direction > 0:
            return self._run(list(body), 0, place, lambda _: True)
        width = body.getwidth()[0]
        return place >= width and self._run(
            list(body), 0, place - width, lambda there: there == place
        )

    def _is_at(self, where: Any, place: int) -> bool:
        if where in (sre.AT_BEGINNING, sre.AT_BEGINNING_STRING):
            return place == 0
        if where in (sre.AT_END, sre.AT_END_STRING):
            return place == len(self._text)
        before, behind = (
            re.match(r"\w", self._text[there : there + 1]) is not None
            for there in (place - 1 if place else len(self._text), place)
        )
        return (before != behind) == (where is sre.AT_BOUNDARY)

    def _fits(self, item: Item, place: int) -> bool:
        return place < len(self._text) and fits(item, self._text[place])


def fits(item: Item, letter: str) -> bool:
    """Return whether an item for one letter fits this one."""
    op, value = item
    if op is sre.LITERAL:
        return chr(value).lower() == letter
    if op is sre.ANY:
        return letter != "\n"
    if op is sre.IN:
        negated = value[0][0] is sre.NEGATE
        return any(_in(each, letter) for each in value[negated:]) != negated
    return chr(value).lower() != letter


_CATEGORIES = {
    sre.CATEGORY_DIGIT: r"\d",
    sre.CATEGORY_NOT_DIGIT: r"\D",
    sre.CATEGORY_SPACE: r"\s",
    sre.CATEGORY_NOT_SPACE: r"\S",
    sre.CATEGORY_WORD: r"\w",
    sre.CATEGORY_NOT_WORD: r"\W",
}


def _in(item: Item, letter: str) -> bool:
    op, value = item
    if op is sre.CATEGORY:
        return re.match(_CATEGORIES[value], letter) is not None
    low, high = value if op is sre.RANGE else (value, value)
    return any(low <= ord(each) <= high for each in (letter, letter.lower(), letter.upper()))


# --------------------------------------------------------------------------------------------------
# The worst lines


def worst_lines(items: Sequence[Item], length: int) -> Iterator[str]:
    """Yield the lines of this length that are worst for an expression: what it looks for up to some
    place, and from some place on again and again, without its end."""
    for way in _ways(items):
        pieces = _pieces(way)
        for first, last in combinations(range(len(pieces) + 1), 2):
            begin, unit = "".join(pieces[:first]), "".join(pieces[first:last])
            yield (begin + unit * (length // len(unit) + 1))[:length]
        for at, item in enumerate(way):
            for letter in _inner(item):
                yield ("".join(map(_sample, way[:at])) + letter * length)[:length]


def _inner(item: Item) -> Iterator[str]:
    """Yield a letter for each repetition that is repeated itself."""
    for part in _parts(*item):
        for op, value in part:
            if op in (sre.MAX_REPEAT, sre.MIN_REPEAT):
                yield _sample(value[2][0])[:1] or _ANY
            yield from _inner((op, value))


def sample(items: Sequence[Item]) -> str:
    """Return a short text that an expression matches, if it has no assertions."""
    return "".join(map(_sample, next(_ways(items))))


def _pieces(items: Sequence[Item]) -> list[str]:
    """Return a text for each item, and one for each row of letters."""
    found = []
    for is_letter, row in groupby(items, lambda item: item[0] is sre.LITERAL):
        texts = [text for text in map(_sample, row) if text]
        found += ["".join(texts)] if is_letter else texts
    return found


def _ways(items: Sequence[Item]) -> Iterator[list[Item]]:
    """Yield the alternatives of an expression, without its groups."""
    for at, (op, value) in enumerate(items):
        if op is sre.SUBPATTERN:
            yield from _ways([*items[:at], *value[-1], *items[at + 1 :]])
            return
        if op is sre.BRANCH:
            for part in value[1][:3]:
                yield from _ways([*items[:at], *part, *items[at + 1 :]])
            return
    yield list(items)


def _sample(item: Item) -> str:
    """Return a short text that an item fits."""
    op, value = item
    if op is sre.LITERAL:
        return chr(value)
    if op in (sre.NOT_LITERAL, sre.ANY, sre.IN):
        letters = f"{_ANY}1 -/.:'=([" + "".join(map(chr, range(33, 127)))
        return next(letter for letter in letters if fits(item, letter))
    if op in (sre.MAX_REPEAT, sre.MIN_REPEAT):
        return sample(list(value[2])) * max(1, value[0])
    return ""
