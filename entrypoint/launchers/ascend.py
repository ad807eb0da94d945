"""Ascend NPUs as ModelArts boots them: the program once for each card, told by variables which card and rank it is.

Source: ModelArts' boot tool for Ascend (develop-modelarts-0120), whose variables, log names and log folders these are.
"""

from __future__ import annotations

from entrypoint.launchers._command import refuse_launcher, with_python
from entrypoint.model import (
    Cards,
    EnvVar,
    File,
    Launch,
    LaunchEnds,
    LaunchRanks,
    LaunchStart,
    Members,
    Program,
    Topology,
)
from entrypoint.spec import DEFAULT, JobSpec

ALSO = ("npu", "ranktable")  # what else people call it

_TABLE = "jobstart_hccl.json"


def plan(spec: JobSpec, topology: Topology, members: Members) -> Launch:
    """One process a card, on every node; ranks and cards come from the rank table where there is one."""
    refuse_launcher(spec, "ascend")
    waits = spec.ascend.rank_table == "wait"
    cards = members.cards or _assumed(topology, members)
    name = topology.origins.get("name", DEFAULT)
    job = EnvVar("JOB_ID", topology.job, str(name), default=True)
    table = EnvVar("RANK_TABLE_FILE", f"{topology.run_dir}/{_TABLE}", "the rank table, in form v1.0")
    logs = f"{topology.log_dir}/{topology.job}"
    origin = "hosts and slots"
    if waits:
        origin = "the rank table" if members.cards else "assumed, the rank table decides"
    programs, folders = [], [topology.log_dir]
    for rank, device in zip(cards.ranks, cards.devices, strict=True):
        process_log = f"{logs}/ascend/process_log/rank_{rank}"
        folders.append(process_log)
        variables = {
            "RANK_ID": str(rank),
            "RANK_SIZE": str(cards.size),
            "DEVICE_ID": str(device),
            "ASCEND_DEVICE_ID": str(device),
        }
        programs.append(
            Program(
                with_python(spec.command),
                env=(
                    *(EnvVar(variable, value, origin) for variable, value in variables.items()),
                    *((table,) if waits else ()),
                    job,
                    EnvVar("ASCEND_PROCESS_LOG_PATH", process_log, "log_dir", default=True),
                ),
                label=f"rank {rank}",
                log=f"{logs}-proc-rank-{rank}-device-{device}.txt",
                rank=rank,
            )
        )
    return Launch(
        programs=tuple(programs),
        # A regular file: torch_npu takes no link, and what platforms mount is one.
        files=(File(_TABLE, cards.table, "the platform's rank table", mode=0o600),) if waits else (),
        folders=tuple(folders),
        start=LaunchStart(needs_rank_table=waits),
        ranks=LaunchRanks(count=cards.size),
        ends=LaunchEnds(completion="first-failure"),
    )


def _assumed(topology: Topology, members: Members) -> Cards:
    """Ranks counted node by node: before the rank table is there, and where there is none."""
    before = sum(report.slots for report in members.reports[: topology.me])
    slots = topology.this.slots
    size = sum(report.slots for report in members.reports)
    return Cards("", tuple(range(before, before + slots)), tuple(range(slots)), size)
