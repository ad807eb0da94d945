"""`entrypoint report`: show where the time of a boot went."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from entrypoint.cli import inputs, outputs
from entrypoint.cli.parser import command
from entrypoint.errors import NoInputError, RefusedError
from entrypoint.output.log import show
from entrypoint.text import escaped

if TYPE_CHECKING:
    import argparse

    from entrypoint.cli.parser import Commands
    from entrypoint.output.log import Logger


def arguments(commands: Commands, spec: str | None) -> None:
    """Add the command and its options to the command line."""
    usage = "RUNDIR [--html FILE] [--trace FILE]"
    report = command(commands, "report", usage, "show where the time of a boot went, and which node was last")
    text = "run directory of a node whose job has ended; worker-0's has all nodes. Or RUNDIR-timeline.json itself"
    report.add_argument("run_dir", metavar="RUNDIR", help=text)
    report.add_argument("--html", metavar="FILE", help="write a page with a bar for each node; it needs no network")
    report.add_argument("--trace", metavar="FILE", help="write trace events for ui.perfetto.dev or chrome://tracing")


def act(args: argparse.Namespace, log: Logger) -> int:
    """Write the page and the trace, or print a table if neither was asked for. Returns 0."""
    from entrypoint.record import merge, words
    from entrypoint.record.result import timeline_of

    folder = args.run_dir.rstrip("/") or "/"
    file = folder if folder.endswith(".json") else timeline_of(folder)
    _check_owner(file)
    try:
        text = inputs.text(file)
    except NoInputError as error:
        hint = "a job writes it when it ends: give worker-0's run directory, as `entrypoint plan` names it"
        raise NoInputError("EP042 there is no timeline to read", f"{file}: {error.detail}", hint) from None
    timeline, outcome = merge.parse(text, file), _outcome(file)
    if args.html:
        from entrypoint.record.page import page

        outputs.give(page(timeline, outcome), args.html, log)
    if args.trace:
        from entrypoint.record.trace import trace

        outputs.give(trace(timeline), args.trace, log)
    if not (args.html or args.trace):
        show(words.table(timeline, outcome))
    return 0


def _outcome(file: str) -> str:
    """Return how the job ended, by the result file next to it; "" if there is none."""
    from pathlib import Path

    from entrypoint.record import status

    result = status.result(Path(file.removesuffix("-timeline.json")))
    return f"ended with {result['status']}: {escaped(result['reason'])}" if result else ""


def _check_owner(file: str) -> None:
    """Raise RefusedError if another user may have put the file there."""
    import os

    from entrypoint.system.files import is_trusted

    with contextlib.suppress(OSError):
        if not is_trusted(file, about := os.lstat(file)):
            detail = f"{file} is owned by {about.st_uid}, we are {os.geteuid()}"
            hint = "ask as that user, or copy the file to a folder of your own"
            raise RefusedError("EP031 this timeline is another user's", detail, hint)
