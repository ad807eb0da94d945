from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster import Cluster

MISSING = [name for name in ("mpirun", "ssh") if not shutil.which(name)] + (
    [] if shutil.which("sshd", path="/usr/sbin:/usr/local/sbin") else ["sshd"]
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if MISSING:
        for item in items:
            if "loopback" in item.nodeid:
                item.add_marker(pytest.mark.skip(reason=f"not on this machine: {', '.join(MISSING)}"))


@pytest.fixture
def cluster() -> Iterator[Callable[..., Cluster]]:
    made: list[Cluster] = []
    # Short, since a unix socket's path is: pytest's own folders are too deep.
    with tempfile.TemporaryDirectory(prefix="ep-", dir="/tmp") as folder:

        def make(nodes: int, slots: int = 2) -> Cluster:
            made.append(Cluster(Path(folder), nodes, slots))
            return made[-1]

        yield make
        for each in made:
            each.close()
            print(each.both())  # pytest shows it where the test failed
