"""The request and the hooks at the end of the job. Nothing here changes how it ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from entrypoint.base.model import Facts, Outcome, Plan
from entrypoint.base.text import Log, duration
from entrypoint.plan import environment
from entrypoint.system import proc, process
from entrypoint.system.facts import END_HOOKS
from entrypoint.system.signals import Signals

Run: TypeAlias = Callable[..., Iterable[Outcome]]
_POST = Path(__file__).with_name("post.py")
_POST_LIMIT = 5.0  # seconds in all, for the name, the connection and the answer
# Seconds that the hooks have if a stop has used up its grace. With those of the post and of killed
# processes it is less than the ten that platforms add to the grace.
_LEAST = 2.0
_TIDY = 0.5  # seconds between a hook's SIGTERM and SIGKILL


def run_hooks(
    run: Run,
    facts: Facts,
    plan: Plan,
    grace: float,
    earlier: Signals,
    result: Mapping[str, Any],
    log: Log,
) -> None:
    """Run the end hooks, by `hooks.run`, within the grace; after a stop, within what is left of
    it."""
    now = time.monotonic()
    limit = max(min(earlier.over_at, now) + grace - now, _LEAST)
    signals = Signals(log)  # which knows of no earlier stop
    signals.deadline = now + limit
    signals.watch()
    signals.hold()
    process.adopt_orphans()
    env = {
        **environment(facts.env, plan.env),
        "JOB_STATUS": str(result["status"]),
        "JOB_CLASS": result["class"],
    }
    for failed in run(Path(END_HOOKS), env, plan.workdir, _TIDY, signals, log):
        log(f"warning: {failed.reason}")
    if signals.is_over:
        why = "by a signal" if signals.stopped else f"{duration(limit)} were over"
        hint = "make them faster, or raise timeouts.grace"
        log(f"warning: EP441 the end hooks were stopped | {why} | {hint}")
    proc.sweep()  # what hooks have left running


def post(url: str, result: Mapping[str, Any], log: Log) -> None:
    """Post the result."""
    if why := deliver(url=url, body=result):
        hint = "check the server and notify.url"
        log(f"warning: EP417 the result was not delivered | {host_of(url)}: {why} | {hint}")


def host_of(url: str) -> str | None:
    """Return what may be shown of a URL."""
    try:
        return urlsplit(url).hostname
    except ValueError:
        return "a wrong URL"


def deliver(**request: Any) -> str:
    """Have `post.post` called in a process of its own, and return why it failed; "" if it did
    not."""
    env = {name: os.environ[name] for name in os.environ if not name.startswith("ENTRYPOINT_")}
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", str(_POST)],
            input=json.dumps(request),
            capture_output=True,
            text=True,
            errors="replace",
            env=env,
            timeout=_POST_LIMIT,
            start_new_session=True,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {_POST_LIMIT:g}s"
    except OSError as error:
        return error.strerror or str(error)
    failed = f"exited with {done.returncode}" if done.returncode else ""
    return done.stdout.strip()[:200] or failed
