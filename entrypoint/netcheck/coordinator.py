"""The network check as worker-0 holds it: all nodes get ready, pairs measure round by round, then
all of them reduce.

A Dialogue of job/inquiry.py: it asks and judges, and neither waits nor connects.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from entrypoint import interfaces
from entrypoint.errors import RetryError
from entrypoint.job.inquiry import Ask, Conclusion
from entrypoint.model import NodeReport, Outcome, Topology
from entrypoint.netcheck import messages
from entrypoint.netcheck.analysis import findings, summary
from entrypoint.netcheck.inquiry import How
from entrypoint.netcheck.page import page
from entrypoint.netcheck.pairs import MOST_NODES, Pair, chosen
from entrypoint.netcheck.result import (
    Measured,
    NetcheckResult,
    Reduced,
    as_json,
    bus_bandwidth,
)
from entrypoint.netcheck.table import text
from entrypoint.spec import JobSpec
from entrypoint.text import count, json_document, one_line, some

_TEXT = 300  # characters of an error
_MOST_REJECTED = 64  # that are named


class Coordinator:
    """One network check of the nodes that have answered the roll call."""

    def __init__(
        self, spec: JobSpec, how: How, topology: Topology, reports: Mapping[int, NodeReport]
    ) -> None:
        self._spec = spec
        self._how = how
        self._topology = topology
        self._reports = reports
        self._names = [node.label for node in topology.nodes]
        self._script = self._steps()
        self._now = 0.0
        # The question that a node has not answered, and the peer that it measures with.
        self._asked: dict[int, Any] = {}
        self._peer: dict[int, int] = {}
        self._ports: dict[int, int] = {}
        # Nodes that are asked nothing more, and why; and those of them that have left the job.
        self._silent: dict[int, str] = {}
        self._left: set[int] = set()
        self._pairs: list[Measured] = []
        self._why_left_out = ""
        self._rejected: dict[str, None] = {}
        self._port = 0  # where the first node of the all-reduce waits
        self._ends: dict[int, messages.SweepEnd] = {}
        self._no_sweep = ""

    # -- the dialogue

    def begin(self, now: float) -> list[Ask]:
        """Have all nodes get ready. One node alone has nothing to measure."""
        return self._go_on(now) if len(self._reports) > 1 else []

    def take(self, node: int, body: Mapping[str, Any], now: float) -> list[Ask]:
        """Keep what a node has measured. Raises Invalid if it answers what no node does."""
        question = self._asked[node]
        answer = messages.unpacked(body, messages.ANSWERS[type(question)], messages.Unable)
        del self._asked[node]
        for address in getattr(answer, "rejected", ()):
            if len(self._rejected) < _MOST_REJECTED:
                self._rejected[f"{address} on {self._names[node]}"] = None
        self._note(node, question, answer)
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
        self._fault(node, self._asked.pop(node), why)
        return self._go_on(now)

    def conclude(self, failed: Outcome | None) -> Conclusion:
        """Judge what was measured."""
        if len(self._reports) < 2:
            return Conclusion(
                None, lines=("netcheck: this node is alone, and there is no network to measure",)
            )
        result = self._result()
        problems = findings(result, self._spec.netcheck)
        document, table = json_document(as_json(result, problems)), text(result, problems)
        files = (
            ("netcheck.html", page(result, problems, self._topology.job)),
            ("netcheck.json", document),
        )
        outcome = None
        if reason := summary(problems):
            hint = "start the job on other nodes, or see netcheck.html"
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
        while not self._asked:
            questions = next(self._script, None)
            if questions is None:
                return []
            self._asked = dict(questions)
            if questions:
                return [
                    Ask(node, messages.packed(question), self._limit(question))
                    for node, question in questions
                ]
        return []

    def _limit(self, question: Any) -> float:
        if isinstance(question, messages.Open):
            return self._spec.timeouts.launch
        if isinstance(question, messages.MeasurePair):
            return messages.pair_limit(question.seconds)
        return messages.HANDSHAKE + messages.SWEEP_LIMIT

    def _steps(self) -> Iterator[list[tuple[int, Any]]]:
        """Yield questions to nodes, each time that all earlier ones are answered."""
        nodes, limit = sorted(self._reports), self._spec.netcheck.limit
        yield [(node, messages.Open()) for node in nodes]
        rounds, until = chosen(len(nodes)), self._now + limit
        if len(nodes) > MOST_NODES:
            self._why_left_out = (
                f"of more than {MOST_NODES} nodes a sample is, {len(rounds)} peers of each"
            )
        for pairs in rounds:
            if self._now >= until:
                self._why_left_out = f"netcheck.limit, {limit:g}s, was over"
                break
            yield list(self._round((nodes[a], nodes[b]) for a, b in pairs))
        nodes, failed = self._present, sorted(set(self._silent) - self._left)
        if failed or len(nodes) < 2:
            self._no_sweep = (
                f"{some((self._names[node] for node in failed), 4) or 'one node alone'} cannot take"
                " part"
            )
            return
        yield [(nodes[0], messages.ServeReduce(len(nodes)))]
        if self._port and nodes == self._present:
            where = self._address(nodes[0])
            yield [
                (node, messages.Reduce(rank, len(nodes), where, self._port))
                for rank, node in enumerate(nodes)
            ]

    def _round(self, pairs: Iterable[Pair]) -> Iterator[tuple[int, messages.MeasurePair]]:
        for a, b in pairs:
            if why := next((self._silent[node] for node in (b, a) if node in self._silent), ""):
                self._fail(a, b, why)
                continue
            self._peer[a] = b
            yield (
                a,
                messages.MeasurePair(self._address(b), self._ports[b], self._spec.netcheck.seconds),
            )

    def _address(self, node: int) -> str:
        """Return where others reach it: on the interface that was asked for, else where the roll
        call did."""
        report = self._reports[node]
        if self._spec.network.interface != interfaces.AUTO and report.interface:
            return report.interface.address
        return report.address or self._topology.nodes[node].where

    # -- what is answered

    def _note(self, node: int, question: Any, answer: Any) -> None:
        match answer:
            case messages.Ready() if isinstance(question, messages.Open):
                self._ports[node] = answer.port
            case messages.Ready():
                self._port = answer.port
            case messages.Figures():
                a, b = node, self._peer[node]
                rates = answer.there_gbps, answer.back_gbps
                self._pairs.append(Measured(a, b, answer.latency_ms, answer.worst_ms, *rates))
            case messages.SweepEnd():
                self._ends[node] = answer
                self._no_sweep = self._no_sweep or (
                    answer.why and f"{self._names[node]}: {answer.why}"
                )
            case messages.Unable():
                self._fault(node, question, answer.why)

    def _fault(self, node: int, question: Any, why: str) -> None:
        """A question was not answered well."""
        if isinstance(question, messages.MeasurePair):
            self._fail(node, self._peer[node], why)
        elif isinstance(question, messages.Open):
            self._silent.setdefault(node, f"{self._names[node]} cannot take part: {why}")
        elif node not in self._left:
            self._no_sweep = self._no_sweep or f"{self._names[node]}: {why}"

    def _fail(self, a: int, b: int, why: str) -> None:
        self._pairs.append(Measured(a, b, error=one_line(why or "no answer", _TEXT)))

    # -- what comes of it

    @property
    def _present(self) -> list[int]:
        """The nodes that take part and have not left the job."""
        return sorted(set(self._reports) - self._left)

    def _result(self) -> NetcheckResult:
        nodes = self._present
        pairs = tuple(pair for pair in self._pairs if not self._left & {pair.a, pair.b})
        left_out = len(nodes) * (len(nodes) - 1) // 2 - len(pairs)
        first = self._ends.get(nodes[0]) or messages.SweepEnd("", (), "", ())
        return NetcheckResult(
            nodes=tuple((node.label, node.host) for node in self._topology.nodes),
            absent=tuple(sorted(set(range(len(self._names))) - set(nodes))),
            pairs=pairs,
            left_out=left_out,
            why_left_out=self._why_left_out if left_out else "",
            backend=first.backend,
            reduced=tuple(
                Reduced(size, took, bus_bandwidth(size, took, len(nodes)))
                for size, took in first.rows
            ),
            no_sweep=one_line(self._no_sweep or ("" if first.rows else "a node has left"), _TEXT),
            rejected=tuple(self._rejected),
        )
