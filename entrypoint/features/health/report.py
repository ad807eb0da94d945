"""The findings of a check: one line for each thing that was probed, the exit status of them all,
and the table or JSON that shows them."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import zip_longest
from typing import Any

from entrypoint.base.errors import ConfigError, message_parts
from entrypoint.base.model import Facts, Finding, Inquiry, NodeReport, Outcome, Plan
from entrypoint.base.text import columns, count, some
from entrypoint.base.values import dataclass, field, frozen, replace
from entrypoint.base.wire import to_json
from entrypoint.features.health import probes
from entrypoint.features.health.probe import Inputs, NodeView
from entrypoint.features.health.probes.image import Refused
from entrypoint.job.inquiry import Answers, Ask, Conclusion
from entrypoint.spec import JobSpec

MARGIN = 10.0  # seconds after a node's own limit until worker-0 does without its answer
ORDER = ("error", "warning", "ok")
_ALIKE = 8  # lines on one matter that the table shows
_HEAD = ("", "node", "what", "seen", "needed", "fix")
# characters of each column; the last ones give way on a narrow terminal
_WIDEST = (7, 30, 30, 70, 34, 70)
_LEAST = 16
_SHOWN = 3  # nodes named in a cell


@frozen
class CheckOptions:
    """The options of a check from the command line."""

    limit: float  # seconds for the answer of each program that is asked
    spec_file: str = ""
    json: bool = False
    strict: bool = False  # warnings count
    width: int = 140  # characters in a line of the table


def inquiry(spec: JobSpec, options: CheckOptions) -> Inquiry:
    """Return what `check --all` asks: one question to all nodes, whether or not the roll call
    brings them together."""

    def answers(facts: Facts, plan: Plan, env: Mapping[str, str]) -> CheckAnswers:
        return CheckAnswers(Inputs(spec, facts, plan, options.limit, options.spec_file))

    return Inquiry("check", partial(CheckDialogue, options), answers, always=True)


@dataclass
class CheckAnswers(Answers):
    """A node's side of the check: it answers the one question."""

    inputs: Inputs

    async def answer(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the results of its probes."""
        return await probes.observe(self.inputs)


@dataclass
class CheckDialogue:
    """The check of all nodes (a Dialogue of job/inquiry.py): each one runs its probes, then all
    results are judged. `reports`: of the nodes that have answered the roll call; `results`: what
    their probes have found; both by rank."""

    options: CheckOptions
    plan: Plan
    reports: Mapping[int, NodeReport]
    results: dict[int, probes.Results] = field(default_factory=dict)

    def begin(self, now: float) -> list[Ask]:
        """Ask every node for the results of its probes."""
        return [Ask(node, {}, self.options.limit + MARGIN) for node in self.reports]

    def take(self, node: int, body: Mapping[str, Any], now: float) -> list[Ask]:
        """Keep a node's results. Raises Invalid if they are none."""
        self.results[node] = probes.results(body)
        return []

    def lose(self, node: int, why: str, has_left: bool, now: float) -> list[Ask]:
        """Do without a node: the table says that it has not answered."""
        return []

    def conclude(self, failed: Outcome | None) -> Conclusion:
        """Return the table, or JSON, of the nodes that have said what they see. `failed`: why the
        roll call did not bring them all together; the check ends with it then."""
        plan, options = self.plan, self.options
        views = [
            NodeView(plan, node, self.reports.get(node.rank), self.results.get(node.rank, {}))
            for node in plan.topology.nodes
            if node.rank in {**self.reports, **self.results}
        ]
        observed = {
            view.node.label: dict(
                field for result in view.results.values() for field in vars(result).items()
            )
            for view in views
            if view.results
        }
        lines = sort([*self._absent(failed), *probes.findings(views)])
        exit_status = status(lines, options.strict)
        reason = f"check of {count(len(observed), 'node')}: {summary(lines)}"
        ended = failed or (
            Outcome(exit_status, f"EP010 {reason}") if exit_status else Outcome(0, reason)
        )
        if options.json:
            whole = {"status": ended.status, "reason": ended.reason}
            whole |= {"findings": lines, "observed": observed}
            return Conclusion(ended, to_json(whole, indent=2) + "\n")
        nodes_of_job = len(plan.topology.nodes)
        head = (
            f"job {plan.topology.job}: {count(nodes_of_job, 'node')}, {count(plan.ranks, 'rank')},"
            f" launcher {plan.launcher}"
        )
        if len(observed) < nodes_of_job:
            head += f"; looked at: {some(observed, 8) or 'none'}"
        return Conclusion(ended, text(together(lines), len(observed), options.width, head))

    def _absent(self, failed: Outcome | None) -> Iterator[Finding]:
        """Yield why nodes are not in the table, or cannot take part."""
        see = "see its log"
        if failed:
            what, detail, fix = message_parts(failed.reason)
            yield Finding("error", "roll-call", what, detail, "", fix)
        for node in self.plan.topology.nodes if len(self.reports) > 1 and not failed else ():
            if node.rank not in self.reports:  # of an elastic job
                seen = f"{node.name} is not there"
                yield Finding("warning", "missing", "node", seen, "", see, (node.label,))
        for rank, answer in sorted(self.reports.items()):
            label = (self.plan.topology.nodes[rank].label,)
            result = self.results.get(rank)
            if result is None:
                what, seen, needed = "the probes of this node", "no answer", "an answer"
                fix = f"{see}; a program or a file system may hang there"
                yield Finding("error", "no-answer", what, seen, needed, fix, label)
            if answer.not_ready and not failed:
                known = vars(result[Refused])["refused"] if result else ()
                if answer.not_ready.reason not in {refusal.reason for refusal in known}:
                    what, detail, fix = message_parts(answer.not_ready.reason)
                    yield Finding("error", "not-ready", what, detail, "", fix, label)


# --------------------------------------------------------------------------------------------------
# Lines


def sort(findings: Iterable[Finding]) -> list[Finding]:
    """Worst first, then as they were probed; one line for the same on several nodes; no fix for
    what is well."""
    same: dict[Finding, list[str]] = {}
    for line in findings:
        fix = "" if line.level == "ok" else line.fix
        same.setdefault(replace(line, nodes=(), fix=fix), []).extend(line.nodes)
    lines = [replace(line, nodes=tuple(dict.fromkeys(nodes))) for line, nodes in same.items()]
    return sorted(lines, key=lambda line: ORDER.index(line.level))


def together(lines: Sequence[Finding]) -> list[Finding]:
    """The same lines, but few: what is well on several nodes is one, and of many alike the first
    are shown."""
    alike: dict[tuple[str, str, str], list[Finding]] = {}
    for line in lines:
        what = line.what if line.level == "ok" else ""
        alike.setdefault((line.level, line.id, what), []).append(line)
    shown = []
    for same in alike.values():
        most = 1 if same[0].level == "ok" else _ALIKE
        first, more = same[:most], same[most:]
        if more and most == 1:
            seen = f"{first[0].seen}, and others like it ({len(more)})"
            first = [replace(first[0], seen=seen, nodes=_nodes(same))]
        elif more:
            seen = f"and {len(more)} more like these; --json has them all"
            first.append(replace(more[0], seen=seen, needed="", fix="", nodes=_nodes(more)))
        shown += first
    return shown


def _nodes(findings: Iterable[Finding]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(node for line in findings for node in line.nodes))


def status(findings: Iterable[Finding], strict: bool = False) -> int:
    """0, or 78 where the job would fail; `strict`: also where there is a warning."""
    bad = ORDER[: 1 + strict]
    return ConfigError.status if any(line.level in bad for line in findings) else 0


def summary(findings: Iterable[Finding]) -> str:
    """Such as `2 errors, 1 warning`."""
    levels = [line.level for line in findings]
    found = [count(levels.count(level), level) for level in ORDER[:2] if level in levels]
    return ", ".join(found) or "nothing is wrong"


def text(lines: Sequence[Finding], nodes: int, width: int, head: str) -> str:
    """The table of so many nodes under its `head`, in lines of at most `width` characters where
    that is possible."""
    rows = [_HEAD]
    for line in lines:
        who = "all" if len(line.nodes) == nodes else some(line.nodes, _SHOWN)
        rows.append((line.level, who, line.what, line.seen, line.needed, line.fix))
    table = list(zip(_WIDEST, zip(*rows, strict=True), strict=True))
    if nodes == 1:
        del table[1]
    widths = [min(widest, max(map(len, column))) for widest, column in table]
    while sum(widths) + 2 * (len(widths) - 1) > width and max(widths) > _LEAST:
        widths[widths.index(max(widths))] -= 1
    wrapped: list[tuple[str, ...]] = []
    for row in zip(*(column for _, column in table), strict=True):
        folded = map(textwrap.wrap, row, widths)
        wrapped += zip_longest(*(lines or [""] for lines in folded), fillvalue="")
    return "\n".join([head, "", *columns(wrapped), "", summary(lines), ""])
