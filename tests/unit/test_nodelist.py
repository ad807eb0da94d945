"""Slurm's compact lists, as `scontrol show hostnames` would expand them."""

from __future__ import annotations

import pytest

from entrypoint.errors import ConfigError
from entrypoint.platforms._nodelist import expand, most
from tests.growth import grows_too_fast


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        ("login", "login"),
        ("a,b-2,c_3.example.com", "a b-2 c_3.example.com"),
        ("n[1-3]", "n1 n2 n3"),
        ("n[08-11]", "n08 n09 n10 n11"),
        ("n[8-11]", "n8 n9 n10 n11"),
        ("n[098-101]", "n098 n099 n100 n101"),
        ("n[98-101]", "n98 n99 n100 n101"),
        ("n[08,9,010]", "n08 n9 n010"),
        ("n[0-1]", "n0 n1"),
        ("n[00]", "n00"),
        ("n[5-5]", "n5"),
        ("[1-2]", "1 2"),
        ("gnode[10,20,25,37]", "gnode10 gnode20 gnode25 gnode37"),
        ("a[1,3-4],b,c[01-02]-ib", "a1 a3 a4 b c01-ib c02-ib"),
        ("r[1-2]n[01-03]", "r1n01 r1n02 r1n03 r2n01 r2n02 r2n03"),
        ("r[1,3]c[0-1]s[7-8]x", "r1c0s7x r1c0s8x r1c1s7x r1c1s8x r3c0s7x r3c0s8x r3c1s7x r3c1s8x"),
        ("n[3,1-2]", "n3 n1 n2"),  # an arbitrary distribution has an order of its own
        ("n[123456789012345678]", "n123456789012345678"),
        (" n[1-2] \n", "n1 n2"),
    ],
)
def test_nodes(text: str, nodes: str) -> None:
    assert expand(text, "LIST") == tuple(nodes.split())


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("", "it is empty"),
        ("  ", "it is empty"),
        ("n[1-2", "it cannot be read from '[1-2' on"),
        ("n1-2]", "it cannot be read from ']' on"),
        ("n[1-[2]]", "it cannot be read from '[1-[2]]' on"),
        ("n[]", "it cannot be read from '[]' on"),
        ("n[1-2],,m", "it cannot be read from ',m' on"),
        (",n1", "it cannot be read from ',n1' on"),
        ("n1,", "it cannot be read from 'n1,' on"),
        ("n1 n2", "it cannot be read from ' n2' on"),
        ("n[1, 2]", "it cannot be read from '[1, 2]' on"),
        ("n[1,]", "it cannot be read from '[1,]' on"),
        ("n[-2]", "it cannot be read from '[-2]' on"),
        ("n[1-]", "it cannot be read from '[1-]' on"),
        ("n[1-2-3]", "it cannot be read from '[1-2-3]' on"),
        ("n[a-c]", "it cannot be read from '[a-c]' on"),
        ("n[1-9:2]", "it cannot be read from '[1-9:2]' on"),
        ("n[1-9/2]", "it cannot be read from '[1-9/2]' on"),
        ("n[3-1]", "it cannot be read from '[3-1]' on"),
        ("n[8-011]", "it cannot be read from '[8-011]' on"),
        ("n[011-12]", "it cannot be read from '[011-12]' on"),
        ("n[\N{SUPERSCRIPT TWO}]", "it cannot be read from '[\N{SUPERSCRIPT TWO}]' on"),
        ("n[1234567890123456789]", "it cannot be read from '[1234567890123456789]' on"),
        ("(null)[", "it cannot be read from '[' on"),
    ],
)
def test_no_list(text: str, seen: str) -> None:
    with pytest.raises(ConfigError) as caught:
        expand(text, "LIST")
    assert (
        str(caught.value)
        == f"EP207 LIST is no list of nodes, such as n[08-11] | {seen} | set ENTRYPOINT_HOSTS"
    )
    assert caught.value.status == 78


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("n[1-16385]", "16385"),
        ("n[0-999999999999999999]", "1000000000000000000"),
        ("a[1-9999],b[1-9999]", "19998"),
        ("a[1-200]b[1-200]", "40000"),
        ("a[1-9]" * 60, "59049"),
    ],
)
def test_too_many(text: str, count: str) -> None:
    """No range is expanded before its size is known."""
    with pytest.raises(ConfigError) as caught:
        expand(text, "LIST")
    assert (
        str(caught.value)
        == f"EP204 LIST has too many nodes | {count} or more | a job has 16384 at most"
    )


def test_the_most_nodes_of_a_job() -> None:
    assert len(expand("n[00001-16384]", "LIST")) == 16384
    assert expand("n[00001-16384]", "LIST")[-1] == "n16384"
    assert len(expand(",".join(f"node-{rank}" for rank in range(16384)), "LIST")) == 16384


def test_a_long_list_that_is_wrong_at_its_end_is_refused_soon() -> None:
    def refused(text: str) -> None:
        with pytest.raises(ConfigError, match=r"from '\[' on"):
            expand(text, "LIST")

    assert not grows_too_fast(refused, "n," * 4000 + "[", "n," * 16000 + "[")


@pytest.mark.parametrize(
    ("text", "largest"),
    [("1", 1), ("1(x4)", 1), ("2(x3),1", 2), ("1,2(x3),4,3(x2)", 4), ("0", 0), ("8 , 2", 8)],
)
def test_the_largest_of_counts(text: str, largest: int) -> None:
    assert most(text, "COUNTS") == largest


@pytest.mark.parametrize(
    "text", ["", "x", "1x4", "1(x)", "1(4)", "(x4)", "1(x4", "1,", "-1", "1.5", "9" * 10]
)
def test_no_counts(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        most(text, "COUNTS")
    assert (
        str(caught.value)
        == f"EP207 COUNTS is no list of counts, such as 2(x3),1 | {text!r} | fix COUNTS"
    )
