"""`entrypoint plan`: print what `run` will do."""

from __future__ import annotations

import argparse

from entrypoint.cli import inputs
from entrypoint.cli.parser import PROGRAM, Commands, command, job_arguments
from entrypoint.output.log import Logger, answer


def arguments(commands: Commands, spec: str | None) -> None:
    """Add the command and its options to the command line."""
    text = (
        "print what run will do, with the origin of each value; it uses no network and writes"
        " nothing"
    )
    plan = command(commands, "plan", PROGRAM, text)
    job_arguments(plan, spec)
    plan.add_argument("--all", action="store_true", help="also show settings that have defaults")
    plan.add_argument("--json", action="store_true", help="print JSON")


def act(args: argparse.Namespace, log: Logger) -> int:
    """Print the plan. Returns 0, or the status with which `run` would refuse it."""
    from entrypoint.plan import settle
    from entrypoint.plan.show import plan_json, plan_text
    from entrypoint.system import checks, command_line

    spec, facts = inputs.job(args)
    plan, refused = checks.dry_run(spec, facts, settle(inputs.with_program(args, spec), facts), log)
    if args.json:
        answer(plan_json(spec, plan))
    else:
        lines = [command_line.of(program, plan, facts) for program in plan.launch.programs]
        answer(plan_text(spec, plan, lines, args.all))
    for outcome in refused:
        log(f"run would end: {outcome.reason}; exit {outcome.status}")
    return refused[0].status if refused else 0
