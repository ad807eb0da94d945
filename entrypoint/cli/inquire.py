"""The boot that `check` and `netcheck` share: without start hooks and programs; in it, worker-0
asks all nodes."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from entrypoint.base.model import Facts, Inquiry, Outcome, Plan
from entrypoint.base.secret import scrubbed
from entrypoint.base.values import replace
from entrypoint.cli import inputs
from entrypoint.output.log import Logger, show
from entrypoint.spec import JobSpec

if TYPE_CHECKING:
    from entrypoint.cli.features import Record
    from entrypoint.system.signals import Signals

Answered = tuple[Outcome, str]  # how the command ends, and what it prints
_NO_PROGRAM = ("true",)  # stands for the job's program if none is given


def act(
    args: argparse.Namespace,
    log: Logger,
    of: Callable[[JobSpec, Facts, Plan], Inquiry | Answered],
    keeps_record: bool = False,
    **settings: Any,
) -> int:
    """Plan the job with these settings, ask all nodes what `of` returns, unless that is an answer
    already, and print the answer.

    Returns the exit status. Raises ConfigError if there is no roll call. `keeps_record`: write a
    record, as `run` does.
    """
    from entrypoint.cli.features import recorded
    from entrypoint.system.signals import Signals, StoppedBySignal

    try:
        with recorded(log, keeps_record) as record:
            signals = Signals(log)
            signals.watch()  # before anything slow
            from entrypoint.plan import located, settle

            spec, facts = _job(args, log, settings)
            spec, topology = located(spec, facts)
            spec, topology = inputs.assembled(spec, facts, topology, signals, log)
            log.about(topology)
            if keeps_record:
                record.about(topology)
            plan = settle(spec, facts, topology)
            asked = of(spec, facts, plan)
            if isinstance(asked, Inquiry):
                plan = replace(plan, inquiry=asked)
                asked = _ask(spec, facts, plan, signals, log, record)
                if keeps_record:
                    record.end(asked[0])
            outcome, answer = asked
            if answer:
                show(scrubbed(answer, facts.env))
    except StoppedBySignal as stop:
        outcome = stop.outcome
    log(f"{outcome.reason}; exit {outcome.status}" if outcome.status else f"done: {outcome.reason}")
    return outcome.status


def _job(
    args: argparse.Namespace, log: Logger, settings: Mapping[str, Any]
) -> tuple[JobSpec, Facts]:
    spec, facts = inputs.job(args)
    log.shape(spec.logs)
    once = replace(spec.restarts, most=0, leaves=0)
    return replace(spec, command=spec.command or _NO_PROGRAM, restarts=once, **settings), facts


def _ask(
    spec: JobSpec, facts: Facts, plan: Plan, signals: Signals, log: Logger, record: Record
) -> Answered:
    import asyncio

    from entrypoint.base.errors import ConfigError
    from entrypoint.cli.features import Nothing, extensions
    from entrypoint.node import AttemptInputs, boot
    from entrypoint.ranks.keeping import KeeperProcess
    from entrypoint.system import checks, process

    if plan.mode != "coordinated":
        hint = (
            "remove roll_call, and give all nodes a secret; or check each node on its own, by"
            " `entrypoint check`"
        )
        raise ConfigError("EP011 this job has no roll call", plan.no_roll_call, hint)
    process.hide_memory()
    log.name = plan.topology.this.label
    plan, unusable = checks.run_dir(spec, facts, plan)
    signals.hold()
    features = extensions(spec, record, log)
    features.observer.begin(plan)
    keeper = KeeperProcess()
    try:
        attempt = AttemptInputs(spec, facts, plan, Nothing(), keeper, unusable)
        outcome, machine, _ = asyncio.run(boot(attempt, signals, log, features))
    finally:
        keeper.close()
    return outcome, machine.state.answer if machine else ""
