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


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("# only a comment\n", {}),
        ("---\n", {}),
        ("\ufeffa: b", {"a": "b"}),
        ("a: b\r\nc: d\r\n", {"a": "b", "c": "d"}),
        ("a: '5'\nb: !!str 5\nc: \"no\"\nd: !!int 5", {"a": "5", "b": "5", "c": "no", "d": "5"}),
        ("a:\nb: ~\nc: null\nd: Null\ne: NULL", dict.fromkeys("abcde")),
        ("a: ''\nb: '~'\nc: \"null\"\nd: nUll\ne: !!str null", {"a": "", "b": "~", "c": "null", "d": "nUll", "e": "null"}),
        ("a: =\nb: <<", {"a": "=", "b": "<<"}),
        ("N: a\ny: b\n1: c\nno: d\n~: e", {"N": "a", "y": "b", "1": "c", "no": "d", "~": "e"}),
        ("a: y\nb: 2024-13-45", {"a": "y", "b": "2024-13-45"}),
        ("a: |\n  \tx\n  y\n", {"a": "\tx\ny\n"}),
        ("a: &x [1]\nb: *x", {"a": ["1"], "b": ["1"]}),
        ("a: &x {p: 1, q: 2}\nb: {<<: *x, q: 3}", {"a": {"p": "1", "q": "2"}, "b": {"p": "1", "q": "3"}}),
        ("a: {'<<': 1}", {"a": {"<<": "1"}}),
        (
            "a: &x {p: 1}\nb: &y {p: 2, q: 2}\nc: {<<: [*x, *y]}",
            {"a": {"p": "1"}, "b": {"p": "2", "q": "2"}, "c": {"p": "1", "q": "2"}},
        ),
    ],
)  # fmt: skip
def test_values(text: str, expected: object) -> None:
    assert value(text) == expected


WRITTEN = split("no Yes on true 1.10 22:22 0600 0x1F 1_000 .inf 2024-01-01")


@pytest.mark.parametrize("written", WRITTEN)
def test_a_scalar_is_the_text_that_was_written(written: str) -> None:
    assert value(f"a: {written}\nb: [{written}]") == {"a": written, "b": [written]}
    assert yaml.safe_load(f"a: {written}") != {"a": written}, "the control"


SECOND = "EP101 a second document starts here, one is allowed"
TAG = "EP101 this tag is not allowed here"
FIX = "fix the indentation, quotes or brackets here"
TOO_MANY = (
    "EP101 more than 20,000 values, or values nested too deep | with all aliases expanded"
    " | write fewer"
)
OPEN = "while parsing a flow sequence: expected"
COLON = 'mapping values are not allowed here | quote text that holds ": ", or fix the indentation'
AT = (
    "while scanning for the next token: found character '@' that cannot start any token"
    " | quote text that starts with this character"
)
QUOTES = "EP101 typographic quotes do not quote"
STRAIGHT = "use straight ones: \" or '"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a:\n\t- b", "f:2:1: EP101 a tab in the indentation | use spaces, YAML allows no tabs here"),
        ("a:\n  b: 1\n \tc: 2", "f:3:2: EP101 a tab in the indentation | use spaces, YAML allows no tabs here"),
        ("a:\tb", "f:1:3: EP101 a tab where YAML wants a space | use spaces, YAML allows no tabs here"),
        ("a: 1\nb: 2\na: 3", "f:3:1: a: EP103 this key is given twice | first at f:1:1 | keep one of them"),
        ("x: {a: 1, a: 2}", "f:1:11: x.a: EP103 this key is given twice | first at f:1:5 | keep one of them"),
        ("a: 1\n---\nb: 2", f"f:2:1: {SECOND} | --- | put each job into its own file"),
        ("a: !!python/name:os.system", f"f:1:4: a: {TAG} | `!!python/name:os.system` | remove the tag"),
        ("a: !!set {b}", f"f:1:4: a: {TAG} | `!!set` | remove the tag"),
        ("a: !mine [b]", f"f:1:4: a: {TAG} | `!mine` | remove the tag"),
        ("a: !!binary aGk=", f"f:1:4: a: {TAG} | `!!binary` | remove the tag"),
        ("!x a: b", f"f:1:1: {TAG} | `!x` | remove the tag"),
        ("{[a]: b}", "f:1:2: EP101 a key must be text | a list | write text"),
        ("a: {<<: b}", "f:1:9: a: EP101 `<<` merges mappings only | give it an alias of a mapping"),
        ("a: {<<: {b: !foo c}}", f"f:1:13: a.b: {TAG} | `!foo` | remove the tag"),
        ("a: &x [*x]", f"f:1:1: {TOO_MANY}"),
        ("a: *x", f"f:1:4: EP101 this is not YAML | found undefined alias 'x' | {FIX}"),
        ("token: *x", f"f:1:8: EP101 this is not YAML | {FIX}"),
        ("a: b: c", f"f:1:5: EP101 this is not YAML | {COLON}"),
        ("a: @b", f"f:1:4: EP101 this is not YAML | {AT}"),
        ("b: 1\na: [1, 2\n", f"f:2:4: EP101 this is not YAML | {OPEN} ',' or ']', but got '<stream end>' | {FIX}"),
        ("a: 'b", f"f:1:4: EP101 this is not YAML" f" | while scanning a quoted scalar: found unexpected end of stream | {FIX}"),
        ("a: b\nb: c\nc: \0", 'f:3:4: EP101 a character that YAML does not allow | U+0000 | write it as an escape in "..."'),
        ("a: caf\udce9", "f:1:7: EP101 this is not UTF-8 | byte 0xE9 | save it as UTF-8"),
        ("\udcff\udcfea\0", "f:1:1: EP101 this is not UTF-8 | it is UTF-16 | save it as UTF-8"),
        ("a: \u201cb\u201d", f"f:1:4: a: {QUOTES} | \u201cb\u201d | {STRAIGHT}"),
        ("a: [x, \u2018b\u2019]", f"f:1:8: a.1: {QUOTES} | \u2018b\u2019 | {STRAIGHT}"),
        ('a: "\\UFFFFFFFF"', "f:1:7: EP101 this is not YAML | a number out of range | fix or remove it"),
        ("[" * 5000, f"f:1:1: {TOO_MANY}"),
        ("- a\n" * 20_000, f"f:1:1: {TOO_MANY}"),
        ("#" * (1 << 20) + "#", "f:1:1: EP101 too large: over 1 MiB | 1,048,577 characters | shorten it"),
    ],
)  # fmt: skip
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
