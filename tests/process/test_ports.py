"""Which ports a node offers at the roll call, by what listens on this host."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from entrypoint.base.model import LaunchPort, NodeReport
from entrypoint.spec import JobSpec, load
from entrypoint.system import ports
from entrypoint.system.ports import offer
from tests.cluster import free_port

REPORT = NodeReport(0, 1, "1")


@pytest.fixture
def taken() -> Iterator[int]:
    """A port on which this process listens."""
    port = free_port()
    with socket.create_server(("127.0.0.1", port)):
        yield port


def spec(**env: str) -> JobSpec:
    return load(None, "", {"ENTRYPOINT_NETWORK_PORTS": "19000-19099", **env}, {})


def wanted(first: int, here: tuple[int, ...] = (0,), **how: bool) -> LaunchPort:
    return LaunchPort(first, span=2, here=here, **how)


def own_name() -> str:
    return f"{Path('/proc/self/comm').read_text().strip()} (pid {os.getpid()})"


@pytest.mark.parametrize("address", ["127.0.0.2", "0.0.0.0", "::1"])
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
        if address != "0.0.0.0":
            assert ports.holder(port, address) == own_name()
            assert ports.holder(port, "127.0.0.3") == "another process"
            assert ports.is_free(port, "127.0.0.3")
    assert ports.is_free(port)


def test_connections_in_time_wait_leave_a_port_free() -> None:
    port = free_port()
    with socket.create_server(("127.0.0.1", port)) as listener:
        caller = socket.create_connection(("127.0.0.1", port))
        listener.accept()[0].close()  # who closes first has it in TIME_WAIT
        caller.close()
    assert ports.is_free(port)
    with socket.socket() as strict, pytest.raises(OSError, match="in use"):
        strict.bind(("127.0.0.1", port))  # control: without SO_REUSEADDR it is not


def test_a_port_of_a_connection_is_named_as_taken() -> None:
    """36666 is one of the ports that the kernel gives to connections (ip(7))."""
    port = free_port()
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as caller:
        caller.bind(("127.0.0.1", port))
        caller.connect(listener.getsockname())
        assert not ports.is_free(port)
        assert ports.holder(port) == f"a connection of {own_name()}"


def offered(spec: JobSpec, port: LaunchPort, shared: bool = False) -> NodeReport:
    return offer(spec, port, REPORT, "a", shared)


def test_a_free_port_is_the_only_one_that_worker_0_offers() -> None:
    port = free_port()
    assert offered(spec(), wanted(port)).ports == (port,)
    (other,) = offered(spec(), wanted(port), shared=True).ports or ()
    assert 19000 <= other < 19100, "where a scheduler may start several jobs at once"


def test_a_node_on_which_no_program_listens_offers_nothing() -> None:
    assert offered(spec(), wanted(free_port(), ())) == REPORT
    assert offer(spec(), None, REPORT, "a", False) == REPORT


def test_a_taken_port_is_replaced_by_one_of_the_range(taken: int) -> None:
    report = offered(spec(), wanted(taken))
    assert report.holder == own_name()
    assert report.ports is not None
    (port,) = report.ports
    assert 19000 <= port < 19100
    assert port % 2 == 0


def test_names_of_other_programs_do_not_count_where_ports_are_free(taken: int) -> None:
    """Any user can have names in the abstract namespace (unix(7))."""
    with contextlib.ExitStack() as stack:
        for port in range(19000, 19100):
            name = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
            name.bind(f"\0entrypoint/port/{port}")
        assert offered(spec(), wanted(taken)).ports


def test_nodes_of_a_job_offer_the_same_ports(taken: int) -> None:
    narrow = spec(ENTRYPOINT_NETWORK_PORTS="19000-19015")
    first, second = (offered(narrow, wanted(taken, everywhere=True)).ports for _ in range(2))
    assert first == second
    assert first is not None
    assert len(first) == 7


def test_a_port_that_the_user_has_set_is_kept_or_the_node_is_not_ready(taken: int) -> None:
    fixed = spec(ENTRYPOINT_PORT=str(taken))
    outcome = offered(fixed, wanted(taken)).not_ready
    assert outcome is not None
    assert outcome.status == 71
    hint = "end it, or set another port: ENTRYPOINT_PORT"
    assert outcome.reason == (
        f"EP435 the launcher's port {taken} is taken | by {own_name()} | {hint}"
    )
    # Programs that may not need it are only told of it.
    assert offered(fixed, wanted(taken, needed=False)) == REPORT


def test_each_port_of_a_block_counts() -> None:
    first = free_port(2)
    with socket.create_server(("127.0.0.1", first + 1)):
        report = offered(spec(), wanted(first, (0, 1)))
        assert report.holder == f"{own_name()}, which has port {first + 1}"
        assert offered(spec(), wanted(first, (0,))).ports == (first,)
