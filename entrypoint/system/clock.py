"""Waiting for time to pass, in the event loop."""

from __future__ import annotations

import asyncio


async def rest(seconds: float) -> None:
    """Let time pass before a state is checked again that no event announces."""
    await asyncio.wait({asyncio.get_running_loop().create_future()}, timeout=seconds)
