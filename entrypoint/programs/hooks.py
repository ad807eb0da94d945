"""Start hooks: what an image or a mount wants done on this node before its part of the job starts."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping
from pathlib import Path

from entrypoint.host import children, process
from entrypoint.host.signals import Signals
from entrypoint.host.speaker import Say
from entrypoint.job.analysis import ended
from entrypoint.model import Outcome

FOLDER = Path("/etc/entrypoint/start.d")


def run(env: Mapping[str, str], cwd: str, grace: float, signals: Signals, say: Say) -> Outcome | None:
    """Run the folder's executables by name, each to its end; the outcome of the first that fails, or None.

    A signal that stops us stops the hook, which has the grace (seconds), and no other is run. What they print goes to
    stderr, since stdout is the job's. Names that begin with a dot are ignored: Kubernetes puts its own into
    mounted folders.
    """
    try:
        entries = sorted(entry for entry in FOLDER.iterdir() if not entry.name.startswith("."))
    except FileNotFoundError:
        return None
    except OSError as error:
        return Outcome(126, f"cannot read the start hooks | {FOLDER}: {error.strerror} | let this user read it")
    return asyncio.run(_run(entries, env, cwd, grace, signals, say)) if entries else None


async def _run(
    entries: list[Path], env: Mapping[str, str], cwd: str, grace: float, signals: Signals, say: Say
) -> Outcome | None:
    stop, hurry = asyncio.Event(), asyncio.Event()
    signals.take(lambda _, again: (hurry if again else stop).set())
    for hook in entries:
        if signals.stopped:
            break
        if not (hook.is_file() and os.access(hook, os.X_OK)):
            do = "chmod +x it, or give its volume defaultMode: 0555" if hook.is_file() else "put files there alone"
            say(f"start hook {hook.name} is skipped | not an executable file: {hook} | {do}")
            continue
        say(f"start hook {hook.name}")
        argv = [str(hook)]
        try:
            started = await children.start(argv, env, cwd, stdin=asyncio.subprocess.DEVNULL, stdout=2)
        except OSError as error:
            return process.cannot_start(argv, error)
        status = process.exit_status(await _ended(started, stop, hurry, grace))
        if status != 0 and not signals.stopped:
            return Outcome(status, ended(f"start hook {hook.name}", status), program=True)
    return None


async def _ended(hook: asyncio.subprocess.Process, stop: asyncio.Event, hurry: asyncio.Event, grace: float) -> int:
    """Its exit status: it ended by itself, or within the grace after a stop, or was killed."""
    ended, told, hurried = (asyncio.create_task(each) for each in (hook.wait(), stop.wait(), hurry.wait()))
    await asyncio.wait({ended, told}, return_when=asyncio.FIRST_COMPLETED)
    if not ended.done():
        process.kill_group(hook.pid, signal.SIGTERM)
        await asyncio.wait({ended, hurried}, timeout=grace, return_when=asyncio.FIRST_COMPLETED)
        process.sweep()
    told.cancel()
    hurried.cancel()
    return await ended
