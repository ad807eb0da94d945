"""`entrypoint init`: write a first job.yaml."""

from __future__ import annotations

import argparse
import os

from entrypoint.cli import inputs, outputs
from entrypoint.cli.parser import PROGRAM, Commands, command, job_arguments
from entrypoint.output.log import Logger


def arguments(commands: Commands, spec: str | None) -> None:
    """Add the command and its options to the command line."""
    text = "write a first job.yaml, from flags and from what is in this folder"
    init = command(commands, "init", PROGRAM, text)
    job_arguments(init, None)
    init.add_argument(
        "--out",
        default="job.yaml",
        metavar="FILE",
        help="new file, or - for stdout (default: job.yaml)",
    )


def act(args: argparse.Namespace, log: Logger) -> int:
    """Write the file. Returns 0."""
    from entrypoint.plan import locate
    from entrypoint.spec import left_out
    from entrypoint.tools.adopt.init import document, head, settings

    # One file for all nodes: this machine needs no place among the hosts.
    if args.node_rank is None:
        args.node_rank = "0"
    spec, facts = inputs.job(args)
    topology = locate(spec, facts)
    text = document(head(topology), list(settings(spec, topology, os.curdir)))
    if names := left_out(spec):
        log(
            f"EP128 secrets are left out of the file | {', '.join(names)} | give them to the"
            " containers"
        )
    hint = f"try: entrypoint plan --spec {args.out}"
    return outputs.give(text, "" if args.out == "-" else args.out, log, hint)
