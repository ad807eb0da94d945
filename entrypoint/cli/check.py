"""`entrypoint check`: what this node, or with --all every node, has of what the job needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from entrypoint.cli import inputs
from entrypoint.cli.parser import PROGRAM, command, job_arguments
from entrypoint.host.speaker import show, width
from entrypoint.secret import scrubbed

if TYPE_CHECKING:
    import argparse

    from entrypoint.cli.parser import Commands
    from entrypoint.host.signals import Signals
    from entrypoint.host.speaker import Logger
    from entrypoint.model import Facts, Outcome, Plan
    from entrypoint.spec import JobSpec

_LIMIT = 30.0  # seconds for each program that is asked: the first import of torch, and nvidia-smi of eight cards
_LOG = 140  # characters in a line of the table, where it is for no terminal
_NO_PROGRAM = ("true",)  # where none is given, there is none to look at


def arguments(commands: Commands, spec: str | None) -> None:
    """Add the command and its options to the command line."""
    text = "look at this node, or with --all at every node, and print what the job needs and what is there"
    check = command(commands, "check", PROGRAM, text)
    job_arguments(check, spec)
    check.add_argument("--all", action="store_true", help="on every node at once, as `run`: worker-0 prints one table")
    check.add_argument("--json", action="store_true", help="as JSON, with all that was seen")
    check.add_argument("--strict", action="store_true", help="a warning, too, ends it with 78")
    words = f"seconds for each program that is asked, such as nvidia-smi; {_LIMIT:g} where not given"
    check.add_argument("--limit", type=_seconds, default=_LIMIT, metavar="SECONDS", help=words)


def act(args: argparse.Namespace, log: Logger) -> int:
    """Look, and print the table. Returns 0, or 78 where the job would fail; with --all as the job's roll call ends."""
    from entrypoint.host.signals import Signals, StoppedBySignal
    from entrypoint.model import Check
    from entrypoint.plan import locate, settle
    from entrypoint.values import replace

    try:
        signals = Signals(log)
        signals.watch()
        spec, facts = inputs.job(args)
        log.shape(spec.logs.format, spec.logs.timestamps == "utc")
        spec = replace(spec, command=spec.command or _NO_PROGRAM, restarts=0)
        check = Check(args.limit, args.spec or "", args.json, args.strict, _width())
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
    """Columns of the table: a terminal's, or what fits into most logs."""
    import sys

    return max(60, width()) if sys.stdout.isatty() else _LOG


def _alone(spec: JobSpec, facts: Facts, plan: Plan) -> Outcome:
    from entrypoint.check.report import report
    from entrypoint.host import look

    assert plan.check
    me = plan.topology.me
    seen = look.node(spec, facts, plan, plan.check)
    made = report(plan.check, plan, {me: seen}, {me: plan.members.reports[me]})
    show(scrubbed(made.text, facts.env))
    return made.outcome


def _all(spec: JobSpec, facts: Facts, plan: Plan, signals: Signals, log: Logger) -> Outcome:
    """Boot as `run` does, but for the start hooks and the programs. Raises ConfigError where there is no roll call."""
    import asyncio
    import time

    from entrypoint.check.report import ONLY
    from entrypoint.errors import ConfigError
    from entrypoint.host import checks, process
    from entrypoint.job.record import TimelineRecorder
    from entrypoint.run import boot
    from entrypoint.values import replace

    if plan.mode != "coordinated":
        do = "remove roll_call, and give all nodes a secret; or check each node alone, without --all"
        raise ConfigError("EP011 the nodes hold no roll call", plan.no_roll_call, do)
    process.hide_memory()
    log.name = plan.topology.this.label
    plan, unusable = checks.run_dir(spec, facts, plan)
    # A leader that runs the job must not take a node that only looks, nor the other way round.
    plan = replace(plan, launcher=plan.launcher + ONLY)
    signals.hold()
    record = TimelineRecorder(plan.topology, (), time.monotonic())  # nobody asks where a check's time went
    return asyncio.run(boot(spec, facts, plan, unusable, 1, signals, log, record))[0]


def after_failure(outcome: Outcome, plan: Plan, log: Logger) -> None:
    """Say what this node lacks, where a boot failed and that may be why: what costs no program and no network."""
    import contextlib

    from entrypoint.check.node import cheap
    from entrypoint.errors import CLASSES
    from entrypoint.host import look

    if outcome.program or outcome.status not in CLASSES:
        return
    with contextlib.suppress(Exception):  # the job's outcome is known, and nothing here may change it
        for each in cheap(look.cheap(plan), plan, plan.topology.me):
            needed = f", needed: {each.needed}" if each.needed else ""
            log(f"seen here: {each.what} | {each.seen}{needed} | {each.fix}")
