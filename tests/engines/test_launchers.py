"""The launchers of tests/rows.py in real containers: each example trains, fails, and is stopped."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

import pytest

from tests import TREE
from tests.cluster import until
from tests.composed import Compose
from tests.containers import container, logs
from tests.rows import EXAMPLES, agrees, ended, said


def those_that(way: str) -> pytest.MarkDecorator:
    """The examples that are to be tried in this way."""
    return pytest.mark.parametrize(
        "name", [name for name, each in EXAMPLES.items() if way in each.ways.split()]
    )


def start(compose: Compose, name: str, *options: str) -> dict[str, str]:
    """The example's containers: host -> id."""
    example = EXAMPLES[name]
    compose.render(
        TREE / "examples" / example.spec, *example.program, *options, image=example.image
    )
    compose.run("up", "-d")
    containers = compose.containers()
    assert list(containers) == example.hosts
    return containers


def ranks(text: str, words: str) -> set[str]:
    """The ranks that say this."""
    return set(re.findall(rf"rank (\d+) {words}", text))


def stay(compose: Compose, name: str, *options: str) -> dict[str, str]:
    """The example's containers, once every process is up."""
    containers, example = start(compose, name, *options), EXAMPLES[name]
    wanted = example.nodes * example.slots
    until(lambda: len(ranks(said(containers), "is up")) == wanted, 120, "every process is up")
    return containers


def trained(name: str, hosts: Iterable[str], log: str) -> None:
    """Every process ran where it belongs, and all together trained as one would."""
    example = EXAMPLES[name]
    host_of = {int(rank): host for rank, host in re.findall(r"rank (\d+) of \d+ on ([\w.-]+)", log)}
    found = [host_of[rank] for rank in sorted(host_of)]
    wanted = [host for host in hosts for _ in range(example.slots)]
    assert (sorted(found) if example.anywhere else found) == wanted, log
    agrees(log, example.tolerance)


@pytest.mark.promise("every launcher trains over several nodes as one process would")
@pytest.mark.timeout(300)
@those_that("trains")
def test_it_trains_as_one_process_would(
    job_yaml: Callable[..., tuple[dict[str, str], str]], name: str
) -> None:
    example = EXAMPLES[name]
    containers, log = job_yaml(example.image, example.spec, seconds=200)
    assert list(containers) == example.hosts
    trained(name, containers, log)


@pytest.mark.timeout(300)
@those_that("variables")
def test_it_trains_from_variables_alone(
    variables: Callable[..., tuple[dict[str, str], str]], name: str
) -> None:
    example = EXAMPLES[name]
    env = {"ENTRYPOINT_LAUNCHER": example.launcher}
    folder = example.spec.partition("/")[0]
    trained(name, *variables(example.image, folder, *example.program, env=env, seconds=200))


@pytest.mark.timeout(300)
@those_that("fails")
def test_a_failing_process_is_everybody_s_status(compose: Compose, name: str) -> None:
    containers = start(compose, name, "--steps", "20", "--fail", "7")
    # The grace of the examples is 10 s, and a process that waits for the failed one may need it.
    assert ended(containers, 200, together=12) == dict.fromkeys(EXAMPLES[name].hosts, 7), said(
        containers
    )


@pytest.mark.timeout(300)
@those_that("stops")
def test_sigterm_reaches_every_process(compose: Compose, name: str) -> None:
    containers = stay(compose, name, "--stay")
    container(containers["worker-1"]).kill("TERM")
    assert ended(containers, 100, together=12) == dict.fromkeys(EXAMPLES[name].hosts, 143), said(
        containers
    )
    assert ranks(said(containers), "told") == ranks(said(containers), "is up"), said(containers)


@pytest.mark.timeout(300)
@those_that("loses")
def test_the_others_go_on(compose: Compose, name: str) -> None:
    containers = start(compose, name, "--steps", "60", "--pause", "0.2")
    until(lambda: "step 5\n" in logs(containers["worker-0"]), 120, "it trains")
    container(containers["worker-2"]).kill()
    ends = ended({host: containers[host] for host in ("worker-0", "worker-1")}, 200)
    assert ends == {"worker-0": 0, "worker-1": 0}, said(containers)
    assert "the job goes on with 2 nodes" in logs(containers["worker-0"])
    assert ranks(said(containers), r"of 4 on \S+, local rank \d, pid \d+, from step [1-9]") == set(
        "0123"
    )
    agrees(said(containers), EXAMPLES[name].tolerance)
