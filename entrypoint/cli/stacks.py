"""`entrypoint stacks`: show what the ranks of the running job do, and which one hangs."""

from __future__ import annotations

import argparse

from entrypoint.cli.parser import RUN_DIR, Command
from entrypoint.output.log import Logger, answer

COMMAND = Command(
    "compare the stacks of the ranks of the running job, and name a rank that hangs",
    options=(RUN_DIR,),
    is_of_job=False,
    details=""" On worker-0 this
covers the ranks of all nodes, on a worker those of its own node. The job continues. Run it in the
container of the boot: docker exec CONTAINER entrypoint stacks.

Exit status: 0 if the stacks were read; 66 if there is no boot; 69 if no ranks run, or the
entrypoint does not answer; 77 if the boot belongs to another user; 64 if there are several
boots.""",
)


def act(args: argparse.Namespace, log: Logger) -> int:
    """Print the report. Raises UnavailableError if there is none."""
    from entrypoint.features.record import status
    from entrypoint.session import stackrequests

    run_dir = status.find(args.run_dir)
    status.ask(run_dir)  # whether it runs, and is ours
    answer("".join(f"{line}\n" for line in stackrequests.ask(run_dir)))
    return 0
