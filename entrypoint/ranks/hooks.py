"""Hooks: programs of the image, a mount or the platform that run on this node before its part of
the job, or after it.

They run once, whatever the value of `restarts` is.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from entrypoint.base.model import Facts, Outcome, Plan
from entrypoint.base.text import Log
from entrypoint.base.values import replace
from entrypoint.job.failure import ended
from entrypoint.plan import environment, settle
from entrypoint.ranks.below import terminate_tree
from entrypoint.spec import JobSpec
from entrypoint.system import children, network, proc, process
from entrypoint.system.files import trusted_entries, untrusted
from entrypoint.system.signals import Signals

FOLDER = Path("/etc/entrypoint/start.d")
# Runs the script $0 in this bash, since its exports are needed. File {0} gets all variables before
# it, an empty entry, and all variables after it; `exit` in the script ends this shell.
_SOURCE = """command -p env -0 >&{0}; printf '\\0' >&{0}
trap 'status=$?; command -p env -0 >&{0}; exit $status' EXIT
. "$0"
"""
_OF_SHELLS = {b"_", b"PWD", b"OLDPWD", b"SHLVL"}  # changed by every shell


def run_all(
    spec: JobSpec, facts: Facts, draft: Plan, signals: Signals, log: Log
) -> tuple[Outcome | None, Facts, Plan]:
    """Run the start hooks. Return the outcome of the first that fails, and facts and plan as the
    hooks changed them."""
    env = environment(facts.env, draft.env)
    grace = spec.timeouts.grace
    script = draft.topology.pre_start
    changed: dict[str, str | None] = {}
    with signals.held():
        failed = next(run(FOLDER, env, draft.workdir, grace, signals, log), None)
        if script and not (failed or signals.is_over):
            failed, changed = source(script, env, grace, signals, log)
    variables = {
        name: value for name, value in {**facts.env, **changed}.items() if value is not None
    }
    # a hook may have brought one up
    new_facts = replace(facts, env=variables, interfaces=network.interfaces())
    if failed or new_facts == facts:
        return failed, facts, draft
    return None, new_facts, settle(spec, new_facts, draft.topology)


def run(
    folder: Path, env: Mapping[str, str], cwd: str, grace: float, signals: Signals, log: Log
) -> Iterator[Outcome]:
    """Run the folder's executables one after another, by name. Yield the outcome of each that
    fails. A folder or a file that somebody else may have written is refused.

    A signal that stops this node, or the deadline, stops the hook, which gets the grace (seconds),
    and no other hook is run. Their output goes to stderr, since stdout is the job's. Names that
    begin with a dot are ignored: Kubernetes creates such files in mounted folders.
    """
    kind = f"{folder.stem} hook"
    try:
        entries = trusted_entries(folder)
        for entry in entries:
            if refused := untrusted(entry):
                raise OSError(0, refused, entry)
    except OSError as error:
        if isinstance(error, FileNotFoundError) and not os.path.lexists(folder):
            return
        hint = "let this user read it, and let only root or this user change it"
        detail = f"{error.filename or folder}: {error.strerror} | {hint}"
        yield Outcome(126, f"EP442 cannot use the {kind}s | {detail}")
        return
    for hook in entries:
        if signals.is_over:
            break
        if not (hook.is_file() and os.access(hook, os.X_OK)):
            hint = (
                "chmod +x it, or give its volume defaultMode: 0555"
                if hook.is_file()
                else "put files there alone"
            )
            log(f"EP442 {kind} {hook.name} is skipped | not an executable file: {hook} | {hint}")
            continue
        name = f"{kind} {hook.name}"
        log(name)
        if failed := asyncio.run(_run_one(name, [str(hook)], env, cwd, grace, signals)):
            yield failed


def source(
    script: str, env: Mapping[str, str], grace: float, signals: Signals, log: Log
) -> tuple[Outcome | None, dict[str, str | None]]:
    """Run a platform's shell script in the parent of its folder, as `run` runs a hook.

    Returns the outcome if it fails, and each variable that it has exported or changed; None for one
    that it has unset.
    """
    name = f"start hook {os.path.basename(script)}"
    log(name)
    with open(os.memfd_create("environment"), "rb") as file:
        argv = ["bash", "-c", _SOURCE.format(file.fileno()), script]
        cwd = os.path.dirname(os.path.dirname(script))
        failed = asyncio.run(
            _run_one(name, argv, env, cwd, grace, signals, pass_fds=(file.fileno(),))
        )
        file.seek(0)
        changed = _changed(file.read())
    if changed and not failed:
        log(f"{name} has changed {', '.join(changed)}")
    return failed, changed


def _changed(written: bytes) -> dict[str, str | None]:
    """Return the differences between two environments, separated by an empty entry; none if the
    second is missing."""
    before, _, after = written.partition(b"\0\0")
    old, new = (
        dict(entry.split(b"=", 1) for entry in part.split(b"\0") if entry)
        for part in (before, after)
    )
    names = sorted({*old, *new} - _OF_SHELLS) if new else []
    changed = [name for name in names if old.get(name) != new.get(name)]
    return {os.fsdecode(name): os.fsdecode(new[name]) if name in new else None for name in changed}


async def _run_one(
    name: str,
    argv: Sequence[str],
    env: Mapping[str, str],
    cwd: str,
    grace: float,
    signals: Signals,
    **more: Any,
) -> Outcome | None:
    """Run one hook to its end. Return its outcome if it fails, and was not stopped."""
    stop = asyncio.Event()
    force = asyncio.Event()
    signals.take(lambda _, again: (force if again else stop).set())
    try:
        hook = await children.start(
            argv, env, cwd, stdin=asyncio.subprocess.DEVNULL, stdout=2, **more
        )
    except OSError as error:
        return process.cannot_start(argv, error)
    end, stopped, forced = map(asyncio.create_task, (hook.wait(), stop.wait(), force.wait()))
    await asyncio.wait({end, stopped}, timeout=signals.left, return_when=asyncio.FIRST_COMPLETED)
    if not end.done():  # all processes that it has started get the grace, too
        all_ended = asyncio.create_task(children.gone({hook.pid, *terminate_tree(hook.pid)}))
        await asyncio.wait({all_ended, forced}, timeout=grace, return_when=asyncio.FIRST_COMPLETED)
        proc.sweep()
        all_ended.cancel()
    stopped.cancel()
    forced.cancel()
    status = process.exit_status(await end)
    if status != 0 and not signals.is_over:
        return Outcome(status, f"EP441 {ended(name, status)}", program=True)
    return None
