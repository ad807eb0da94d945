"""Judge a node's limits by what a plan needs: what `run` refuses or warns of, and `check` shows."""

from __future__ import annotations

from collections.abc import Mapping

from entrypoint.base.model import Finding, Plan
from entrypoint.base.text import count, size

UNLIMITED = -1  # as resource.RLIM_INFINITY
RUN_DIR = "run directory"  # what that disk is used for
READ_ONLY = "read-only file system"
# Seconds, two on purpose: `run` starts in any case, and a busy node may answer its roll call late,
# so it warns only of minutes. Whoever asks for a `check` wants to know of less.
CLOCKS_OF_RUN, CLOCKS_OF_CHECK = 120.0, 10.0

_MIB = 2**20
# Bytes and files. The run directory holds our files for a thousand nodes, and a launcher's session
# files; other places a log or a small checkpoint.
_RUN_DIR, _OTHER = (_MIB, 1), (1 << 30, 1000)
# Open MPI 4 takes 4 MiB a rank and says so; NCCL's buffers between a machine's cards take more.
_SHM_RANK, _SHM_CARD = 4 * _MIB, 64 * _MIB
# File handles: our own; each rank's pipes. Each peer takes one for its session (its socket, before
# it a name server's), and one for the connection of mpirun's agent.
_OWN, _RANK = 64, 8


def shared_memory(
    slots: int,
    accelerators: int,
    shm_free: int | None = 0,
    shm_total: int | None = 0,
    shm_problem: str = "",
) -> Finding:
    """Judge the bytes of /dev/shm by what this node's ranks may take; one rank shares none."""
    need = slots * (_SHM_CARD if accelerators else _SHM_RANK) if slots > 1 else 0
    free = shm_free or 0
    level = "warning" if need and (shm_problem or free < need) else "ok"
    actual = shm_problem or f"{size(free)} free of {size(shm_total or 0)} in /dev/shm"
    tmpfs = f"mount a tmpfs of at least {size(max(need, _MIB))} at /dev/shm"
    fix = f"start the container with --shm-size 1g, or {tmpfs}"
    needed = size(need) if need else ""
    return Finding(level, "shared-memory", "shared memory", actual, needed, fix)


def open_files(plan: Plan, rank: int) -> tuple[int, int]:
    """Return the file handles of this node's entrypoint, and of a rank connected to all others."""
    nodes = plan.topology.nodes
    sessions = len(nodes) - 1 if rank == 0 and plan.mode == "coordinated" else 0
    of_peer = 2 if plan.launch.ranks.agents else 1
    handles = _OWN + of_peer * sessions + _RANK * nodes[rank].slots
    # In mode exec the entrypoint becomes the program.
    return 0 if plan.mode == "exec" else handles, _OWN + 2 * plan.topology.world_size


def file_handles(plan: Plan, rank: int, limit: int) -> Finding:
    """Judge the limit on open files: an error if it is too small for the entrypoint itself."""
    nodes, ranks = plan.topology.nodes, plan.topology.world_size
    needed_here, of_rank = open_files(plan, rank)
    level, needed = "ok", f"{max(needed_here, of_rank)}"
    if UNLIMITED < limit < needed_here:
        level, needed = (
            "error",
            f"{needed_here} (nodes: {len(nodes)}, ranks here: {nodes[rank].slots})",
        )
    elif ranks > 1 and UNLIMITED < limit < of_rank:
        level, needed = "warning", f"{of_rank} for each of {ranks} ranks"
    actual = "no limit" if limit == UNLIMITED else f"{limit} may be open"
    fix = "start the container with --ulimit nofile=65536"
    return Finding(level, "file-handles", "file handles", actual, needed, fix)


def locked_memory(memlock: int, may_lock: bool, rdma_files: int | None) -> Finding:
    """Judge the limit on locked memory: with too little RDMA fails, `cannot allocate memory`."""
    unlimited = may_lock or memlock == UNLIMITED
    level = "warning" if rdma_files and not unlimited else "ok"
    actual = "no limit" if unlimited else size(memlock)
    needed = "no limit, with RDMA devices in /dev/infiniband" if rdma_files else ""
    fix = "start the container with --ulimit memlock=-1"
    return Finding(level, "locked-memory", "locked memory", actual, needed, fix)


def disk(use: str, path: str, free: int | None, files: int | None, problem: str) -> Finding:
    """Judge the disk that a folder is on: an error for the run directory, else a warning."""
    free, (least, least_files) = free or 0, _RUN_DIR if use == RUN_DIR else _OTHER
    actual, needed = f"{size(free)} free at {path}", size(least)
    level, other = "warning", f"choose another place for the {use}"
    if use == RUN_DIR:
        level, other = "error", "set ENTRYPOINT_RUN_DIR to a writable place"
    if problem:
        actual, needed = f"{path}: {problem}", ""
    elif free >= least and files is not None and files < least_files:
        actual, needed = f"room for {count(files, 'file')} at {path}", count(least_files, "file")
    elif free >= least:
        level = "ok"
    fix = writable(path, problem == READ_ONLY, other)
    return Finding(level, "disk", f"disk: {use}", actual, needed, fix)


def writable(place: str, is_read_only: bool, otherwise: str) -> str:
    """Return what to do about a place where nothing can be written; `otherwise` is another way."""
    cure = f"make room at {place}"
    if is_read_only:
        cure = f"start the container with --tmpfs {place} (in Kubernetes, an emptyDir there)"
    return f"{cure}, or {otherwise}"


def clocks_apart(clocks: Mapping[int, float], most: float) -> dict[int, str]:
    """Return which clocks are off by more than `most` seconds, by rank: `300s ahead of the others`.

    The middle one counts, since the leader's own may be wrong; of two nodes the leader's.
    """
    ordered = sorted(clocks.values())
    middle = min(ordered[(len(ordered) - 1) // 2 : len(ordered) // 2 + 1], key=abs, default=0.0)
    apart = {}
    for rank, clock in sorted(clocks.items()):
        if abs(off := clock - middle) > most:
            apart[rank] = f"{abs(off):.0f}s {'ahead of' if off > 0 else 'behind'} the others"
    return apart
