"""The form in which people read the name of a node: `worker-1`, or `worker-1 (gpu-17)`."""

from __future__ import annotations

import pytest

from entrypoint.base.model import Node, node_name
from entrypoint.cli.status import _changing
from entrypoint.features.record.timeline import table
from tests.made_up import merged, recorded


@pytest.mark.parametrize(
    ("label", "host", "name"),
    [
        ("worker-1", "gpu-17", "worker-1 (gpu-17)"),
        ("worker-1", "worker-1", "worker-1"),
        ("ps-0", "gpu-17", "ps-0 (gpu-17)"),
    ],
)
def test_a_host_is_named_where_it_is_another(label: str, host: str, name: str) -> None:
    assert node_name(label, host) == name
    task, index = label.split("-")
    node = Node(int(index), host, 1, task=task, index=int(index))
    assert node.name == name


def test_a_timeline_has_the_names_of_messages() -> None:
    names = [f"worker-{rank} ({host})" for rank, host in enumerate("abcd")]
    assert "\nworker-3 (d) was last: " in table(merged(recorded() | {"names": names}))


def test_status_names_a_node_as_messages_do() -> None:
    node = dict.fromkeys(("since_seconds", "heartbeat_seconds", "ranks", "ranks_ended"))
    nodes = [
        {**node, "node": "worker-0", "host": host, "phase": "running", "idle_seconds": None, "detail": ""}
        for host in ("worker-0", "gpu-17")
    ]  # fmt: skip
    lines = _changing({"nodes": nodes})
    assert lines == ["worker-0: running", "worker-0 (gpu-17): running"]
