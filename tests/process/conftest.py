"""Fixtures of the tests of this folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.process.keeps import Keeper


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where a run directory can be; its name needs quotes in a shell."""
    return tmp_path / "a run directory"


@pytest.fixture
def keeper(tmp_path: Path) -> Iterator[Callable[..., Keeper]]:
    """Makes keepers of programs and ranks, as `Keeper` without its folder."""
    made: list[Keeper] = []

    def make(**how: Any) -> Keeper:
        made.append(Keeper(tmp_path, **how))
        return made[-1]

    yield make
    for each in made:
        each.close()
