"""`entrypoint check`: compare this node, or with --all every node, with what the job needs."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from entrypoint.base.model import Facts, Inquiry, Plan
from entrypoint.cli import inquire
from entrypoint.cli.parser import PROGRAM, Command
from entrypoint.output.log import Logger, width
from entrypoint.spec import JobSpec

if TYPE_CHECKING:
    from entrypoint.features.health.report import CheckOptions

# seconds for each program that is run: the first import of torch, or nvidia-smi with eight cards
_LIMIT = 30.0
_LOG = 140  # columns of the table if stdout is not a terminal


def _seconds(text: str) -> float:
    number = float(text)
    if not 0 < number <= 3600:
        raise ValueError
    return number


COMMAND = Command(
    "check this node, or with --all every node, and compare it with what the job needs",
    PROGRAM,
    (
        "--all  check all nodes together: run it on every node; worker-0 prints one table",
        "--json  print JSON, with all probe results",
        "--strict  exit with 78 for a warning, too",
        "--limit SECONDS  seconds for each program that a probe runs, such as nvidia-smi;"
        f" {_LIMIT:g} if not given",
    ),
    more={"limit": {"type": _seconds, "default": _LIMIT}},
)


def act(args: argparse.Namespace, log: Logger) -> int:
    """Run the probes and print the table. Returns 0, or 78 if the job would fail; with --all the
    roll call's status."""
    from entrypoint.features.health.report import CheckOptions, inquiry

    # a width that fits into most logs, if this is no terminal
    columns = max(60, width()) if os.isatty(1) else _LOG
    options = CheckOptions(args.limit, args.spec or "", args.json, args.strict, columns)

    def of(spec: JobSpec, facts: Facts, plan: Plan) -> Inquiry | inquire.Answered:
        several = args.all and len(plan.topology.nodes) > 1
        return inquiry(spec, options) if several else _alone(spec, facts, plan, options)

    return inquire.act(args, log, of)


def _alone(spec: JobSpec, facts: Facts, plan: Plan, options: CheckOptions) -> inquire.Answered:
    import asyncio

    from entrypoint.features.health import probes
    from entrypoint.features.health.probe import Inputs
    from entrypoint.features.health.report import CheckDialogue

    me = plan.topology.me
    inputs = Inputs(spec, facts, plan, options.limit, options.spec_file)
    found = {me: probes.results(asyncio.run(probes.observe(inputs)))}
    end = CheckDialogue(options, plan, {me: plan.members.reports[me]}, found).conclude(None)
    assert end.outcome
    return end.outcome, end.answer
