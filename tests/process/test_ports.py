"""Which ports a node offers at the roll call, by what listens on this host and what others claim."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from entrypoint.model import LaunchPort, NodeReport
from entrypoint.spec import JobSpec, load
from entrypoint.system import ports
from entrypoint.system.ports import PortClaims
from tests.cluster import free_port

pytestmark = pytest.mark.usefixtures("alone")  # they claim ports of the same range
REPORT = NodeReport(0, 1, "1")


@pytest.fixture
def taken() -> Iterator[int]:
    """A port on which this process listens."""
    port = free_port()
    with socket.create_server(("127.0.0.1", port)):
        yield port


@pytest.fixture
def claims() -> Iterator[list[PortClaims]]:
    """The claims of three nodes."""
    made = [PortClaims() for _ in range(3)]
    yield made
    for each in made:
        each.close()


def spec(**env: str) -> JobSpec:
    return load(None, "", {"ENTRYPOINT_NETWORK_PORTS": "19000-19099", **env}, {})


def wanted(first: int, here: tuple[int, ...] = (0,), **how: bool) -> LaunchPort:
    return LaunchPort("torch.port", first, span=2, here=here, **how)


def own_name() -> str:
    return f"{Path('/proc/self/comm').read_text().strip()} (pid {os.getpid()})"


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0", "::1"])
def test_a_port_is_taken_where_somebody_listens_at_any_address(address: str) -> None:
    port = free_port()
    assert ports.is_free(port)
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        listener = socket.create_server((address, port), family=family)
    except OSError:
        pytest.skip(f"no {address} here")
    with listener:
        assert not ports.is_free(port)
        assert ports.holder(port) == own_name()
    assert ports.is_free(port)
    assert ports.holder(port) == ""


def test_connections_in_time_wait_leave_a_port_free() -> None:
    port = free_port()
    with socket.create_server(("127.0.0.1", port)) as listener:
        caller = socket.create_connection(("127.0.0.1", port))
        listener.accept()[0].close()  # who closes first has it in TIME_WAIT
        caller.close()
    assert ports.is_free(port)
    with socket.socket() as strict, pytest.raises(OSError, match="in use"):
        strict.bind(("127.0.0.1", port))  # control: without SO_REUSEADDR it is not


def test_a_free_port_is_the_only_one_that_worker_0_offers(claims: list[PortClaims]) -> None:
    port = free_port()
    assert claims[0].offer(spec(), wanted(port), REPORT, "a").ports == (port,)


def test_a_node_on_which_no_program_listens_offers_nothing(claims: list[PortClaims]) -> None:
    assert claims[0].offer(spec(), wanted(free_port(), ()), REPORT, "a") == REPORT
    assert claims[0].offer(spec(), None, REPORT, "a") == REPORT


def test_a_taken_port_is_replaced_by_one_of_the_range(taken: int, claims: list[PortClaims]) -> None:
    report = claims[0].offer(spec(), wanted(taken), REPORT, "a")
    assert report.holder == own_name()
    assert report.ports is not None
    (port,) = report.ports
    assert 19000 <= port < 19100
    assert port % 2 == 0


def test_nodes_of_a_job_offer_the_same_ports_and_another_job_s_none_of_them(
    taken: int, claims: list[PortClaims]
) -> None:
    """As three nodes on one host network."""
    everywhere = wanted(taken, everywhere=True)
    narrow = spec(ENTRYPOINT_NETWORK_PORTS="19000-19015")
    first, second = (claim.offer(narrow, everywhere, REPORT, "a").ports for claim in claims[:2])
    assert first == second
    assert first is not None
    assert len(first) == 7
    third = claims[2].offer(narrow, wanted(taken), REPORT, "b").ports
    assert third is not None
    assert not {*third} & {*first}
    for claim in claims[:2]:
        claim.keep(first[0])
    again = claims[2].offer(narrow, everywhere, REPORT, "c").ports
    assert again is not None
    assert first[0] not in again
    assert {*again} & {*first[1:]}, "what was not chosen is given back"


def test_two_jobs_that_start_together_do_not_both_get_the_default(
    claims: list[PortClaims],
) -> None:
    port = free_port()
    assert claims[0].offer(spec(), wanted(port), REPORT, "a").ports == (port,)
    other = claims[1].offer(spec(), wanted(port), REPORT, "b")
    assert other.holder == "another job"
    assert other.ports is not None
    assert other.ports != (port,)
    claims[0].close()
    assert claims[1].offer(spec(), wanted(port), REPORT, "b").ports == (port,)


def test_a_port_that_the_user_has_set_is_kept_or_the_node_is_not_ready(
    taken: int, claims: list[PortClaims]
) -> None:
    fixed = spec(MASTER_PORT=str(taken))
    outcome = claims[0].offer(fixed, wanted(taken), REPORT, "a").not_ready
    assert outcome is not None
    assert outcome.status == 71
    hint = "end it, or set another port: MASTER_PORT"
    assert outcome.reason == (
        f"EP435 port {taken} is taken (torch.port) | by {own_name()} | {hint}"
    )
    # Programs that may not need it are only told of it.
    assert claims[0].offer(fixed, wanted(taken, needed=False), REPORT, "a") == REPORT
    # A claim of another job alone, which may never use it, is no reason.
    port = free_port()
    assert claims[1].offer(spec(), wanted(port), REPORT, "b").ports == (port,)
    assert claims[0].offer(spec(MASTER_PORT=str(port)), wanted(port), REPORT, "a") == REPORT


def test_each_port_of_a_block_counts(claims: list[PortClaims]) -> None:
    with contextlib.ExitStack() as stack:
        first = free_port(2)
        stack.enter_context(socket.create_server(("127.0.0.1", first + 1)))
        report = claims[0].offer(spec(), wanted(first, (0, 1)), REPORT, "a")
        assert report.holder == f"{own_name()}, which has port {first + 1}"
        assert claims[1].offer(spec(), wanted(first, (0,)), REPORT, "b").ports == (first,)
