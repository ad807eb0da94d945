"""`entrypoint facts`: print which platform is recognised, and by what."""

from __future__ import annotations

from typing import TYPE_CHECKING

from entrypoint.cli import inputs
from entrypoint.cli.parser import command, job_arguments
from entrypoint.host.speaker import show

if TYPE_CHECKING:
    import argparse

    from entrypoint.cli.parser import Commands
    from entrypoint.host.speaker import Logger


def arguments(commands: Commands, spec: str | None) -> None:
    """Add the command and its options to the command line."""
    text = "print which platforms match this container, the one that is chosen, and the variables it reads"
    job_arguments(command(commands, "facts", "[options]", text), spec)


def act(args: argparse.Namespace, log: Logger) -> int:
    """Print what was recognised. Returns the status that `run` would refuse it with, else 0."""
    from entrypoint.host.facts import read
    from entrypoint.plan import seen

    found = seen.seen(read(), inputs.spec(args)[0].platform)  # no platform asks for the network or mpirun
    show(seen.text(found))
    if "error" in found:
        log(f"run would end: {found['error']}; exit {found['status']}")
    return int(found.get("status", 0))
