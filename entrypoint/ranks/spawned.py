"""The processes that MPI_Comm_spawn starts: MPI's daemon starts them without a supervisor."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection, Iterable

from entrypoint.launchers._daemons import DAEMONS
from entrypoint.system import proc


def processes_of_spawn(
    supervisors: Collection[int], started: Iterable[asyncio.subprocess.Process]
) -> list[int]:
    """Return the processes on this node that no supervisor has: below MPI's daemons, or the
    programs that this node has started."""
    below = proc.below(os.getpid())
    daemons = {pid for pid, name, _ in below if name in DAEMONS}
    daemons |= {program.pid for program in started}
    # with parents, for --group apart
    supervised = {*supervisors} | {proc.state(pid)[1] for pid in supervisors}
    children = [(pid, fields) for pid, _, fields in below if int(fields[1]) in daemons - supervised]
    # A process in its parent's group, such as an agent, is no process of the job.
    return [
        pid for pid, fields in children if int(fields[2]) == pid and pid not in supervised | daemons
    ]
