"""The YAML reader: positions, every scalar as text, and nothing that explodes."""

from __future__ import annotations

from shlex import split
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from entrypoint.spec.items import Item, ProblemList
from entrypoint.spec.yamlfile import Reader
from tests import table

TABLE = table("tests/tables/yamlfile.yaml")


def plain(item: Item | None) -> Any:
    if item is None:
        return None
    if isinstance(item.value, dict):
        return {name: plain(child) for name, child in item.value.items()}
    return [plain(child) for child in item.value] if isinstance(item.value, list) else item.value


def problems(text: str) -> list[str]:
    report = ProblemList()
    Reader(text, "f", report).read()
    return report.error().lines()


def value(text: str) -> Any:
    report = ProblemList()
    item = Reader(text, "f", report).read()
    assert not report, report.error()
    return plain(item)


def test_every_value_knows_its_place() -> None:
    item = Reader("a: 1\nb:\n  - x\n  - {c: d}\n", "job.yaml", ProblemList()).read()
    second = item.value["b"].value[1]
    assert item.value["a"].place.where == "job.yaml:1:4"
    assert item.value["b"].key.where == "job.yaml:2:1"
    assert second.place.where == "job.yaml:4:5"
    assert second.value["c"].place.where == "job.yaml:4:9"


@pytest.mark.parametrize(("text", "expected"), TABLE["values"])
def test_values(text: str, expected: object) -> None:
    assert value(text) == expected


WRITTEN = split("no Yes on true 1.10 22:22 0600 0x1F 1_000 .inf 2024-01-01")


@pytest.mark.parametrize("written", WRITTEN)
def test_a_scalar_is_the_text_that_was_written(written: str) -> None:
    assert value(f"a: {written}\nb: [{written}]") == {"a": written, "b": [written]}
    assert yaml.safe_load(f"a: {written}") != {"a": written}, "the control"


TOO_MANY = (
    "EP101 more than 20,000 values, or values nested too deep | with all aliases expanded"
    " | write fewer"
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *TABLE["refused"],
        ("[" * 5000, f"f:1:1: {TOO_MANY}"),
        ("- a\n" * 20_000, f"f:1:1: {TOO_MANY}"),
        (
            "#" * (1 << 20) + "#",
            "f:1:1: EP101 too large: over 1 MiB | 1,048,577 characters | shorten it",
        ),
    ],
)
def test_what_is_refused(text: str, expected: str) -> None:
    assert problems(text) == [expected]


def test_typographic_quotes_within_straight_ones_are_text() -> None:
    assert value("a: '\u201cb\u201d'\nc: d\u2019s") == {"a": "\u201cb\u201d", "c": "d\u2019s"}


def test_a_pair_of_surrogates_is_one_character() -> None:
    r"""Each JSON writer writes a character beyond 16 bits as `\\ud83d\\ude00`."""
    assert value(r'a: "\ud83d\ude00 \ud83d"') == {"a": "\U0001f600 \ud83d"}


def test_of_too_many_values_the_rest_is_not_even_read() -> None:
    """A megabyte of them would take some 20 s and 350 MB."""
    reader = Reader(f"a: [{'1,' * 100_000}]", "f", ProblemList(), 0, "")
    reader.read()
    assert reader.report.error().lines() == [f"f:1:1: {TOO_MANY}"]
    assert reader.loader.get_mark().index < 50_000


@pytest.mark.parametrize("levels", [4, 30])
def test_a_billion_laughs_are_refused(levels: int) -> None:
    lines = [
        'a0: &a0 ["lol"]',
        *(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, levels)),
    ]
    text = "\n".join(lines)
    if levels == 4:
        assert str(value(text)["a3"]).count("lol") == 1000, "the control"
    else:
        assert problems(text) == [f"f:1:1: {TOO_MANY}"]


def test_one_mistake_under_an_anchor_is_one_line() -> None:
    assert problems("a: &x {b: !foo c}\nd: *x\ne: {<<: *x}") == [
        "f:1:11: a.b: EP101 this tag is not allowed here | `!foo` | remove the tag"
    ]


WORDS = [*split("0b_ 0x 1:1 &a *a <<: !!int !! !<"), ">\n", "%YAML", "1.1", "\\x", '"\\U', ".inf"]
WORDS += ["2024-99-99", "é", "yes"]
YAMLISH = st.lists(
    st.sampled_from(
        [*"[]{}:,-?!&*|>%@#'\"\n\t ~<=.a0\0\ud800", *WORDS, "\n  ", ": ", "- ", "---\n"]
    )
)


@given(
    st.one_of(
        YAMLISH.map("".join),
        st.text(),
        st.binary().map(lambda b: b.decode(errors="surrogateescape")),
    )
)
def test_no_text_breaks_the_reader(text: str) -> None:
    report = ProblemList()
    item = Reader(text, "f", report).read()
    assert item is not None or report
    if report:
        assert all("\n" not in line for line in report.error().lines())
