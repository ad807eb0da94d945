"""`entrypoint health`: tell a probe whether the job has started on this node."""

from __future__ import annotations

import argparse
import contextlib

from entrypoint.base.errors import CantCreateError
from entrypoint.cli.parser import Command
from entrypoint.output.log import Logger, show

COMMAND = Command(
    "health probe: exit with 0 once the job has started on this node, else with 1",
    "",
    is_of_job=False,
)


def act(args: argparse.Namespace, log: Logger) -> int:
    """Print whether the job has started on this node. Returns 0 or 1."""
    from entrypoint.features.record import health

    ready, text = health.check()
    with contextlib.suppress(CantCreateError):  # a probe needs only the status
        show(f"{text}\n")
    return 0 if ready else 1
