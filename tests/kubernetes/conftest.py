"""Fixtures of the tests on a real Kubernetes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.kubernetes.realcluster import Namespace


@pytest.fixture
def kit(pytestconfig: pytest.Config) -> Path:
    """The folder that scripts/dev/setup-kubernetes prints."""
    given = dict(word.partition("=")[::2] for word in pytestconfig.getoption("--with"))
    if not given.get("kubernetes"):
        pytest.skip("no Kubernetes here: scripts/dev/setup-kubernetes says what it needs")
    return Path(given["kubernetes"])


@pytest.fixture
def namespaces(kit: Path, tmp_path: Path) -> Iterator[Callable[..., Namespace]]:
    """Namespaces of a Pod Security level, which end with the test."""
    made: list[Namespace] = []

    def make(level: str = "restricted") -> Namespace:
        made.append(Namespace(kit, tmp_path, level))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def namespace(namespaces: Callable[..., Namespace]) -> Namespace:
    """A namespace that enforces the restricted Pod Security Standard."""
    return namespaces()
