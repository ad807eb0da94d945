"""`entrypoint check`: compare this node, or with --all every node, with what the job needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from entrypoint.cli import inputs
from entrypoint.cli.parser import PROGRAM, command, job_arguments
from entrypoint.output.log import show, width
from entrypoint.secret import scrubbed

if TYPE_CHECKING:
    import argparse

    from entrypoint.cli.parser import Commands
    from entrypoint.model import Facts, Outcome, Plan
    from entrypoint.output.log import Logger
    from entrypoint.spec import JobSpec
    from entrypoint.system.signals import Signals

_LIMIT = 30.0  # seconds for each program that is run: the first import of torch, or nvidia-smi with eight cards
_LOG = 140  # columns of the table if stdout is not a terminal
_NO_PROGRAM = ("true",)  # stands for the job's program if none is given


def arguments(commands: Commands, spec: str | None) -> None:
    """Add the command and its options to the command line."""
    text = "check this node, or with --all every node, and compare it with what the job needs"
    check = command(commands, "check", PROGRAM, text)
    job_arguments(check, spec)
    text = "check all nodes together: run it on every node; worker-0 prints one table"
    check.add_argument("--all", action="store_true", help=text)
    check.add_argument("--json", action="store_true", help="print JSON, with all probe results")
    check.add_argument("--strict", action="store_true", help="exit with 78 for a warning, too")
    text = f"seconds for each program that a probe runs, such as nvidia-smi; {_LIMIT:g} if not given"
    check.add_argument("--limit", type=_seconds, default=_LIMIT, metavar="SECONDS", help=text)


def act(args: argparse.Namespace, log: Logger) -> int:
    """Run the probes and print the table. Returns 0, or 78 if the job would fail; with --all the roll call's status."""
    from entrypoint.check.report import question
    from entrypoint.plan import locate, settle
    from entrypoint.system.signals import Signals, StoppedBySignal
    from entrypoint.values import replace

    try:
        signals = Signals(log)
        signals.watch()
        spec, facts = inputs.job(args)
        log.shape(spec.logs.format, spec.logs.timestamps == "utc")
        spec = replace(spec, command=spec.command or _NO_PROGRAM, restarts=0)
        check = question(args.limit, spec_file=args.spec or "", json=args.json, strict=args.strict, width=_width())
        topology = locate(spec, facts)
        log.node = topology.this.label
        plan = replace(settle(spec, facts, topology), check=check)
        if args.all and len(plan.topology.nodes) > 1:
            outcome = _all(spec, facts, plan, signals, log)
        else:
            outcome = _alone(spec, facts, plan)
    except StoppedBySignal as stop:
        outcome = stop.outcome
    log(f"{outcome.reason}; exit {outcome.status}" if outcome.status else f"done: {outcome.reason}")
    return outcome.status


def _seconds(text: str) -> float:
    number = float(text)
    if not 0 < number <= 3600:
        raise ValueError
    return number


def _width() -> int:
    """Return the columns of the table: a terminal's, or a width that fits into most logs."""
    import sys

    return max(60, width()) if sys.stdout.isatty() else _LOG


def _alone(spec: JobSpec, facts: Facts, plan: Plan) -> Outcome:
    from entrypoint.check import probe
    from entrypoint.check.report import report

    assert plan.check
    me = plan.topology.me
    result = probe.node(spec, facts, plan, plan.check)
    answer = report(plan.check, plan, {me: result}, {me: plan.members.reports[me]})
    show(scrubbed(answer.text, facts.env))
    return answer.outcome


def _all(spec: JobSpec, facts: Facts, plan: Plan, signals: Signals, log: Logger) -> Outcome:
    """Boot as `run` does, without start hooks and programs. Raises ConfigError if there is no roll call."""
    import asyncio
    import time

    from entrypoint.check.report import ONLY
    from entrypoint.errors import ConfigError
    from entrypoint.node import Attempt, boot
    from entrypoint.record.file import RecordFile
    from entrypoint.record.recorder import TimelineRecorder
    from entrypoint.system import checks, process
    from entrypoint.values import replace

    if plan.mode != "coordinated":
        hint = "remove roll_call, and give all nodes a secret; or check each node on its own, without --all"
        raise ConfigError("EP011 the nodes hold no roll call", plan.no_roll_call, hint)
    process.hide_memory()
    log.name = plan.topology.this.label
    plan, unusable = checks.run_dir(spec, facts, plan)
    # A leader that runs the job must reject a node that only checks, and vice versa.
    plan = replace(plan, launcher=plan.launcher + ONLY)
    signals.hold()
    # Nothing of a check is kept.
    recorder = TimelineRecorder(plan.topology, (), time.monotonic())
    attempt = Attempt(spec, facts, plan, unusable)
    return asyncio.run(boot(attempt, signals, log, recorder, RecordFile(log)))[0]


def after_failure(outcome: Outcome, plan: Plan, log: Logger) -> None:
    """Log what this node lacks after a failed boot, as far as probes without programs and network can tell."""
    import contextlib

    from entrypoint.check import probe
    from entrypoint.check.node import cheap
    from entrypoint.errors import CLASSES

    if outcome.program or outcome.status not in CLASSES:
        return
    with contextlib.suppress(Exception):  # the job's outcome is known, and nothing here may change it
        for finding in cheap(probe.cheap(plan), plan, plan.topology.me):
            log(f"seen here: {finding.what} | {finding.detail} | {finding.fix}")
