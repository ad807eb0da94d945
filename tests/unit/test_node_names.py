"""The form in which people read the name of a node: `worker-1`, or `worker-1 (gpu-17)`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from entrypoint.base.model import Node, node_name
from entrypoint.cli.status import _changing
from entrypoint.features.record.timeline import table
from tests.made_up import merged, recorded

PACKAGE = Path(__file__).parents[2] / "entrypoint"
# A host name that is meant as such: what DNS was asked for, or an entry of a launcher's file.
NAMES_OF_HOSTS = {
    "features/health/probes/network.py",
    "job/rollcall.py",
    "job/worker.py",
    "launchers/hydra.py",
    "plan/topology.py",
    "system/keys.py",
}


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


def hosts_in_texts(sources: Mapping[str, str]) -> Iterator[str]:
    """Return each file that puts the host name of a node into a text."""
    for file, source in sources.items():
        if file not in NAMES_OF_HOSTS and re.search(r"\{[\w.\[\]]*\.host\}", source):
            yield file


def test_no_message_names_a_node_by_its_host() -> None:
    sources = {str(file.relative_to(PACKAGE)): file.read_text() for file in PACKAGE.rglob("*.py")}
    sources.pop("cli/run.py")  # the prefix `job`, whose form is documented
    assert list(hosts_in_texts(sources)) == []


def test_a_message_with_a_host_is_found() -> None:
    assert list(hosts_in_texts({"a.py": 'f"{self._nodes[0].host} is lost"'})) == ["a.py"]
