"""What every tier needs."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.containers import Compose, ModelArts, docker


def pytest_configure() -> None:
    """A shell has what it starts in its background ignore Ctrl-C, nohup SIGHUP, and what a test starts would, too."""
    for signum in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        default = signal.default_int_handler if signum == signal.SIGINT else signal.SIG_DFL
        if signal.getsignal(signum) is signal.SIG_IGN:
            signal.signal(signum, default)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that every user of a container can read."""
    with tempfile.TemporaryDirectory(prefix="entrypoint-") as name:
        path = Path(name)
        path.chmod(0o755)
        yield path


@pytest.fixture
def compose(folder: Path) -> Iterator[Compose]:
    project = Compose(folder, f"ep{os.getpid()}")
    yield project
    project.down()


@pytest.fixture
def network() -> Iterator[str]:
    name = f"ep{os.getpid()}"
    docker("network", "create", name)
    yield name
    docker("network", "rm", name)


@pytest.fixture
def modelarts(network: str) -> Iterator[ModelArts]:
    job = ModelArts(network)
    yield job
    job.remove()
