"""Run directories that a test holds, or is refused."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from entrypoint.base.errors import ConfigError
from entrypoint.system.files import RunDir


@contextlib.contextmanager
def held(path: Path) -> Iterator[RunDir]:
    run_dir = RunDir(str(path))
    try:
        yield run_dir
    finally:
        run_dir.close()


def refusal(path: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        RunDir(str(path))
    assert caught.value.status == 78
    return str(caught.value)
