"""The end of the roll call: whether the nodes that are there can run one job, and how."""

from __future__ import annotations

from collections.abc import Sequence, Set

from entrypoint.job.failure import not_ready
from entrypoint.job.ports import choose
from entrypoint.job.state import JobState
from entrypoint.model import Facts, Members, NodeReport, Outcome
from entrypoint.plan.members import clock_warnings, interface_words, with_interface, with_neighbours
from entrypoint.values import dataclass


@dataclass(frozen=True)
class Assembly:
    """What the nodes have agreed on. `port` as in messages.Start; `lines` are to be logged."""

    members: Members
    refusal: Outcome | None = None  # why they cannot run the job
    port: int = 0
    lines: tuple[str, ...] = ()


def assemble(state: JobState, facts: Facts, members: Members) -> Assembly:
    """Choose the team and the port, once the nodes have answered. `members`: what they report.

    Raises OsError if too few nodes can work, or no port is free on all of them.
    """
    plan, topology = state.plan, state.topology
    local = [peer.local for peer in state.peers.values()]
    members = with_interface(members, state.me, state.spec, facts, local)
    replaced: Sequence[str] = ()
    if topology.spares:
        here = {state.me, *state.peers}
        unfit = [it for it in members.reports if it.not_ready and it.rank in here]
        ready = here - {it.rank for it in unfit}
        if unfit and not state.team.is_enough(ready):  # their reasons are the job's
            return Assembly(members, not_ready(topology, Members(tuple(unfit))))
        replaced = _choose_team(state, ready, unfit)
    working = Members(tuple(it for it in members.reports if state.works(it.rank)))
    if refusal := not_ready(topology, working):
        return Assembly(members, refusal)
    members = with_neighbours(members, state.works)
    port, chosen = choose(plan.launch.port, topology, working)
    clocks = clock_warnings(topology, members)
    lines = (*clocks, *interface_words(state.spec, members), *chosen, *replaced)
    return Assembly(members, port=port, lines=lines)


def _choose_team(state: JobState, ready: Set[int], unfit: Sequence[NodeReport]) -> list[str]:
    """Have spares work instead of nodes that cannot; return what is to be logged."""
    topology, before = state.topology, state.team
    unready = {it.rank: it.not_ready.reason for it in unfit if it.not_ready}
    team = before.choose(topology, ready, unready)
    state.set_team(team)
    lines = [
        f"EP623 {topology.name(new)} takes the place of {topology.name(old)}: {team.reasons[old]}"
        for old, new in zip(before.nodes, team.nodes, strict=True)
        if old != new
    ]
    others = unready.keys() - team.reasons.keys()
    return lines + [
        f"{topology.name(node)} cannot work: {unready[node]}" for node in sorted(others)
    ]
