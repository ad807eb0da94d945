"""All findings of a check as one text, and how the check ends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from entrypoint.check import node, nodes, table
from entrypoint.check.findings import sort, status, summary, together
from entrypoint.check.observed import Observation
from entrypoint.errors import message_parts
from entrypoint.model import Check, Finding, NodeReport, Outcome, Plan
from entrypoint.text import count, some
from entrypoint.values import dataclass, replace
from entrypoint.wire import read

# Behind the launcher's name at a check's roll call, so that nodes that run a job and nodes that only look disagree.
ONLY = " (check)"


def question(limit: float, **how: Any) -> Check:
    """Return the check as the job asks it: with what reads an answer, and what judges all. `how` as in Check."""
    return Check(limit, **how, read=lambda answer, place: read(Observation, answer, place), judge=report)


@dataclass(frozen=True)
class CheckReport:
    """What is printed, and the check's end."""

    text: str
    outcome: Outcome


def report(
    check: Check,
    plan: Plan,
    observed: Mapping[int, Observation],
    reports: Mapping[int, NodeReport],
    failed: Outcome | None = None,
) -> CheckReport:
    """The table, or JSON, of the nodes that have answered (`reports`) and said what they see (`observed`), by rank.

    `failed`: why the roll call did not bring them all together; the check ends with it then.
    """
    topology, plan = plan.topology, replace(plan, launcher=plan.launcher.removesuffix(ONLY))
    findings = list(_roll_call(plan, observed, reports, failed))
    for rank, seen in sorted(observed.items()):
        findings += node.judge(seen, plan, rank)
    findings += nodes.differences(observed, reports, plan)
    lines = sort(findings)
    found = status(lines, check.strict)
    words = f"check of {count(len(observed), 'node')}: {summary(lines)}"
    ended = failed or (Outcome(found, f"EP010 {words}") if found else Outcome(0, words))
    if check.json:
        named = {topology.nodes[rank].label: seen for rank, seen in sorted(observed.items())}
        return CheckReport(table.as_json(lines, named, ended), ended)
    nodes_of_job = len(topology.nodes)
    head = f"job {topology.job}: {count(nodes_of_job, 'node')}, {count(plan.ranks, 'rank')}, launcher {plan.launcher}"
    if len(observed) < nodes_of_job:
        there = some((topology.nodes[rank].label for rank in sorted(observed)), 8)
        head += f"; looked at: {there or 'none'}"
    return CheckReport(table.text(together(lines), len(observed), check.width, head), ended)


def _roll_call(
    plan: Plan, observed: Mapping[int, Observation], reports: Mapping[int, NodeReport], failed: Outcome | None
) -> Iterator[Finding]:
    """Why nodes are not in the table, or cannot take part."""
    if failed:
        what, seen, fix = message_parts(failed.reason)
        yield Finding("error", "roll-call", what, seen, "", fix)
    for each in plan.topology.nodes if len(reports) > 1 and not failed else ():
        if each.rank not in reports:  # of an elastic job
            yield Finding("warning", "missing", "node", f"{each.host} is not there", "", "see its log", (each.label,))
    for rank, answer in sorted(reports.items()):
        label = (plan.topology.nodes[rank].label,)
        if rank not in observed:
            fix = "see its log; a program or a file system may hang there"
            yield Finding("error", "no-answer", "this node's look at itself", "no answer", "an answer", fix, label)
        if answer.not_ready and not failed:
            known = observed[rank].refused if rank in observed else ()
            if answer.not_ready.reason not in {each.reason for each in known}:
                what, seen, fix = message_parts(answer.not_ready.reason)
                yield Finding("error", "not-ready", what, seen, "", fix, label)
