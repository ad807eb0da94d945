"""Values as people read them: one definition of each form."""

from __future__ import annotations

import pytest

from entrypoint.base.text import (
    brief,
    columns,
    count,
    duration,
    figure,
    is_utf16,
    quoted,
    size,
    some,
)

MIB = 1 << 20


def test_a_message_stays_on_its_line() -> None:
    assert brief("a\nb\x1b[31m\u2028é") == r"a\nb\x1b[31m\u2028é"
    assert brief("x" * 100) == "x" * 59 + "…"
    assert quoted("a\tb") == r'"a\tb"'


@pytest.mark.parametrize(
    ("number", "words"),
    [(0, "0 KiB"), (65_536, "64 KiB"), (MIB, "1 MiB"), (MIB * 3 // 2, "1.5 MiB"), (1.5 * 2**30, "1.5 GiB"),
     (2**41, "2 TiB")],
)  # fmt: skip
def test_sizes(number: float, words: str) -> None:
    assert size(number) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0s"), (0.0004, "0ms"), (0.5, "500ms"), (0.9994, "999ms"), (0.9996, "1s"), (3.452, "3.45s"), (12, "12s"),
     (59.94, "59.9s"), (59.99, "1m00s"), (65.2, "1m05s"), (185, "3m05s"), (3725, "1h02m"), (36_000, "10h00m"),
     (-0.5, "-0.5s")],
)  # fmt: skip
def test_durations(seconds: float, words: str) -> None:
    assert duration(seconds) == words


@pytest.mark.parametrize(
    ("value", "words"), [(0.071234, "0.0712"), (3.41, "3.41"), (201.4, "201"), (12_345.6, "12346")]
)
def test_figures(value: float, words: str) -> None:
    assert figure(value) == words


def test_counts() -> None:
    assert [count(number, "rank") for number in (0, 1, 2)] == ["0 ranks", "1 rank", "2 ranks"]
    assert [count(number, "process", "processes") for number in (1, 2)] == [
        "1 process",
        "2 processes",
    ]


def test_some_of_many() -> None:
    assert some([], 2) == ""
    assert some(iter("ab"), 2) == "a, b"
    assert some("abcd", 1) == "a and 3 more"
    assert (
        some(["a is slow: 1, 2", "b is slow", "c"], 2, "; ")
        == "a is slow: 1, 2; b is slow; and 1 more"
    )


def test_columns() -> None:
    rows = [("node", "ms", "peers", ""), ("worker-0", "12.5", "1", "ok"), ("b", "3", "10", "")]
    expected = ["node        ms  peers", "worker-0  12.5      1  ok", "b            3     10"]
    assert columns(rows, (1, 2)) == expected
    assert columns(rows)[0] == "node      ms    peers"


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("errors", ["surrogateescape", "replace"])
def test_utf16(encoding: str, errors: str) -> None:
    assert is_utf16("{}".encode(encoding).decode("utf-8", errors))
    assert not any(map(is_utf16, ("", "{", "{}", "\0", "é", "\ufffd{")))
