"""Slurm's compact lists, as `scontrol show hostnames` would expand them."""

from __future__ import annotations

import pytest

from entrypoint.base.errors import ConfigError
from entrypoint.platforms._slurm import expand, most
from tests import table
from tests.growth import grows_too_fast

LISTS = table("tests/tables/nodelists.yaml")


@pytest.mark.parametrize(("text", "nodes"), LISTS["nodes"].items())
def test_nodes(text: str, nodes: str) -> None:
    assert expand(text, "LIST") == tuple(nodes.split())


@pytest.mark.parametrize(("text", "seen"), LISTS["wrong"].items())
def test_no_list(text: str, seen: str) -> None:
    with pytest.raises(ConfigError) as caught:
        expand(text, "LIST")
    assert (
        str(caught.value)
        == f"EP207 LIST is not a list of nodes, such as n[08-11] | {seen} | set ENTRYPOINT_HOSTS"
    )
    assert caught.value.status == 78


@pytest.mark.parametrize(("text", "count"), [*LISTS["too many"].items(), ("a[1-9]" * 60, "59049")])
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


@pytest.mark.parametrize(("text", "largest"), LISTS["counts"].items())
def test_the_largest_of_counts(text: str, largest: int | None) -> None:
    if largest is not None:
        assert most(text, "COUNTS") == largest
        return
    with pytest.raises(ConfigError) as caught:
        most(text, "COUNTS")
    assert (
        str(caught.value)
        == f"EP207 COUNTS is not a list of counts, such as 2(x3),1 | {text!r} | fix COUNTS"
    )
