"""The notes of a plan for users: warnings, and what only the run can know."""

from __future__ import annotations

from collections.abc import Iterator

from entrypoint.base.model import NodeReport, Plan
from entrypoint.base.text import count
from entrypoint.spec import JobSpec, logs


def warnings(spec: JobSpec, plan: Plan) -> Iterator[str]:
    """Yield what has another name now, and what has no effect; one node of a job says it."""
    topology, show = plan.topology, spec.logs.show
    if not topology.is_leader:
        return
    yield from spec.renamed
    if spec.launcher_args and not plan.launch.takes_args:
        where = spec.setting("launcher_args")
        yield f"EP131 launcher {plan.launcher} has no options | {where} | remove them"
    # a variable gives none: it may be there for other jobs
    is_asked = spec.source("log_dir").origin in ("flag", "spec")
    is_used = topology.log_dir in plan.launch.folders or spec.netcheck.when == "before"
    if is_asked and not is_used:
        yield (
            f"EP131 nothing writes logs into {topology.log_dir} | {spec.setting('log_dir')} | add"
            " --log-files ranks for a copy of each rank's output, or remove it"
        )
    if show != logs.ALL and all(
        int(part.partition("-")[0]) >= plan.ranks for part in show.split(",")
    ):
        detail = f"{spec.setting('logs.show')} is {show}; {count(plan.ranks, 'rank')}, from 0"
        yield f"EP131 logs.show names no rank of this job | {detail} | name some, or remove it"


def later(spec: JobSpec, plan: Plan) -> Iterator[str]:
    """Yield what only the run can know, and what is done about it."""
    topology, members, least = plan.topology, plan.members, plan.launch.min_nodes
    calls = plan.mode == "coordinated"
    if topology.call_in:
        yield (
            f"hosts: from worker-0 at {topology.call_in}, once all {len(topology.nodes)} nodes have"
            " called in there; a node without an index gets its own by the order of host names"
        )
    if topology.pre_start:
        yield f"start hook {topology.pre_start}: what it exports is for the ranks of this node"
    if calls and members.assumed:
        yield from _interface(spec, members.reports[topology.me])
    if calls and spec.netcheck.when == "before":
        yield (
            "network: measured before the program starts, and the job ends with 75 where it is not"
            " fit"
        )
    if calls and least is not None:
        yield (
            f"nodes: those that are there, {spec.timeouts.join:g}s (timeouts.join) after {least} of"
            " these are there; the launcher numbers the ranks, anew when nodes come or go"
        )
    if topology.spares:
        spare = "a spare takes the place of a lost node when the job boots again"
        if not spec.restarts.most:
            spare = (
                "no spare takes the place of a lost node, since the job never boots again"
                " (restarts)"
            )
        yield f"nodes: {topology.working} of these {len(topology.nodes)} work at a time; {spare}"
    if plan.launch.needs_rank_table and not members.cards:
        yield (
            "ranks and devices: from the rank table once it is there; those shown are counted node"
            " by node"
        )
    if calls:
        yield (
            f"run directory: where {topology.run_dir} cannot be used, another one, to tell the"
            " nodes why"
        )


def _interface(spec: JobSpec, report: NodeReport) -> Iterator[str]:
    if spec.network.asked and report.interface:
        yield (
            f"network interface: {report.interface.name} here; the roll call brings the other"
            " nodes' names"
        )
    elif len(report.interfaces) > 1 and not spec.network.asked and not spec.mpi.interface:
        yield (
            "network interface: from the roll call, the one that it comes over, of"
            f" {', '.join(report.interfaces)}; or set network.interface"
        )
