"""Asks NCCL what it knows of a job that hangs: the port of its RAS, where one answers.

Since version 2.24, each process that uses NCCL listens there, and answers for the whole job:
https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting/ras.html
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping

from entrypoint.text import one_line

_DEFAULT = "localhost:28028"
_MOST = 1 << 18  # bytes of an answer
_LINES = 12  # of an answer that are shown
_SECTIONS = ("Errors", "Warnings")
_OFF = ("0", "false", "no")


def address(env: Mapping[str, str], uses_nccl: bool) -> tuple[str, int] | None:
    """Return where NCCL's RAS listens in ranks of this environment; None if it does not."""
    value = env.get("NCCL_RAS_ADDR", "")
    if env.get("NCCL_RAS_ENABLE", "1").lower() in _OFF or not (value or uses_nccl):
        return None
    host, _, port = (value or _DEFAULT).rpartition(":")
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and 0 < int(port) < 65536):
        return None
    return host.strip("[]") or "localhost", int(port)


def relevant(text: str) -> tuple[str, ...]:
    """Return the errors and warnings of an answer, in so many lines."""
    lines = text.splitlines()
    found: list[str] = []
    section = ""
    for line, below in zip(lines, (*lines[1:], ""), strict=False):
        title = line.strip()
        if below.startswith("===") and title:
            section = title.partition("...")[0]
        elif section in _SECTIONS and title.strip("="):
            found.append(one_line(f"NCCL RAS: {title}", 200))
    if len(found) > _LINES:
        found[_LINES - 1 :] = [f"NCCL RAS: {len(found) - _LINES + 1} more lines"]
    return tuple(found)


async def ask(place: tuple[str, int], limit: float) -> tuple[str, ...]:
    """Return what NCCL says is wrong, within `limit` seconds; nothing if it does not answer."""
    try:
        reader, writer = await asyncio.wait_for(asyncio.open_connection(*place), limit / 2)
    except (OSError, asyncio.TimeoutError):
        return ()
    data = b""
    try:
        writer.write(b"verbose status\n")
        with contextlib.suppress(OSError, asyncio.TimeoutError):
            data = await asyncio.wait_for(_answer(reader), limit / 2)
    finally:
        writer.close()
    return relevant(data.decode("utf-8", "replace"))


async def _answer(reader: asyncio.StreamReader) -> bytes:
    data = b""
    while len(data) < _MOST and (piece := await reader.read(65536)):
        data += piece
    return data
