"""What `check` and `netcheck` share: a boot without start hooks and programs, in which worker-0 asks all nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from entrypoint.cli import inputs
from entrypoint.values import dataclass, replace

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from entrypoint.model import Facts, Inquiry, Outcome, Plan
    from entrypoint.output.log import Logger
    from entrypoint.spec import JobSpec
    from entrypoint.system.signals import Signals

_NO_PROGRAM = ("true",)  # stands for the job's program if none is given


@dataclass(frozen=True)
class Inputs:
    """What such a command starts from."""

    spec: JobSpec
    facts: Facts
    plan: Plan
    signals: Signals
    log: Logger


def act(args: argparse.Namespace, log: Logger, run: Callable[[Inputs], Outcome], **settings: Any) -> int:
    """Plan the job as these settings of the spec change it, then `run` the command. Returns the exit status."""
    from entrypoint.plan import locate, settle
    from entrypoint.system.signals import Signals, StoppedBySignal

    try:
        signals = Signals(log)
        signals.watch()
        spec, facts = inputs.job(args)
        log.shape(spec.logs.format, spec.logs.timestamps == "utc")
        spec = replace(spec, **{"command": spec.command or _NO_PROGRAM, "restarts": 0, **settings})
        topology = locate(spec, facts)
        log.node = topology.this.label
        outcome = run(Inputs(spec, facts, settle(spec, facts, topology), signals, log))
    except StoppedBySignal as stop:
        outcome = stop.outcome
    log(f"{outcome.reason}; exit {outcome.status}" if outcome.status else f"done: {outcome.reason}")
    return outcome.status


def ask_all(given: Inputs, inquiry: Inquiry, hint: str) -> Outcome:
    """Boot this node's part of the inquiry. Raises ConfigError with this hint if there is no roll call."""
    import asyncio
    import time

    from entrypoint.errors import ConfigError
    from entrypoint.node import Attempt, boot
    from entrypoint.record.file import RecordFile
    from entrypoint.record.recorder import TimelineRecorder
    from entrypoint.system import checks, process

    spec, facts, log = given.spec, given.facts, given.log
    if given.plan.mode != "coordinated":
        raise ConfigError("EP011 the nodes hold no roll call", given.plan.no_roll_call, hint)
    process.hide_memory()
    log.name = given.plan.topology.this.label
    plan, unusable = checks.run_dir(spec, facts, replace(given.plan, inquiry=inquiry))
    given.signals.hold()
    # Nothing of an inquiry is kept.
    recorder = TimelineRecorder(plan.topology, (), time.monotonic())
    attempt = Attempt(spec, facts, plan, unusable)
    return asyncio.run(boot(attempt, given.signals, log, recorder, RecordFile(log)))[0]
