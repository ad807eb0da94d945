"""Waiting for time to pass, in the event loop."""

from __future__ import annotations

import asyncio


async def rest(seconds: float) -> None:
    """Let time pass, where no event tells that it is worth looking again."""
    await asyncio.wait({asyncio.get_running_loop().create_future()}, timeout=seconds)
