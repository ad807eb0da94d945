"""A signal to a container whose program handles none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.containers import IMAGE, container, docker, exit_code, remove, wait


@pytest.mark.parametrize("stop", ["TERM", "INT"])
def test_a_program_that_handles_no_signal_is_stopped(folder: Path, stop: str) -> None:
    """It would be process 1, and the kernel would keep the signal from it."""
    words: Any = ["-d", "--entrypoint", "entrypoint", IMAGE, "run", "--", "sleep", "600"]
    box = docker("run", *words).strip()
    try:
        docker("exec", box, "sh", "-c", "until pidof sleep; do sleep .1; done")
        container(box).kill(stop)
        wait(box)
        assert exit_code(box) == {"TERM": 143, "INT": 130}[stop]
    finally:
        remove(box)
