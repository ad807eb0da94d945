"""Parses the command line: what all commands share, and advice for unknown flags."""

from __future__ import annotations

import argparse
import importlib
import re
from collections.abc import Sequence
from typing import Any, TypeAlias

from entrypoint import __version__, errors, secret
from entrypoint.cli import NAMES
from entrypoint.errors import UsageError
from entrypoint.output.log import answer, width
from entrypoint.spec import fields

_EXIT_STATUSES = "\n\n".join((errors.__doc__ or "").split("\n\n")[1:3])
_EPILOG = f"""{_EXIT_STATUSES}

Every field of the spec has a variable, ENTRYPOINT_<FIELD>, such as ENTRYPOINT_SSH_PORT.
See docs/reference/spec.md."""


def _formatter(prog: str) -> argparse.HelpFormatter:
    return argparse.RawDescriptionHelpFormatter(prog, width=width())


class _Parser(argparse.ArgumentParser):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options, epilog=_EPILOG, formatter_class=_formatter, allow_abbrev=False)

    def error(self, message: str) -> None:  # type: ignore[override]
        _, unknown, flags = message.partition("unrecognized arguments: ")
        hint = (
            _advice(flags.split(" ")[0].partition("=")[0])
            if unknown
            else f"try: {self.prog} --help"
        )
        raise UsageError(f"EP110 {' '.join(secret.masked_words(message.split(' ')))}", "", hint)

    def _print_message(self, message: str, file: object = None) -> None:  # --help and --version
        answer(message)


Commands: TypeAlias = "argparse._SubParsersAction[_Parser]"


def _advice(flag: str) -> str:
    """Return a hint on what an unknown flag may stand for."""
    name = re.sub("[-_.]", "", flag)
    if name == "dryrun":
        return "use `entrypoint plan`: it prints what run will do"
    if name == "secret":
        return (
            "a secret does not belong on a command line: use --secret-file FILE, or"
            " ENTRYPOINT_SECRET"
        )
    for field in fields():
        if name in (
            re.sub("[-_.]", "", part) for part in (field.path, *field.flags)
        ) and flag.startswith("--"):
            if flag in field.flags:
                return "remove it: it is a setting of a job, and this command uses none"
            return (
                f"use {field.flags[-1]}"
                if field.flags
                else f"set {field.path} in the spec, or {field.env}"
            )
    return "put -- before the program: -- python train.py"


def parser(spec: str | None = None, words: Sequence[str] = ()) -> argparse.ArgumentParser:
    """Return the parser: `action` is the command's name, the rest are its options; `spec` is the
    default of --spec.

    If `words` begin with a command, only that one is added, since all take time. Parsing raises
    UsageError if a flag is wrong.
    """
    about = "Boot a training job: run `entrypoint run --spec job.yaml` on every node."
    parser = _Parser(prog="entrypoint", description=about)
    parser.add_argument("--version", action="version", version=f"entrypoint {__version__}")
    commands = parser.add_subparsers(prog="entrypoint", metavar="COMMAND", required=True)
    for name in words[:1] if words and words[0] in NAMES else NAMES:
        importlib.import_module(f"entrypoint.cli.{name}").arguments(commands, spec)
    return parser


PROGRAM = "[options] [-- PROGRAM ARGUMENT ...]"


def command(commands: Commands, name: str, usage: str, text: str) -> _Parser:
    """Add a command, or the last word of `name` as a verb of one. Returns its parser."""
    action, verb = name.split()[0], name.split()[-1]
    usage, about = f"entrypoint {name} {usage}".rstrip(), f"{text[0].upper()}{text[1:]}."
    parser = commands.add_parser(verb, usage=usage, help=text, description=about)
    parser.set_defaults(action=action)
    return parser


def job_arguments(parser: _Parser, spec: str | None, hidden: Sequence[str] = ()) -> None:
    """Add the options of every command that works on a job; --help leaves `hidden` fields out."""
    parser.add_argument(
        "--spec",
        "-s",
        metavar="FILE",
        default=spec,
        help="job spec, a YAML file (or ENTRYPOINT_SPEC)",
    )
    for field in fields():
        if field.flags:
            names = ", ".join(field.adapters)
            text = (
                f"{field.description.split(';')[0].rstrip('.')}{f': {names}' if names else ''} (or"
                f" {field.env})"
            )
            metavar = field.path.rsplit(".", 1)[-1].upper()
            text = argparse.SUPPRESS if field.path in hidden else text.replace("%", "%%")
            parser.add_argument(*field.flags, dest=field.path, metavar=metavar, help=text)
    text = "variable for the program, on every node"
    parser.add_argument("--env", "-e", action="append", metavar="NAME=VALUE", help=text)
