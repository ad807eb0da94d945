"""`entrypoint report`: show where the time of a boot went."""

from __future__ import annotations

import argparse

from entrypoint import __version__
from entrypoint.base.errors import NoInputError
from entrypoint.cli import outputs
from entrypoint.cli.parser import Command
from entrypoint.output.log import Logger, show

COMMAND = Command(
    "show where the time of a boot and its job went, and which node was last",
    "RUNDIR [--html FILE] [--trace FILE]",
    (
        "run_dir RUNDIR  run directory of a node whose job has ended, or RUNDIR-state.json;"
        " worker-0's contains all nodes",
        "--html FILE  write a page with a bar for each node; it needs no network",
        "--trace FILE  write trace events for ui.perfetto.dev or chrome://tracing",
    ),
    is_of_job=False,
)


def act(args: argparse.Namespace, log: Logger) -> int:
    """Write the page and the trace, or print a table if neither was asked for. Returns 0.

    Raises NoInputError if there is no timeline, RefusedError if another user may have put it there.
    """
    from entrypoint.base.wire import Invalid
    from entrypoint.features.record import status
    from entrypoint.features.record.file import record_of
    from entrypoint.features.record.timeline import merge, table, trace

    run_dir = args.run_dir.rstrip("/") or "/"
    file = run_dir if run_dir.endswith(".json") else record_of(run_dir)
    hint = "give worker-0's run directory, as `entrypoint plan` names it, after the job's end"
    try:
        timeline = merge(status.load(file))
    except OSError as error:
        detail = f"{file}: {error.strerror or error}"
        raise NoInputError("EP042 there is no timeline to read", detail, hint) from None
    except Invalid as error:
        detail = f"{error}; this toolkit is {__version__}"
        raise NoInputError(f"EP042 {file} is not a record", detail, hint) from None
    if args.html:
        from entrypoint.features.record.page import page

        outputs.give(page(timeline), args.html, log)
    if args.trace:
        outputs.give(trace(timeline), args.trace, log)
    if not (args.html or args.trace):
        show(table(timeline))
    return 0
