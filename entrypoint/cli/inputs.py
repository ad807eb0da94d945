"""Reads a command's inputs: the spec, variables and flags, and files that its arguments name."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from entrypoint.base.errors import ConfigError, NoInputError

if TYPE_CHECKING:
    import argparse

    from entrypoint.base.model import Facts, Topology
    from entrypoint.output.log import Logger
    from entrypoint.spec import JobSpec, Override
    from entrypoint.system.signals import Signals

SPEC = "job.yaml"  # the name that the documents and `init` give it
_GIVEN = "the rendered spec"  # in positions, where the text itself is given
TRACE = "ENTRYPOINT_TRACE"  # set to anything, it adds a traceback to a defect's message


def job(args: argparse.Namespace, here: bool = True) -> tuple[JobSpec, Facts]:
    """Return the job spec, and the facts of this container. `here` as for `spec`."""
    from entrypoint.system import facts

    wanted = spec(args, here)[0]
    return wanted, facts.of_job(facts.read())()


def assembled(
    spec: JobSpec, facts: Facts, topology: Topology, signals: Signals, log: Logger
) -> tuple[JobSpec, Topology]:
    """Return the spec with all hosts, and the topology, once the nodes have called in, if they are
    to. Raises as `assemble.assembled` does."""
    if not topology.call_in:
        return spec, topology
    from entrypoint.session import assemble

    return assemble.assembled(spec, facts, topology, signals, log)


def spec(args: argparse.Namespace, here: bool = True, resolved: bool = True) -> tuple[JobSpec, str]:
    """Return the job spec, and the text of its file, "" if there is none.

    The text itself may be given in place of the file's path: it has several lines. A relative path
    in the file starts at the file's folder, one of a flag or a variable at the current folder, if
    they are to be `resolved`. If the job runs `here`, a platform's folder is expanded.
    """
    from entrypoint.spec import expanded, load

    file = None
    if args.spec and "\n" in args.spec:
        file = args.spec
        args.spec = _GIVEN
    elif args.spec:
        args.spec = expanded(args.spec, os.environ)
        file = decoded(args.spec)
    starts = folders(args.spec) if resolved else {}
    return load(file, args.spec or "", environ(), overrides(args), starts, here), file or ""


def with_program(args: argparse.Namespace, spec: JobSpec) -> JobSpec:
    """Return the spec. Raises ConfigError if neither it nor its file is given, and this folder has
    such a file."""
    if not (args.spec or spec.command) and os.path.isfile(SPEC):
        detail = f"{SPEC} is in this folder, but no --spec was given"
        hint = f"add --spec {SPEC} (or ENTRYPOINT_SPEC={SPEC}), or a program: -- python train.py"
        raise ConfigError("EP115 there is no program to run", detail, hint)
    return spec


def decoded(file: str) -> str:
    """Return the text of a spec file. Raises NoInputError if it cannot be read."""
    name = f"the job spec {os.path.abspath(file)}"
    data = _read(file, name, "give --spec or ENTRYPOINT_SPEC an existing file")
    return data.decode("utf-8", "surrogateescape")


def folders(file: str) -> dict[str, str]:
    """Return the folder where relative paths start, for each origin of a value in a job with this
    spec file, if there is one: none if the current folder has been removed."""
    try:
        cwd = os.getcwd()
    except OSError:
        return {}
    # <(...) is in no folder of the user's
    folder = os.path.dirname(os.path.abspath(file)) if file and os.path.isfile(file) else cwd
    return {"spec": folder, "flag": cwd, "env": cwd}


def environ() -> dict[str, str]:
    """Return this process's variables, from which settings are read."""
    return {name: value for name, value in os.environ.items() if name != TRACE}


def text(path: str) -> str:
    """Return a file's text. Raises NoInputError if it cannot be read."""
    return _read(path, path, "give an existing file").decode("utf-8", "replace")


def _read(path: str, name: str, hint: str) -> bytes:
    from entrypoint.system import files

    try:
        return files.read(path)
    except OSError as error:
        raise NoInputError(f"EP111 cannot read {name}", error.strerror or "", hint) from None


def overrides(args: argparse.Namespace) -> dict[str, Override]:
    """Return the spec's fields that flags set: field -> value and flag."""
    from entrypoint.spec import Override, fields

    flags = [
        (field.path, getattr(args, field.path), field.flags[-1])
        for field in fields()
        if field.flags
    ]
    flags += [("env", args.env, "--env"), ("command", args.command or None, "--")]
    return {path: Override(value, flag) for path, value, flag in flags if value is not None}
