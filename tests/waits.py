"""Waiting for what a test has begun. No deadline here measures how fast something is: a busy machine
may take ten times as long."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

PATIENCE = 300.0  # seconds after which what is awaited hangs


def until(condition: Callable[[], Any], what: str, seconds: float = PATIENCE) -> Any:
    """Return what the condition gives, once that is something; fail with `what` if it hangs."""
    deadline = time.monotonic() + seconds
    while True:
        begun = time.monotonic()
        if value := condition():
            return value
        assert time.monotonic() < deadline, f"{what}: not within {seconds:g}s"
        # A look that costs much, such as eight of the engine's commands, would slow what it waits
        # for.
        time.sleep(max(0.01, 2 * (time.monotonic() - begun)))
