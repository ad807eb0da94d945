"""Fixtures of the tests of this folder."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where a run directory can be; its name needs quotes in a shell."""
    return tmp_path / "a run directory"
