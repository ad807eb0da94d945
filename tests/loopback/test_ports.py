"""Ports that another program has: the nodes take others, unless the user has set them."""

from __future__ import annotations

import contextlib
import os
import re
import socket
from pathlib import Path

import pytest

from tests.cluster import Make, free_port

SHOW = 'echo "port $MASTER_PORT"'


def own_name() -> str:
    return f"{Path('/proc/self/comm').read_text().strip()} (pid {os.getpid()})"


@pytest.mark.parametrize("launcher", ["plain", "mpirun"])
def test_a_default_port_that_is_taken_is_replaced_on_every_node(
    cluster: Make, launcher: str
) -> None:
    job = cluster(2, slots=1)
    with socket.create_server(("0.0.0.0", 6060)):
        job.start_all("sh", "-c", SHOW, launcher=launcher)
        assert job.ends() == {0: 0, 1: 0}, job.both()
    (port,) = set(re.findall(r"^port (\d+)$", f"{job.out(0)}\n{job.out(1)}", re.MULTILINE))
    assert 20000 <= int(port) <= 20999
    words = f"port 6060 is taken on worker-0 (node-0) by {own_name()}; torch.port is {port}"
    assert words in job.err(0), job.err(0)
    assert job.survivors() == []


def test_each_node_has_to_have_the_port_of_its_server(cluster: Make) -> None:
    """2223 is the parameter server's alone."""
    job = cluster(2, slots=1)
    with socket.create_server(("0.0.0.0", 2223)):
        job.start_all(
            "sh", "-c", 'echo "$TF_CONFIG"', env={"ENTRYPOINT_TENSORFLOW_PS": "1"},
            launcher="tensorflow",
        )  # fmt: skip
        assert job.ends()[0] == 0, job.both()
    found = re.search(r'127.0.0.2:(\d+)"\], "ps": \["127.0.0.3:(\d+)"', job.out(0))
    assert found, job.out(0)
    assert 20000 <= int(found[1]) == int(found[2]) - 1 <= 20999
    words = f"on ps-0 (node-1) by {own_name()}, which has port 2223; tensorflow.port is {found[1]}"
    assert words in job.err(0), job.err(0)


@pytest.mark.parametrize("node", [0, 1])
def test_a_port_that_the_user_has_set_is_kept_and_its_holder_is_named(
    cluster: Make, node: int
) -> None:
    job = cluster(2, slots=1)
    port = free_port()
    settings = {"ENTRYPOINT_TENSORFLOW_PORT": str(port), "ENTRYPOINT_TENSORFLOW_PS": "1"}
    with socket.create_server(("0.0.0.0", port + node)):
        job.start_all("true", env=settings, launcher="tensorflow")
        assert job.ends() == {0: 71, 1: 71}, job.both()
    name = ("worker-0 (node-0)", "ps-0 (node-1)")[node]
    by = own_name() + (f", which has port {port + 1}" if node else "")
    words = f"EP435 port {port} is taken (tensorflow.port) | by {by} | "
    assert all(words in job.err(rank) and f" on {name}" in job.err(rank) for rank in range(2))


def test_a_range_without_a_free_port_ends_the_job(cluster: Make) -> None:
    job = cluster(2, slots=1)
    first = free_port() // 16 * 16
    with contextlib.ExitStack() as stack:
        for port in (6060, *range(first, first + 16)):
            with contextlib.suppress(OSError):  # somebody else has it
                stack.enter_context(socket.create_server(("0.0.0.0", port)))
        ports = f"{first}-{first + 15}"
        job.start_all("true", env={"ENTRYPOINT_NETWORK_PORTS": ports}, launcher="plain")
        assert job.ends() == {0: 71, 1: 71}, job.both()
    assert "EP436 no port for torch.port is free on all nodes | port 6060 is taken" in job.err(1)
