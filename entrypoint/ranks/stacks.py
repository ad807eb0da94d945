"""Logs the stack of every Python process of the programs, read by py-spy if the image has it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from entrypoint.system import proc
from entrypoint.system.process import which
from entrypoint.text import Log

_MOST = 16  # processes of one program that are shown


async def show(programs: Mapping[str, int], path: str, limit: float, log: Log) -> None:
    """Log the stacks of each program (name -> pid of its supervisor), within `limit` seconds."""
    spy = which("py-spy", f"{path}:{os.path.dirname(sys.executable)}")
    below = [
        (name, pid)
        for name, supervisor in programs.items()
        for pid in proc.descendants(supervisor)[:_MOST]
    ]
    stacks = await asyncio.gather(*(_read_stack(pid, spy, limit) for _, pid in below))
    for (name, _), (title, lines) in zip(below, stacks, strict=True):
        log(f"{name}, {title}")
        for line in lines:
            log(f"  | {line}")
    if below and not spy:
        log(
            "EP617 Python stacks are not shown, since there is no py-spy on PATH | pip install"
            " py-spy in the image"
        )


async def _read_stack(pid: int, spy: str | None, limit: float) -> tuple[str, list[str]]:
    folder = Path(f"/proc/{pid}")
    command = ""
    state = "?"
    kernel = ""
    with contextlib.suppress(OSError):
        command = (
            (folder / "cmdline")
            .read_bytes()
            .replace(b"\0", b" ")
            .decode(errors="replace")
            .strip()[:80]
        )
        state = proc.stat(pid)[1][0]
        kernel = (folder / "wchan").read_text().strip("0")
    title = f"pid {pid}, {command}: state {state}{f', in {kernel}' if kernel else ''}"
    if spy is None or "python" not in command.split(" ")[0]:
        return title, []
    # The kernel must allow it (ptrace of a process of the same user); the program need not.
    dump = await asyncio.create_subprocess_exec(
        spy,
        "dump",
        "--pid",
        str(pid),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        text, _ = await asyncio.wait_for(dump.communicate(), limit)
    except asyncio.TimeoutError:
        dump.kill()
        return title, [f"py-spy did not answer within {limit:g}s"]
    return title, [line for line in text.decode(errors="replace").splitlines() if line.strip()]
