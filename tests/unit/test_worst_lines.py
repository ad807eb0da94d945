"""What the judge does with the worst that a program can print: each pattern's steps are counted on
the worst lines for it, which are made from the pattern itself."""

from __future__ import annotations

import re

import pytest

from entrypoint.causes import clean, judge, measured
from entrypoint.causes.table import Signature, signatures
from tests.backtracking import Matcher, TooManyStepsError, parsed, unbounded, worst_lines

LENGTH = 60  # of a line: enough to see that a cost grows as its square
MOST = 100  # steps for each character of it


def patterns() -> set[str]:
    """Return every pattern of the judge."""
    constants = [
        value
        for module in (clean, judge, measured)
        for name, value in vars(module).items()
        if re.fullmatch("_[A-Z_]+", name) and isinstance(value, str)
    ]
    return {
        *(row.pattern for row in signatures() if row.pattern),
        *constants,
        *clean._ORIGINS,
        *(pattern for pattern, _ in measured._DEVICES),
    }


def costly(pattern: str) -> str:
    """Return a line for which a pattern takes more than MOST steps a character; "" if there is
    none."""
    matcher = Matcher(parsed(pattern), LENGTH * MOST)
    for line in dict.fromkeys(worst_lines(parsed(pattern), LENGTH)):
        try:
            matcher.finds(line)
        except TooManyStepsError:
            return line
    return ""


@pytest.mark.promise("no line that a program prints holds the interpreter while it is judged")
def test_no_repetition_is_without_a_bound() -> None:
    assert [pattern for pattern in patterns() if unbounded(parsed(pattern))] == []


@pytest.mark.promise("no line that a program prints holds the interpreter while it is judged")
def test_no_pattern_takes_many_steps_on_its_worst_lines() -> None:
    assert {pattern: line for pattern in patterns() if (line := costly(pattern))} == {}


@pytest.mark.control("no line that a program prints holds the interpreter while it is judged")
@pytest.mark.parametrize(
    "pattern",
    [
        r"\d+ validation errors?",
        r"(?:^|\b[\w.]+\.)MemoryError",
        r"cuda\w*[^.]{0,60}: out of memory",
        r"(?:a{1,30}b?){1,30}c",
        r"x.{0,90}y.{0,90}z",
    ],
)
def test_a_costly_pattern_is_noticed(pattern: str) -> None:
    assert unbounded(parsed(pattern)) or costly(pattern)


def test_the_matcher_finds_what_python_finds() -> None:
    for pattern, line, found in (
        (r"^a{2}(?:b|c)[^d]\b", "aaCx ", True),
        (r"(?<!x)y(?!z).$", "yq", True),
        (r"(?<!x)y", "xy", False),
        (r"(?P<n>\d{1,3})(?:,\d){2}\W", "12,3,4!", True),
        (r"(?:ab){1,3}?c", "ababc", True),
        (r"\s\S\D\B.", " ab1d", True),
    ):
        matcher = Matcher(parsed(pattern), 1000)
        assert (re.search(pattern, line, re.IGNORECASE) is not None) == found
        assert matcher.finds(line) == found


def test_what_is_compared_in_one_judgement_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every pattern's worst lines at once, longer than what is looked at."""
    compared = []
    match = Signature.match

    def counting(signature: Signature, line: str) -> dict[str, str] | None:
        compared.append(len(line))
        return match(signature, line)

    monkeypatch.setattr(Signature, "match", counting)
    lines = [
        f"{row.needle} {next(worst_lines(parsed(row.pattern), 2 * clean.LONGEST))}"
        for row in signatures()
        if row.pattern
    ]
    assert judge.judge(lines * 40, 1).slug
    assert max(compared) <= clean.LONGEST
    assert judge._MOST_COMPARED / 2 < sum(compared) < judge._MOST_COMPARED * 2
