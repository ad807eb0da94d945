"""How much of a machine's limits a plan needs: what `run` looks at before anything starts, and `check` shows."""

from __future__ import annotations

from entrypoint.model import Plan

_MIB = 2**20
DISK = _MIB  # bytes in the run directory: our files for a thousand nodes, and a launcher's session files
# Open MPI 4 takes 4 MiB a rank and says so; NCCL's buffers between the cards of one machine take more.
_SHM_RANK, _SHM_CARD = 4 * _MIB, 64 * _MIB
# File handles: our own; each peer's session (its socket, before it a name server's) and reply to mpirun's agent; each
# rank's pipes.
_OWN, _PEER, _RANK = 64, 2, 8


def shared_memory(slots: int, accelerators: int) -> int:
    """Bytes of /dev/shm that the ranks of a node may take; 0 for one rank, which shares none."""
    return slots * (_SHM_CARD if accelerators else _SHM_RANK) if slots > 1 else 0


def handles(plan: Plan, rank: int) -> tuple[int, int]:
    """File handles that the entrypoint of this node needs, and those of a rank, which may be connected to all others.

    `rank` is the node's.
    """
    sessions = len(plan.topology.nodes) - 1 if rank == 0 and plan.mode == "coordinated" else 0
    return _OWN + _PEER * sessions + _RANK * plan.topology.nodes[rank].slots, _OWN + 2 * plan.topology.world_size
