"""All findings of a check as one text, and how the check ends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from entrypoint.check import node, nodes
from entrypoint.check.findings import as_json, sort, status, summary, text, together
from entrypoint.check.observation import Observation
from entrypoint.errors import message_parts
from entrypoint.job.inquiry import Ask, Conclusion
from entrypoint.model import Finding, Inquiry, NodeReport, Outcome, Plan
from entrypoint.text import count, some
from entrypoint.values import dataclass
from entrypoint.wire import read

MARGIN = 10.0  # seconds after a node's own limit until worker-0 does without its answer


@dataclass(frozen=True)
class CheckOptions:
    """What the command line asks of a check."""

    limit: float  # seconds for the answer of each program that is asked
    spec_file: str = ""
    json: bool = False
    strict: bool = False  # warnings count
    width: int = 140  # characters in a line of the table


def inquiry(options: CheckOptions) -> Inquiry:
    """Return what `check --all` asks: one question to all nodes, whether or not the roll call
    brings them together."""
    return Inquiry("check", partial(CheckDialogue, options), options, always=True)


class CheckDialogue:
    """The check of all nodes (a Dialogue of job/inquiry.py): each one runs its probes, then all
    results are judged."""

    def __init__(
        self, options: CheckOptions, plan: Plan, reports: Mapping[int, NodeReport]
    ) -> None:
        self._options = options
        self._plan = plan
        self._reports = reports
        self._observed: dict[int, Observation] = {}

    def begin(self, now: float) -> list[Ask]:
        """Ask every node for the results of its probes."""
        return [Ask(node, {}, self._options.limit + MARGIN) for node in self._reports]

    def take(self, node: int, body: Mapping[str, Any], now: float) -> list[Ask]:
        """Keep a node's results. Raises Invalid if they are none."""
        self._observed[node] = read(Observation, body, "reply.body")
        return []

    def lose(self, node: int, why: str, has_left: bool, now: float) -> list[Ask]:
        """Do without a node: the table says that it has not answered."""
        return []

    def conclude(self, failed: Outcome | None) -> Conclusion:
        """Judge what has come. `failed`: why the roll call did not bring all nodes together."""
        return report(self._options, self._plan, self._observed, self._reports, failed)


def report(
    options: CheckOptions,
    plan: Plan,
    observed: Mapping[int, Observation],
    reports: Mapping[int, NodeReport],
    failed: Outcome | None = None,
) -> Conclusion:
    """The table, or JSON, of the nodes that have answered (`reports`) and said what they see
    (`observed`), by rank.

    `failed`: why the roll call did not bring them all together; the check ends with it then.
    """
    topology = plan.topology
    findings = list(_roll_call(plan, observed, reports, failed))
    for rank, observation in sorted(observed.items()):
        findings += node.judge(observation, plan, rank)
    findings += nodes.differences(observed, reports, plan)
    lines = sort(findings)
    exit_status = status(lines, options.strict)
    reason = f"check of {count(len(observed), 'node')}: {summary(lines)}"
    ended = failed or (
        Outcome(exit_status, f"EP010 {reason}") if exit_status else Outcome(0, reason)
    )
    if options.json:
        by_label = {topology.nodes[rank].label: observed[rank] for rank in sorted(observed)}
        return Conclusion(ended, as_json(lines, by_label, ended))
    nodes_of_job = len(topology.nodes)
    head = (
        f"job {topology.job}: {count(nodes_of_job, 'node')}, {count(plan.ranks, 'rank')}, launcher"
        f" {plan.launcher}"
    )
    if len(observed) < nodes_of_job:
        labels = some((topology.nodes[rank].label for rank in sorted(observed)), 8)
        head += f"; looked at: {labels or 'none'}"
    return Conclusion(ended, text(together(lines), len(observed), options.width, head))


def _roll_call(
    plan: Plan,
    observed: Mapping[int, Observation],
    reports: Mapping[int, NodeReport],
    failed: Outcome | None,
) -> Iterator[Finding]:
    """Why nodes are not in the table, or cannot take part."""
    if failed:
        what, detail, fix = message_parts(failed.reason)
        yield Finding("error", "roll-call", what, detail, "", fix)
    for member in plan.topology.nodes if len(reports) > 1 and not failed else ():
        if member.rank not in reports:  # of an elastic job
            absent = f"{member.name} is not there"
            yield Finding("warning", "missing", "node", absent, "", "see its log", (member.label,))
    for rank, answer in sorted(reports.items()):
        label = (plan.topology.nodes[rank].label,)
        if rank not in observed:
            fix = "see its log; a program or a file system may hang there"
            what = "this node's look at itself"
            yield Finding("error", "no-answer", what, "no answer", "an answer", fix, label)
        if answer.not_ready and not failed:
            refused = observed[rank].refused if rank in observed else ()
            if answer.not_ready.reason not in {refusal.reason for refusal in refused}:
                what, detail, fix = message_parts(answer.not_ready.reason)
                yield Finding("error", "not-ready", what, detail, "", fix, label)
