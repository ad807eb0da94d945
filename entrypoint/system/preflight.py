"""Read the limits of this machine for `run`, which refuses errors of plan/limits.py and logs its warnings."""

from __future__ import annotations

import contextlib
import os
import resource
from pathlib import Path

from entrypoint.errors import CantCreateError, EntrypointError, OsError
from entrypoint.model import Plan
from entrypoint.plan import limits
from entrypoint.system import proc

_WARNINGS = {  # of what `check` names by the same id
    "shared-memory": "EP422 little shared memory",
    "file-handles": "EP421 few file handles",
    "locked-memory": "EP423 little memory can be locked",
}


def check(plan: Plan, root: Path = Path("/")) -> list[str]:
    """Look at this machine, give the file handles we need, and return a warning a line.

    Raises CantCreateError when the run directory's file system is full or read-only, OsError when
    there are too few file handles for us; where it is both, the message has both.
    """
    topology, errors = plan.topology, list[EntrypointError]()
    if plan.mode != "exec":  # else we become the program, and write nothing
        _raise_file_handles(max(limits.open_files(plan, topology.me)))
        # Files are written later, too: report a full disk before the ranks start, not after.
        disk = limits.disk(limits.RUN_DIR, *room(topology.run_dir))
        if disk.level == "error":
            what = f"EP410 cannot write {topology.run_dir}"
            errors.append(CantCreateError(what, disk.detail, disk.fix))
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    handles = limits.file_handles(plan, topology.me, soft)
    if handles.level == "error":
        errors.append(OsError("EP420 too few file handles", handles.detail, handles.fix))
    if errors:
        raise type(errors[0])("; ".join(map(str, errors)))
    shm = limits.shared_memory(topology.this.slots, topology.device.count, *shared_memory(root))
    memlock, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    may_lock = proc.has_capability(proc.CAP_IPC_LOCK, root)
    rdma_files = len(list((root / "dev/infiniband").glob("uverbs*")))
    locked = limits.locked_memory(memlock, may_lock, rdma_files)
    short = [each for each in (shm, handles, locked) if each.level == "warning"]
    return [f"{_WARNINGS[each.id]} | {each.detail} | {each.fix}" for each in short]


def shared_memory(root: Path) -> tuple[int, int, str]:
    """Return the free and all bytes of /dev/shm, and why it cannot be used."""
    place = root / "dev/shm"
    try:
        disk = os.statvfs(place)
    except OSError as error:
        return 0, 0, f"/dev/shm: {error.strerror}"
    problem = "" if os.access(place, os.W_OK) else "/dev/shm cannot be written"
    return disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize, problem


def room(path: str, writes: bool = True) -> tuple[str, int | None, int | None, str]:
    """Return the folder of `path` that exists, its free bytes and files, and why it cannot be used.

    The number of files is None where the file system sets no limit.
    """
    place = next((str(each) for each in (Path(path), *Path(path).parents) if each.is_dir()), "/")
    try:
        disk = os.statvfs(place)
    except OSError as error:
        return place, None, None, error.strerror or str(error)
    if writes and disk.f_flag & os.ST_RDONLY:
        return place, None, None, "read-only file system"
    return place, disk.f_bavail * disk.f_frsize, disk.f_favail if disk.f_files else None, ""


def _raise_file_handles(need: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limits.UNLIMITED < soft < need:
        most = need if hard == limits.UNLIMITED else min(need, hard)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
