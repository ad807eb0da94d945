from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.containers import IMAGE, Compose, missing


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    reason = missing()
    for item in items:
        if "tests/compose" in item.nodeid:
            item.add_marker(pytest.mark.containers)
            if reason:
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that containers' ma-user can read."""
    path = Path(tempfile.mkdtemp(prefix="entrypoint-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def compose(folder: Path) -> Iterator[Compose]:
    project = Compose(folder, f"ep{os.getpid()}")
    yield project
    project.down()


@pytest.fixture
def network() -> Iterator[str]:
    name = f"ep{os.getpid()}"
    subprocess.run(["docker", "network", "create", name], check=True, capture_output=True)
    yield name
    subprocess.run(["docker", "network", "rm", name], check=True, capture_output=True)


assert IMAGE
