"""Reads the limits of this node, which plan/limits.py judges: `run` refuses errors and logs
warnings, before a boot and in the health gate; `check` shows all."""

from __future__ import annotations

import contextlib
import os
import resource
from pathlib import Path
from typing import Any

from entrypoint.base.errors import CantCreateError, EntrypointError, HostError
from entrypoint.base.model import Plan
from entrypoint.base.text import count
from entrypoint.plan import limits
from entrypoint.system import proc

ROOT = Path("/")
_MOST_HANDLES = 2**20  # fs.nr_open of Linux (Documentation/admin-guide/sysctl/fs.rst)
_WARNINGS = {  # id of the finding of `check` -> summary
    "shared-memory": "EP422 little shared memory",
    "file-handles": "EP421 few file handles",
    "locked-memory": "EP423 little memory can be locked",
}


def check(plan: Plan) -> list[str]:
    """Raise this process's soft limits, which what it starts inherits; check the limits of this
    host, and return the warnings.

    Raises CantCreateError if the run directory's file system is full or read-only, HostError if
    there are too few file handles; if both, the message has both.
    """
    topology = plan.topology
    errors: list[EntrypointError] = []
    _raise_soft_limits()
    if plan.mode != "exec":  # otherwise this process becomes the program, and writes nothing
        # Files are written later, too: report a full disk before the ranks start, not after.
        disk = limits.disk(limits.RUN_DIR, *room(topology.run_dir))
        if disk.level == "error":
            summary = f"EP410 cannot write {topology.run_dir}"
            errors.append(CantCreateError(summary, disk.detail, disk.fix))
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    handles = limits.file_handles(plan, topology.me, soft)
    if handles.level == "error":
        errors.append(HostError("EP420 too few file handles", handles.detail, handles.fix))
    if errors:
        raise type(errors[0])("; ".join(map(str, errors)))
    shm = limits.shared_memory(topology.this.slots, topology.device.count, **shared_memory())
    lock = locked_memory()
    findings = (shm, handles, limits.locked_memory(**lock))
    warnings = [
        f"{_WARNINGS[finding.id]} | {finding.detail} | {finding.fix}"
        for finding in findings
        if finding.level == "warning"
    ]
    ports = [*(ROOT / "sys/class/infiniband").glob("*/ports/*")]
    if topology.has_peers and ports and not lock["rdma_files"]:
        missing = f"{count(len(ports), 'port')}, no device file in /dev/infiniband"
        fix = "give the container /dev/infiniband, and --ulimit memlock=-1"
        warnings.append(f"EP423 RDMA cannot be used | {missing} | {fix}")
    return warnings


def shared_memory() -> dict[str, Any]:
    """Return the free and all bytes of /dev/shm, or why it cannot be used."""
    place = ROOT / "dev/shm"
    try:
        disk = os.statvfs(place)
    except OSError as error:
        return {"shm_problem": f"/dev/shm: {error.strerror}"}
    if not os.access(place, os.W_OK):
        return {"shm_problem": "/dev/shm cannot be written"}
    free, total, block = disk.f_bavail, disk.f_blocks, disk.f_frsize
    if not total:  # mounted with size=0: as much as there is memory
        free, total = os.sysconf("SC_AVPHYS_PAGES"), os.sysconf("SC_PHYS_PAGES")
        block = os.sysconf("SC_PAGESIZE")
    return {"shm_free": free * block, "shm_total": total * block}


def locked_memory() -> dict[str, Any]:
    """Return the limit on locked memory, whether it counts here, and the number of device files
    for RDMA."""
    return {
        "memlock": resource.getrlimit(resource.RLIMIT_MEMLOCK)[1],  # `run` raises the soft one
        "may_lock": proc.has_capability(proc.CAP_IPC_LOCK, ROOT),
        "rdma_files": len(list((ROOT / "dev/infiniband").glob("uverbs*"))),
    }


def room(path: str, writes: bool = True) -> tuple[str, int | None, int | None, str]:
    """Return the folder of `path` that exists, its free bytes and files, and why it cannot be used.

    Bytes are None if the file system does not count them, files if it has no limit.
    """
    place = next(
        (str(folder) for folder in (Path(path), *Path(path).parents) if folder.is_dir()), "/"
    )
    try:
        disk = os.statvfs(place)
    except OSError as error:
        return place, None, None, error.strerror or str(error)
    if writes and disk.f_flag & os.ST_RDONLY:
        return place, None, None, limits.READ_ONLY
    free = disk.f_bavail * disk.f_frsize if disk.f_blocks else None
    return place, free, disk.f_favail if disk.f_files else None, ""


def _raise_soft_limits() -> None:
    """Raise the limits on file handles and locked memory to the hard ones, as a rank itself may.

    Older programs close every handle that the limit allows before they start another program, and
    some engines allow 2^30: a higher limit on handles than the kernel's usual one is not set.
    """
    for kind, most in ((resource.RLIMIT_NOFILE, _MOST_HANDLES), (resource.RLIMIT_MEMLOCK, None)):
        soft, hard = resource.getrlimit(kind)
        wanted = hard
        if most is not None and not limits.UNLIMITED < hard < most:
            wanted = soft if not limits.UNLIMITED < soft < most else most
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(kind, (wanted, hard))
