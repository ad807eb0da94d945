"""Parses the command line: what all commands share, and advice for unknown flags."""

from __future__ import annotations

import argparse
import importlib
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from entrypoint import __version__
from entrypoint.base import errors, registry, secret
from entrypoint.base.errors import UsageError
from entrypoint.output.log import answer, width
from entrypoint.spec import fields, letters_of, removed
from entrypoint.spec.rules import FieldInfo, nearest, suggestion

ORDER = """run local plan check netcheck init render deploy ranktable
    health status stacks leave rerun report explain facts schema"""  # as --help shows them
NAMES = [
    name
    for name in ORDER.split()
    if os.path.isfile(f"{os.path.dirname(__file__)}/{name}.py")  # a feature may be removed
]
_EXIT_STATUSES = "\n\n".join((errors.__doc__ or "").split("\n\n")[1:3])
_EPILOG = f"""{_EXIT_STATUSES}

Every field of the spec has a variable, ENTRYPOINT_<FIELD>: see docs/reference/spec.md."""


_COMMON = {
    "hosts",
    "launcher",
    "log_dir",
    "node_rank",
    "secret_file",
    "slots",
}  # fields whose flags are shown first, with --spec and --env
_GROUPS = {
    "logs": "output and logs",
    "ssh": "network",
    "network": "network",
    "timeouts": "network",
}
_OTHERS = "job and node"


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Options in alphabetical order, with one mention of what they take: `-s, --spec FILE`."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=width())

    def add_arguments(self, actions: Iterable[argparse.Action]) -> None:
        super().add_arguments(
            sorted(actions, key=lambda action: max(action.option_strings, key=len, default=""))
        )

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if not action.option_strings or action.nargs == 0:
            return super()._format_action_invocation(action)
        names = sorted(action.option_strings, key=len)
        return f"{', '.join(names)} {action.metavar or action.dest.upper()}"


class _Parser(argparse.ArgumentParser):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options, epilog=_EPILOG, formatter_class=_Formatter, allow_abbrev=False)

    def error(self, message: str) -> None:  # type: ignore[override]
        _, unknown, flags = message.partition("unrecognized arguments: ")
        hint = (
            _advice(flags.split(" ")[0].partition("=")[0], _flags_of(self))
            if unknown
            else f"try: {self.prog} --help"
        )
        raise UsageError(f"EP110 {' '.join(secret.masked_words(message.split(' ')))}", "", hint)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        is_command = isinstance(action, argparse._SubParsersAction)
        kind = "command" if is_command else action.dest
        if action.option_strings:
            kind = f"value of {action.option_strings[-1]}"
        homes = {str(choice): str(choice) for choice in action.choices}
        also = registry.also("deploy") if action.dest == "target" else {}
        raise UsageError(
            f"EP110 there is no such {kind}",
            secret.masked(str(value)),
            suggestion(str(value), homes | also, homes),
        )

    def _print_message(self, message: str, file: object = None) -> None:  # --help and --version
        answer(message)


Commands: TypeAlias = "argparse._SubParsersAction[_Parser]"


def _flags_of(parser: argparse.ArgumentParser) -> list[str]:
    """Return the long flags of a parser and of its commands."""
    flags = []
    for action in parser._actions:
        flags += [name for name in action.option_strings if name.startswith("--")]
        if isinstance(action, argparse._SubParsersAction):
            flags += [name for inner in action.choices.values() for name in _flags_of(inner)]
    return flags


def _advice(flag: str, flags: Sequence[str]) -> str:
    """Return a hint on what an unknown flag may stand for, where a command has these."""
    name = letters_of(flag)
    if name == "dryrun":
        return "use `entrypoint plan`: it prints what run will do"
    if name == "secret":
        return (
            "a secret does not belong on a command line: use --secret-file FILE, or"
            " ENTRYPOINT_SECRET"
        )
    for field in fields():
        if name in map(letters_of, (field.path, *field.flags)) and flag.startswith("--"):
            if flag in field.flags:
                return "remove it: it is a setting of a job, which this command does not use"
            return (
                f"use {field.flags[-1]}"
                if field.flags
                else f"set {field.path} in the spec, or {field.env}"
            )
    if flag.startswith("--") and (hint := removed(flag)):
        return hint
    names = {name.lstrip("-"): name for name in flags}
    if flag.startswith("--") and (meant := nearest(flag[2:], names)):
        return f"did you mean `{names[meant]}`? options of the program go after --"
    return "put -- before the program: -- python train.py"


