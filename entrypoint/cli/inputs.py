"""What a command is given: the spec, variables and flags, and files that its arguments name."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from entrypoint.errors import NoInputError

if TYPE_CHECKING:
    import argparse

    from entrypoint.model import Facts
    from entrypoint.spec import JobSpec, Override

TRACE = "ENTRYPOINT_TRACE"  # set to anything, it adds a traceback to a defect's message


def job(args: argparse.Namespace) -> tuple[JobSpec, Facts]:
    """What the user asked for, and what this container is."""
    from entrypoint.host import facts

    return spec(args)[0], facts.of_job(facts.read())()


def spec(args: argparse.Namespace) -> tuple[JobSpec, str]:
    """What the user asked for, and the text of the spec file, "" where there is none."""
    from entrypoint.spec import expanded, load

    given = None
    if args.spec:
        args.spec = expanded(args.spec, os.environ)
        data = _read(args.spec, f"the job spec {args.spec}", "give --spec or ENTRYPOINT_SPEC a file that is there")
        given = data.decode("utf-8", "surrogateescape")
    return load(given, args.spec or "", environ(), overrides(args)), given or ""


def environ() -> dict[str, str]:
    """This process's variables, as settings are read from them."""
    return {name: value for name, value in os.environ.items() if name != TRACE}


def text(path: str) -> str:
    """A file's text. Raises NoInputError where it cannot be read."""
    return _read(path, path, "give a file that is there").decode("utf-8", "replace")


def _read(path: str, what: str, do: str) -> bytes:
    from entrypoint.host import files

    try:
        return files.read(path)
    except OSError as error:
        raise NoInputError(f"EP111 cannot read {what}", error.strerror or "", do) from None


def overrides(args: argparse.Namespace) -> dict[str, Override]:
    """What flags say of the spec's fields: field -> value and flag."""
    from entrypoint.spec import Override, fields

    given = [(field.path, getattr(args, field.path), field.flags[-1]) for field in fields() if field.flags]
    given += [("env", args.env, "--env"), ("command", args.command or None, "--")]
    return {path: Override(value, flag) for path, value, flag in given if value is not None}
