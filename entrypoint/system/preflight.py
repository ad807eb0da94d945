"""What this machine must have before anything starts: room for files, shared memory, file handles, locked memory.

What cannot work is an error. What may still work is a line of warning; the job goes on.
"""

from __future__ import annotations

import contextlib
import os
import resource
from pathlib import Path

from entrypoint.errors import CantCreateError, EntrypointError, OsError
from entrypoint.model import Plan
from entrypoint.plan import needs
from entrypoint.system import proc
from entrypoint.text import size


def check(plan: Plan, root: Path = Path("/")) -> list[str]:
    """Look at this machine, give the file handles we need, and return a warning a line.

    Raises CantCreateError when the run directory's file system is full or read-only, OsError when there are too few
    file handles for us; where it is both, the message has both.
    """
    if plan.mode != "exec":  # else we become the program, and write nothing
        found = [error for error in (_disk(plan), _handles(plan)) if error]
        if found:
            raise type(found[0])("; ".join(map(str, found)))
    warnings = (_shared_memory(plan, root), _handles_of_ranks(plan), _locked_memory(root))
    return [words for words in warnings if words]


def _disk(plan: Plan) -> EntrypointError | None:
    """Files are written later, too: report a full disk before the ranks start, not after."""
    run_dir = Path(plan.topology.run_dir)
    place = next(folder for folder in (run_dir, *run_dir.parents) if folder.is_dir())
    what, do = f"EP410 cannot write {run_dir}", "make room, or set ENTRYPOINT_RUN_DIR to a writable place"
    try:
        disk = os.statvfs(place)
    except OSError as error:
        return CantCreateError(what, f"{place}: {error.strerror}", do)
    if disk.f_flag & os.ST_RDONLY:
        return CantCreateError(what, f"{place} is read-only", do)
    if (free := disk.f_bavail * disk.f_frsize) < needs.DISK:
        return CantCreateError(what, f"the disk is full: {size(free)} free at {place}, {size(needs.DISK)} needed", do)
    if disk.f_files and not disk.f_favail:
        return CantCreateError(what, f"the disk is full: no inode free at {place}", do)
    return None


def _handles(plan: Plan) -> EntrypointError | None:
    """Raise the limit to what we and the ranks need, as far as the hard limit allows; too few for us is an error."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    need, ranks = needs.handles(plan, plan.topology.me)
    if not _enough(soft, most := max(need, ranks)):
        soft = most if _enough(hard, most) else hard
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if _enough(soft, need):
        return None
    nodes, slots = len(plan.topology.nodes), plan.topology.this.slots
    seen = f"{soft} may be open, {need} are needed (nodes: {nodes}, ranks here: {slots})"
    return OsError("EP420 too few file handles", seen, "start the container with --ulimit nofile=65536")


def _handles_of_ranks(plan: Plan) -> str | None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    _, need = needs.handles(plan, plan.topology.me)
    if plan.topology.world_size == 1 or _enough(soft, need):
        return None
    seen = f"{soft} may be open, each of {plan.topology.world_size} ranks may need {need}"
    return f"EP421 few file handles | {seen} | start the container with --ulimit nofile=65536"


def _enough(limit: int, need: int) -> bool:
    return limit == resource.RLIM_INFINITY or limit >= need


def _shared_memory(plan: Plan, root: Path) -> str | None:
    slots = plan.topology.this.slots
    need = needs.shared_memory(slots, plan.topology.device.count)
    do = f"start the container with --shm-size 1g, or mount a tmpfs of at least {size(need)} there"
    if not need:
        return None
    try:
        shm = os.statvfs(root / "dev/shm")
    except OSError as error:
        return f"EP422 no shared memory | /dev/shm: {error.strerror} | {do}"
    if not os.access(root / "dev/shm", os.W_OK):
        return f"EP422 no shared memory | /dev/shm cannot be written | {do}"
    free = shm.f_bavail * shm.f_frsize
    if free >= need:
        return None
    seen = f"{size(free)} free in /dev/shm, {slots} ranks here may need {size(need)}"
    return f"EP422 little shared memory | {seen} | {do}"


def _locked_memory(root: Path) -> str | None:
    """RDMA locks the memory that it sends from; a limit shows only later, as `cannot allocate memory`."""
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    may_lock = proc.has_capability(proc.CAP_IPC_LOCK, root)
    if soft == resource.RLIM_INFINITY or not any((root / "dev/infiniband").glob("uverbs*")) or may_lock:
        return None
    seen = f"{size(soft)}, with RDMA devices in /dev/infiniband"
    return f"EP423 little memory can be locked | {seen} | start the container with --ulimit memlock=-1"
