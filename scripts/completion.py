#!/usr/bin/env python3
"""completion.py FOLDER - write the completion for bash and zsh, and the man page, from the command
line's own parser. The files lie as below /usr/local/share, where man-db, bash-completion and zsh
find them."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import shtab
from argparse_manpage.manpage import Manpage

from entrypoint import __version__
from entrypoint.cli.parser import parser
from entrypoint.spec import fields

FILES = {"--spec", "--secret-file", "--out", "--html", "--trace", "--hccn-conf"}
FOLDERS = {"--workdir", "--run-dir", "--log-dir"}
FILE_ARGUMENTS = {"RUNDIR": shtab.DIRECTORY, "TABLE": shtab.FILE, "FILE": shtab.FILE}


def files() -> Iterator[tuple[str, str]]:
    """Yield the path below share/ and the text of each file."""
    command_line = parser()
    for action in actions(command_line):
        add_choices(action)
    yield "bash-completion/completions/entrypoint", shtab.complete(command_line, "bash")
    yield "zsh/site-functions/_entrypoint", shtab.complete(command_line, "zsh")
    yield "man/man1/entrypoint.1", man_page()


def actions(options: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Yield every option and argument of a parser and of its commands."""
    for action in options._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                yield from actions(inner)


def add_choices(action: argparse.Action) -> None:
    """Let an option of the spec complete the names that its field takes, and one for a file its
    path."""
    field = next((field for field in fields() if action.dest == field.path), None)
    names = set(action.option_strings)
    if field and (choices := field.adapters or field.choices):
        action.choices = list(choices)
    elif names & FOLDERS:
        action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
    elif names & FILES:
        action.complete = shtab.FILE  # type: ignore[attr-defined]
    elif not names and action.metavar in FILE_ARGUMENTS:
        action.complete = FILE_ARGUMENTS[str(action.metavar)]  # type: ignore[attr-defined]
    elif not names and action.dest == "about" and action.metavar == "COMMAND":
        action.choices = list(parser()._subparsers._group_actions[0].choices)  # type: ignore[union-attr,arg-type]


def man_page() -> str:
    """Return the man page, in roff."""
    os.environ["COLUMNS"] = "100"
    data = {
        "project_name": "entrypoint",
        "version": __version__,
        "manual_title": "Training entrypoint",
        "description": "boot, supervise and end a distributed training job",
    }
    return str(Manpage(parser(), data))


def main() -> None:
    """Write the files below the folder that is given."""
    share = Path(sys.argv[1])
    for name, text in files():
        path = share / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        print(path)


if __name__ == "__main__":
    main()
