"""Ascend NPUs as ModelArts boots them: the program once for each card, with variables for its card
and rank.

Source: ModelArts' boot tool for Ascend (develop-modelarts-0120), whose variables, log names and log
folders these are.
"""

from __future__ import annotations

from entrypoint.base.model import (
    DEFAULT,
    Cards,
    EnvVar,
    EnvVars,
    File,
    Launch,
    LaunchRanks,
    Program,
    Topology,
    usual,
)
from entrypoint.launchers._common import with_python
from entrypoint.spec import JobSpec

ALSO = ("npu", "ranktable")  # other names

_TABLE = "jobstart_hccl.json"


def plan(spec: JobSpec, topology: Topology) -> Launch:
    """Return one process a card, on every node; ranks and cards come from the rank table if there
    is one."""
    waits = spec.ascend.rank_table == "wait"
    cards = topology.members.cards or _assumed(topology)
    job = usual("JOB_ID", topology.job, str(topology.origins.get("name", DEFAULT)))
    table = EnvVar(
        "RANK_TABLE_FILE", f"{topology.run_dir}/{_TABLE}", "the rank table, as HCCL reads it"
    )
    logs = f"{topology.log_dir}/{topology.job}"
    origin = "hosts and slots"
    if waits:
        origin = "the rank table" if topology.members.cards else "assumed, the rank table decides"
    programs = []
    folders = [topology.log_dir]
    for rank, device in zip(cards.ranks, cards.devices, strict=True):
        process_log = f"{logs}/ascend/process_log/rank_{rank}"
        folders.append(process_log)
        programs.append(
            Program(
                with_python(spec.command),
                env=(
                    *_numbers(rank, cards.size, device, origin),
                    *((table,) if waits else ()),
                    job,
                    usual("ASCEND_PROCESS_LOG_PATH", process_log, "log_dir"),
                ),
                label=f"rank {rank}",
                log=f"{logs}-proc-rank-{rank}-device-{device}{topology.of_attempt}.txt",
                rank=rank,
            )
        )
    return Launch(
        programs=tuple(programs),
        # A regular file: torch_npu accepts no symbolic link, as platforms mount it.
        files=((File(_TABLE, cards.table, "the platform's rank table"),) if waits else ()),
        folders=tuple(folders),
        needs_rank_table=waits,
        ranks=LaunchRanks(count=cards.size),
    )


def _numbers(rank: int, size: int, device: int, origin: str) -> EnvVars:
    """Return the variables for the rank and the card of a process."""
    values = {"RANK_ID": rank, "RANK_SIZE": size, "DEVICE_ID": device, "ASCEND_DEVICE_ID": device}
    return tuple(EnvVar(name, str(value), origin) for name, value in values.items())


def _assumed(topology: Topology) -> Cards:
    """Return ranks counted node by node, for a job without a rank table, or before it is
    complete."""
    before = topology.first_rank
    slots = topology.this.slots
    ranks = tuple(range(before, before + slots))
    return Cards("", ranks, tuple(range(slots)), topology.world_size)
