"""Start hooks: what an image, a mount or a platform's user wants done on this node before its part of the job starts.

They run once, whatever `restarts` says.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from entrypoint.job.failure import ended
from entrypoint.model import Facts, Outcome, Plan
from entrypoint.plan import environment, settle
from entrypoint.ranks.below import terminate_tree
from entrypoint.spec import JobSpec
from entrypoint.system import children, network, process
from entrypoint.system.signals import Signals
from entrypoint.text import Log
from entrypoint.values import replace

FOLDER = Path("/etc/entrypoint/start.d")
# Runs the script $0 in this bash, as what it exports is wanted. File {0} gets all variables before it, an empty entry,
# and all variables after it; `exit` in the script ends this shell.
_SOURCE = """command -p env -0 >&{0}; printf '\\0' >&{0}
trap 'status=$?; command -p env -0 >&{0}; exit $status' EXIT
. "$0"
"""
_OF_SHELLS = {b"_", b"PWD", b"OLDPWD", b"SHLVL"}  # what every shell changes


def run_all(spec: JobSpec, facts: Facts, draft: Plan, signals: Signals, log: Log) -> tuple[Outcome | None, Facts, Plan]:
    """The outcome of the first start hook that fails; facts and plan, with what the hooks have changed."""
    env, grace, script = environment(facts.env, draft.env), spec.timeouts.grace, draft.topology.pre_start
    changed: dict[str, str | None] = {}
    with signals.held():
        failed = run(env, draft.workdir, grace, signals, log)
        if script and not (failed or signals.stopped):
            failed, changed = source(script, env, grace, signals, log)
    own = {name: value for name, value in {**facts.env, **changed}.items() if value is not None}
    now = replace(facts, env=own, interfaces=network.interfaces())  # a hook may have brought one up
    if failed or now == facts:
        return failed, facts, draft
    return None, now, settle(spec, now, draft.topology)


def run(env: Mapping[str, str], cwd: str, grace: float, signals: Signals, log: Log) -> Outcome | None:
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
        return Outcome(126, f"EP442 cannot read the start hooks | {FOLDER}: {error.strerror} | let this user read it")
    return asyncio.run(_run(entries, env, cwd, grace, signals, log)) if entries else None


def source(
    script: str, env: Mapping[str, str], grace: float, signals: Signals, log: Log
) -> tuple[Outcome | None, dict[str, str | None]]:
    """Run a platform's shell script in the folder above its own, as `run` runs a hook.

    Returns the outcome where it fails, and each variable that it has exported or changed; None for one that it has
    unset.
    """
    name = os.path.basename(script)
    log(f"start hook {name}")
    with open(os.memfd_create("environment"), "rb") as file:
        argv = ["bash", "-c", _SOURCE.format(file.fileno()), script]
        cwd = os.path.dirname(os.path.dirname(script))
        failed = asyncio.run(_alone(name, argv, env, cwd, grace, signals, pass_fds=(file.fileno(),)))
        file.seek(0)
        changed = _changed(file.read())
    if changed and not failed:
        log(f"start hook {name} has changed {', '.join(changed)}")
    return failed, changed


def _changed(written: bytes) -> dict[str, str | None]:
    """What differs between two environments, which an empty entry parts; nothing where the second is missing."""
    before, _, after = written.partition(b"\0\0")
    old, new = (dict(entry.split(b"=", 1) for entry in part.split(b"\0") if entry) for part in (before, after))
    names = sorted({*old, *new} - _OF_SHELLS) if new else []
    changed = [name for name in names if old.get(name) != new.get(name)]
    return {os.fsdecode(name): os.fsdecode(new[name]) if name in new else None for name in changed}


async def _run(
    entries: list[Path], env: Mapping[str, str], cwd: str, grace: float, signals: Signals, log: Log
) -> Outcome | None:
    for hook in entries:
        if signals.stopped:
            break
        if not (hook.is_file() and os.access(hook, os.X_OK)):
            do = "chmod +x it, or give its volume defaultMode: 0555" if hook.is_file() else "put files there alone"
            log(f"EP443 start hook {hook.name} is skipped | not an executable file: {hook} | {do}")
            continue
        log(f"start hook {hook.name}")
        if failed := await _alone(hook.name, [str(hook)], env, cwd, grace, signals):
            return failed
    return None


async def _alone(
    name: str, argv: Sequence[str], env: Mapping[str, str], cwd: str, grace: float, signals: Signals, **more: Any
) -> Outcome | None:
    """One hook, from its start to its end; its outcome where it fails by itself."""
    stop, hurry = asyncio.Event(), asyncio.Event()
    signals.take(lambda _, again: (hurry if again else stop).set())
    try:
        started = await children.start(argv, env, cwd, stdin=asyncio.subprocess.DEVNULL, stdout=2, **more)
    except OSError as error:
        return process.cannot_start(argv, error)
    status = process.exit_status(await _ended(started, stop, hurry, grace))
    if status != 0 and not signals.stopped:
        return Outcome(status, f"EP441 {ended(f'start hook {name}', status)}", program=True)
    return None


async def _ended(hook: asyncio.subprocess.Process, stop: asyncio.Event, hurry: asyncio.Event, grace: float) -> int:
    """Its exit status: it ended by itself, or was stopped. Then all that it has started has the grace, too."""
    ended, told, hurried = (asyncio.create_task(each) for each in (hook.wait(), stop.wait(), hurry.wait()))
    await asyncio.wait({ended, told}, return_when=asyncio.FIRST_COMPLETED)
    if not ended.done():
        all_ended = asyncio.create_task(children.gone({hook.pid, *terminate_tree(hook.pid)}))
        await asyncio.wait({all_ended, hurried}, timeout=grace, return_when=asyncio.FIRST_COMPLETED)
        process.sweep()
        all_ended.cancel()
    told.cancel()
    hurried.cancel()
    return await ended
