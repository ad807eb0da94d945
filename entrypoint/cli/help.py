"""`entrypoint help`: print what `--help` prints."""

from __future__ import annotations

import argparse

from entrypoint.cli.parser import Command, parser
from entrypoint.output.log import Logger

COMMAND = Command(
    "print the help of a command; without one, this help",
    "[COMMAND]",
    ("about COMMAND  command, such as run",),
    is_of_job=False,
    more={"about": {"nargs": "*"}},
)


def act(args: argparse.Namespace, log: Logger) -> int:
    """Print the help, and end with 0. Raises UsageError if there is no such command."""
    parser(None, args.about).parse_args([*args.about, "--help"])
    return 0
