"""Start hooks: what an image or a mount wants done on this node before its part of the job starts."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from entrypoint.model import Outcome
from entrypoint.run import process
from entrypoint.run.progress import Say

FOLDER = Path("/etc/entrypoint/start.d")


def run(env: Mapping[str, str], cwd: str, say: Say, folder: Path = FOLDER) -> Outcome | None:
    """Run the folder's executables by name, each to its end; the outcome of the first that fails, or None.

    What they print goes to stderr, since stdout is the job's. Names that begin with a dot are not looked at: Kubernetes
    keeps its own in a mounted folder.
    """
    try:
        entries = sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))
    except FileNotFoundError:
        return None
    except OSError as error:
        return Outcome(126, f"cannot read the start hooks | {folder}: {error.strerror} | let this user read it")
    for hook in entries:
        if not (hook.is_file() and os.access(hook, os.X_OK)):
            do = "chmod +x it, or give its volume defaultMode: 0555" if hook.is_file() else "put files there alone"
            say(f"start hook {hook.name} is skipped | not an executable file: {hook} | {do}")
            continue
        say(f"start hook {hook.name}")
        argv = [str(hook)]
        try:
            done = subprocess.run(
                process.mortal(argv), env=env, cwd=cwd, stdin=subprocess.DEVNULL, stdout=2, check=False
            )
        except OSError as error:
            return process.cannot_start(argv, error)
        status = process.exit_status(done.returncode)
        if status != 0:
            return Outcome(status, process.ended(f"start hook {hook.name}", status))
    return None
