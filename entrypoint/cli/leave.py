"""`entrypoint leave`: have this node leave its job, as SIGTERM to its entrypoint does."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal

from entrypoint.base.errors import UsageError
from entrypoint.cli.parser import RUN_DIR, Command
from entrypoint.output.log import Logger

_LOOK = 0.2  # seconds between two reads of the record

COMMAND = Command(
    "have this node leave the job: its ranks save, and the others go on without it",
    options=("--wait  return when the entrypoint here has ended", RUN_DIR),
    is_of_job=False,
    details=""" For the
notice of a spot machine or a maintenance, and for a preStop hook. It does what SIGTERM to the
entrypoint does: without `restarts`, a job that is not elastic ends on all nodes. Run it in the
container of the boot: docker exec CONTAINER entrypoint leave.

Exit status: 0; 64 on worker-0, which cannot leave, or if there are several boots; 66 if there is
no boot; 69 if the entrypoint does not answer; 77 if the boot belongs to another user.""",
)


def act(args: argparse.Namespace, log: Logger) -> int:
    """Tell the entrypoint of this node. Returns 0. Raises UsageError on the node that leads."""
    from entrypoint.features.record import status

    run_dir = status.find(args.run_dir)
    state = status.ask(run_dir)
    if "status" in state:
        return 0
    if state.get("node") == state.get("nodes", [state])[0].get("node"):
        raise UsageError(
            "EP110 worker-0 cannot leave its job",
            "the other nodes are started from here",
            "stop the job: send SIGTERM to its entrypoint",
        )
    process = status.process(run_dir)
    # A second SIGTERM would end the job.
    with contextlib.suppress(FileExistsError):
        os.close(os.open(run_dir / f"leaving-{process.started}", os.O_CREAT | os.O_EXCL, 0o600))
        os.kill(process.pid, signal.SIGTERM)
    while args.wait and "status" not in status.ask(run_dir):
        status.pause(_LOOK)
    return 0