def parser(spec: str | None = None, arguments: Sequence[str] = ()) -> argparse.ArgumentParser:
    """Return the parser: `action` is the command's name, the rest are its options; `spec` is the
    default of --spec.

    If `arguments` begin with a command, only that one is added, since all take time. Parsing raises
    UsageError if a flag is wrong.
    """
    about = "Boot a training job: run `entrypoint run --spec job.yaml` on every node."
    parser = _Parser(prog="entrypoint", description=about)
    version = f"entrypoint {__version__}"
    parser.add_argument(
        "-V", "--version", action="version", version=version, help="print the version"
    )
    commands = parser.add_subparsers(prog="entrypoint", metavar="COMMAND", required=True)
    for name in arguments[:1] if arguments and arguments[0] in NAMES else NAMES:
        importlib.import_module(f"entrypoint.cli.{name}").COMMAND.add(commands, name, spec)
    return parser


PROGRAM = "[options] [-- PROGRAM ARGUMENT ...]"
RUN_DIR = (
    "--run-dir RUN_DIR  run directory of the boot (or ENTRYPOINT_RUN_DIR); the boot of this"
    " container if not given"
)
"""The option of the commands that work on the boot of this container."""


class Command(NamedTuple):
    """The arguments of one command.

    An option is written as --help shows it, with two spaces before its help: `--json  print JSON`,
    `--out, -o FILE  file to write`; after `...` it may be repeated. `more` has the other arguments
    that argparse needs for one, by its name.
    """

    about: str  # what it does; --help begins with it
    usage: str = "[options]"
    options: tuple[str, ...] = ()
    is_of_job: bool = True  # it also has the options of all commands that work on a job
    hidden: Sequence[str] = ()  # fields of the spec whose options --help leaves out
    details: str = ""  # what --help says after `about`
    defaults: Mapping[str, Any] = {}
    more: Mapping[str, Mapping[str, Any]] = {}
    verbs: Mapping[str, Command] = {}

    def add(self, commands: Commands, name: str, spec: str | None) -> None:
        """Add it to a parser, or as a verb of the command that is the first word of `name`; `spec`
        is the default of --spec."""
        parser = commands.add_parser(
            name.split()[-1],
            usage=f"entrypoint {name} {self.usage}".rstrip(),
            help=self.about,
            description=f"{self.about[0].upper()}{self.about[1:]}.{self.details}",
        )
        if self.is_of_job:
            _add_job_options(parser, spec, self.hidden)
        for option in self.options:
            words, _, text = option.partition("  ")
            flags = [word.rstrip(",") for word in words.split() if word.startswith("-")]
            values = [word for word in words.split() if not word.startswith("-")]
            names = flags or [values.pop(0)]
            takes: dict[str, Any] = {"metavar": values[0]} if values else {}
            if flags and not values:
                takes["action"] = "store_true"
            if "..." in values:
                takes["action"] = "append"
            takes |= self.more.get(names[0].lstrip("-"), {})
            parser.add_argument(*names, help=text or None, **takes)
        if self.verbs:
            verbs = parser.add_subparsers(dest="verb", metavar="|".join(self.verbs), required=True)
            for verb, command in self.verbs.items():
                command.add(verbs, f"{name} {verb}", spec)
        parser.set_defaults(action=name.split()[0], **self.defaults)


def _add_job_options(parser: _Parser, spec: str | None, hidden: Sequence[str]) -> None:
    """Add the options of every command that works on a job."""
    common = parser.add_argument_group("common options")
    groups = {title: parser.add_argument_group(title) for title in (_OTHERS, *_GROUPS.values())}
    common.add_argument(
        "--spec",
        "-s",
        metavar="FILE",
        default=spec,
        help="job spec, a YAML file (or ENTRYPOINT_SPEC)",
    )
    text = "variable for the program, on every node; may be repeated"
    common.add_argument("--env", "-e", action="append", metavar="NAME=VALUE", help=text)
    for field in fields():
        if field.flags:
            title = _GROUPS.get(field.path.partition(".")[0], _OTHERS)
            group = common if field.path in _COMMON else groups[title]
            group.add_argument(
                *field.flags,
                dest=field.path,
                metavar=field.path.rsplit(".", 1)[-1].upper(),
                help=argparse.SUPPRESS if field.path in hidden else _help(field),
            )
    text = "print only warnings and errors: --log-level warning"
    groups[_GROUPS["logs"]].add_argument(
        "--quiet", "-q", dest="logs.level", action="store_const", const="warning", help=text
    )
    # those of the command alone come last
    parser._action_groups.append(parser._action_groups.pop(1))


def _help(field: FieldInfo) -> str:
    """Return the first sentence of a field's description, the adapters, and its variable."""
    names = ", ".join(field.adapters)
    text = f"{field.summary}{f': {names}' if names else ''} (or {field.env})"
    return " ".join(text.split()).replace("%", "%%")
