"""`entrypoint help`: print what `--help` prints."""

from __future__ import annotations

import argparse

from entrypoint.cli.parser import Commands, command, parser
from entrypoint.output.log import Logger


def arguments(commands: Commands, spec: str | None) -> None:
    """Add the command and its options to the command line."""
    text = "print the help of a command; without one, this help"
    options = command(commands, "help", "[COMMAND]", text)
    options.add_argument("about", nargs="*", metavar="COMMAND", help="command, such as run")


def act(args: argparse.Namespace, log: Logger) -> int:
    """Print the help, and end with 0. Raises UsageError if there is no such command."""
    parser(None, args.about).parse_args([*args.about, "--help"])
    return 0
