"""`entrypoint netcheck`: measure the network between the job's nodes, instead of `run`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from entrypoint.cli import run
from entrypoint.cli.parser import command, job_arguments

if TYPE_CHECKING:
    import argparse

    from entrypoint.cli.parser import Commands
    from entrypoint.output.log import Logger


def arguments(commands: Commands, spec: str | None) -> None:
    """Add the command and its options to the command line."""
    text = "measure the network between the job's nodes, without starting the program: run it on every node"
    netcheck = command(commands, "netcheck", "[options]", text)
    job_arguments(netcheck, spec)
    netcheck.add_argument("--json", action="store_true", help="worker-0 prints JSON instead of a table")
    netcheck.set_defaults(passthrough=False)


def act(args: argparse.Namespace, log: Logger) -> int:
    """Boot this node's part of the check. Returns 0, or 75 if the network misses the spec's limits."""
    from entrypoint.plan.netcheck import alone

    return run.boot(args, log, partial(alone, how="json" if args.json else "text"))
