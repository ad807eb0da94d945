"""The network check as worker-0 holds it: all nodes start torch, pairs reduce round by round, then
all of them together. The pairs of a round share no node, and so do not disturb each other.

A Dialogue of job/inquiry.py: it asks and judges, and neither waits nor connects.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from entrypoint.base.errors import ConfigError, RetryError
from entrypoint.base.model import Inquiry, NodeReport, Outcome, Topology
from entrypoint.base.text import count, json_document, one_line
from entrypoint.base.values import dataclass
from entrypoint.features.netcheck import messages
from entrypoint.features.netcheck.analysis import findings, summary
from entrypoint.features.netcheck.result import Measured, NetcheckResult, Together, as_json, text
from entrypoint.job.inquiry import Ask, Conclusion
from entrypoint.spec import JobSpec

Group = tuple[int, ...]  # nodes that reduce together, the first of which has the store

_MOST_NODES = 32  # up to this number of nodes every pair is measured
_SAMPLED = 16  # rounds for more nodes, so each node measures with this many peers


def chosen(nodes: int) -> list[list[tuple[int, int]]]:
    """Return the rounds of pairs to measure: every pair once, in the fewest rounds; or for many
    nodes a sample in which all nodes have equally many peers."""
    needed = nodes - 1 + nodes % 2  # until every pair has met
    if nodes <= _MOST_NODES:
        return [_round(nodes, number) for number in range(needed)]
    return [_round(nodes, number * needed // _SAMPLED) for number in range(_SAMPLED)]


def _round(nodes: int, number: int) -> list[tuple[int, int]]:
    """Return the pairs of one round of a round-robin tournament (the circle method): the first
    player stays, and the others move on by one place each round."""
    others = [*range(1, nodes), *([-1] if nodes % 2 else [])]  # the opponent of -1 rests
    start = len(others) - number
    players = [0, *others[start:], *others[:start]]
    half = len(players) // 2
    pairs = zip(players[:half], reversed(players[half:]), strict=True)
    return sorted((min(pair), max(pair)) for pair in pairs if -1 not in pair)


def inquiry(spec: JobSpec, how: messages.How) -> Inquiry:
    """Return the network check, instead of the job or before it."""

    def answers(*node: Any) -> Any:
        from entrypoint.features.netcheck.process import TorchProcess  # a job that runs needs none

        return TorchProcess(spec, *node)

    return Inquiry(
        "netcheck",
        lambda plan, reports: Coordinator(spec, how, plan.topology, reports),
        answers,
        instead=how != "before",
    )


@dataclass
class Coordinator:
    """One network check of the nodes that have answered the roll call."""

    _spec: JobSpec
    _how: messages.How
    _topology: Topology
    _reports: Mapping[int, NodeReport]

    def __post_init__(self) -> None:
        self._names = [node.label for node in self._topology.nodes]
        self._script = self._steps()
        self._now = 0.0
        # The question that a node has not answered, and the group that it is about.
        self._asked: dict[int, Any] = {}
        self._group: dict[int, Group] = {}
        self._ports: dict[int, int] = {}
        self._backends: dict[int, str] = {}
        # Nodes where torch does not start; nodes that are asked nothing more; why. Those of the
        # latter that have left the job.
        self._unable: dict[int, str] = {}
        self._silent: dict[int, str] = {}
        self._left: set[int] = set()
        self._figures: dict[Group, list[messages.Figures]] = {}
        self._errors: dict[Group, str] = {}
        self._why_left_out = ""

    # -- the dialogue

    def begin(self, now: float) -> list[Ask]:
        """Have all nodes start torch. One node alone has nothing to measure."""
        return self._go_on(now) if len(self._reports) > 1 else []

    def take(self, node: int, body: Mapping[str, Any], now: float) -> list[Ask]:
        """Keep what a node has measured. Raises Invalid if it answers what no node does."""
        question = self._asked[node]
        answer = messages.unpacked(body, messages.ANSWERS[type(question)], messages.Unable)
        del self._asked[node]
        match answer:
            case messages.Ready():
                self._backends[node] = answer.backend
            case messages.Serving():
                self._ports[node] = answer.port
            case messages.Figures():
                self._figures.setdefault(self._group[node], []).append(answer)
            case messages.Unable() if isinstance(question, messages.Open):
                self._unable[node] = answer.why
                self._silent.setdefault(node, f"{self._names[node]}: {answer.why}")
            case messages.Unable():
                self._fail(self._group[node], f"{self._names[node]}: {answer.why}")
        return self._go_on(now)

    def lose(self, node: int, why: str, has_left: bool, now: float) -> list[Ask]:
        """Go on without a node. If it has left the job, its pairs do not count; else they have
        failed."""
        why = f"{self._names[node]} does not answer: {why}"
        if has_left:
            self._left.add(node)
        self._silent.setdefault(node, why)
        if node not in self._asked:
            return []
        if not isinstance(self._asked.pop(node), messages.Open):
            self._fail(self._group[node], why)
        return self._go_on(now)

    def conclude(self, failed: Outcome | None) -> Conclusion:
        """Judge what was measured."""
        if len(self._reports) < 2:
            return Conclusion(
                None, lines=("netcheck: this node is alone, and there is no network to measure",)
            )
        if self._unable.keys() >= set(self._present):
            reason = f"on no node: {self._unable[min(self._unable)]}"
            hint = "use an image with torch, or remove netcheck.when"
            error = ConfigError("EP012 the network cannot be measured", reason, hint)
            return Conclusion(error.outcome)
        result = self._result()
        problems = findings(result, self._spec.netcheck)
        document, table = json_document(as_json(result, problems)), text(result, problems)
        files = (("netcheck.json", document),)
        outcome = None
        if reason := summary(problems):
            hint = "start the job on other nodes, or see netcheck.json"
            outcome = RetryError("EP013 the network is not fit for this job", reason, hint).outcome
        if self._how == "before":
            # worker-0 has no spare
            unfit = tuple(
                (problem.nodes[0], problem.text)
                for problem in problems
                if problem.fails and len(problem.nodes) == 1 and problem.nodes[0]
            )
            lines = tuple(filter(None, table.split("\n")))
            return Conclusion(outcome, lines=lines, files=files, unfit=unfit)
        message = f"the network between {count(len(self._reports), 'node')} is measured"
        done = Outcome(0, message)
        return Conclusion(outcome or done, document if self._how == "json" else table, files=files)

    # -- what is asked

    def _go_on(self, now: float) -> list[Ask]:
        """Return the next questions, once all are answered."""
        self._now = now
        own = self._spec.timeouts.launch
        more = messages.PATIENCE  # than the seconds after which the node itself gives torch up
        for questions in () if self._asked else self._script:
            self._asked = dict(questions)
            if questions:
                return [
                    Ask(node, messages.packed(question), messages.limit(question, own) + more)
                    for node, question in questions
                ]
        return []

    def _steps(self) -> Iterator[list[tuple[int, Any]]]:
        """Yield questions to nodes, each time that all earlier ones are answered."""
        nodes, limit = sorted(self._reports), self._spec.netcheck.limit
        yield [
            (node, messages.Open(interface.name if interface else ""))
            for node in nodes
            for interface in (self._reports[node].interface,)
        ]
        rounds, until = chosen(len(nodes)), self._now + limit
        if len(nodes) > _MOST_NODES:
            self._why_left_out = (
                f"of more than {_MOST_NODES} nodes a sample is, {len(rounds)} peers of each"
            )
        for pairs in rounds:
            if self._now >= until:
                self._why_left_out = f"the time for all pairs, {limit:g}s, was over"
                break
            yield from self._reduce([(nodes[a], nodes[b]) for a, b in pairs])
        if len(self._present) > 2:
            yield from self._reduce([tuple(self._present)])

    def _reduce(self, groups: Sequence[Group]) -> Iterator[list[tuple[int, Any]]]:
        """Have each of these groups, which share no node, reduce at the same time."""
        groups = self._able(groups)
        self._ports.clear()
        self._group = {node: group for group in groups for node in group}
        yield [(group[0], messages.Serve()) for group in groups]
        yield [
            (node, self._question(group, rank))
            for group in self._able(groups)
            for rank, node in enumerate(group)
        ]

    def _able(self, groups: Sequence[Group]) -> list[Group]:
        """Return the groups that have not failed; one does if a node of it is silent."""
        for group in groups:
            for node in group:
                if node in self._silent:
                    self._fail(group, self._silent[node])
        return [group for group in groups if group not in self._errors]

    def _question(self, group: Group, rank: int) -> messages.Reduce:
        backends = set(self._backends.values())
        backend = backends.pop() if len(backends) == 1 else "gloo"  # all must have the same
        first = group[0]
        where, port = self._address(first), self._ports[first]
        seconds = self._spec.netcheck.seconds
        return messages.Reduce(rank, len(group), where, port, backend, seconds)

    def _address(self, node: int) -> str:
        """Return where others reach it: on the interface that was asked for, else where the roll
        call did."""
        report = self._reports[node]
        if self._spec.network.asked and report.interface:
            return report.interface.address
        return report.address or self._topology.nodes[node].where

    def _fail(self, group: Group, why: str) -> None:
        """Keep the first reason why a group could not reduce."""
        self._errors.setdefault(group, one_line(why, messages.WHY))

    # -- what comes of it

    @property
    def _present(self) -> list[int]:
        """The nodes that take part and have not left the job."""
        return sorted(set(self._reports) - self._left)

    def _result(self) -> NetcheckResult:
        nodes = self._present
        groups = [group for group in {**self._figures, **self._errors} if len(group) == 2]
        pairs = tuple(
            Measured(*group, **self._worst(group))
            for group in groups
            if not self._left.intersection(group)
        )
        together = self._worst(tuple(nodes))
        together.pop("worst_ms", None)
        left_out = len(nodes) * (len(nodes) - 1) // 2 - len(pairs)
        return NetcheckResult(
            nodes=tuple((node.label, node.host) for node in self._topology.nodes),
            pairs=pairs,
            together=Together(**together),
            backend=min(self._backends.values(), default=""),
            left_out=left_out,
            why_left_out=self._why_left_out if left_out else "",
            absent=tuple(sorted(set(range(len(self._names))) - set(nodes))),
        )

    def _worst(self, group: Group) -> dict[str, Any]:
        """Return the worst that a node of the group has measured, or why there is nothing."""
        figures = self._figures.get(group)
        if group in self._errors or not figures:
            return {"error": self._errors.get(group, "a node has left")}
        return {
            "latency_ms": max(each.latency_ms for each in figures),
            "worst_ms": max(each.worst_ms for each in figures),
            "gbps": min(each.gbps for each in figures),
        }
