"""Worker-0's part of the network check: the nodes meet here.

It tells the pairs of each round to measure, and gathers what they saw.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Mapping
from typing import Any

from entrypoint.netcheck import measure
from entrypoint.netcheck import sweep as netsweep
from entrypoint.netcheck.link import HANDSHAKE, Deadline, Listener, PeerLink, listen
from entrypoint.netcheck.messages import (
    Arrival,
    Figures,
    Leave,
    MeasurePair,
    Reduce,
    SweepEnd,
    SweepPort,
    Unmeasured,
)
from entrypoint.netcheck.pairs import MOST_NODES, Pair, chosen, rounds
from entrypoint.netcheck.result import Measured, NetcheckResult, Reduced, bus_bandwidth
from entrypoint.text import escaped, one_line, some
from entrypoint.wire import Invalid

_TEXT = 300  # characters of an error
_STRANGERS = 64  # that are named


class Coordinator:
    """The nodes that came, each over a link of its own."""

    def __init__(self, settings: Mapping[str, Any], token: bytes) -> None:
        """Raises OSError where its port is taken."""
        self._settings = settings
        self._names: list[str] = [label for label, _ in settings["nodes"]]
        self._links: dict[int, PeerLink] = {}
        self._hello: dict[int, Arrival] = {}
        self._gone: dict[int, str] = {}  # node -> why nothing more is asked of it
        self._invalid: dict[int, str] = {}  # node -> what was wrong with a message of its own
        self._strangers: dict[str, None] = {}
        self._came = threading.Condition()
        self._open = True
        self._listener = Listener(listen(settings["port"]), token, self._welcome, self._note_stranger)

    # -- who comes

    def _welcome(self, link: PeerLink) -> None:
        try:
            hello: Arrival = link.receive(HANDSHAKE, Arrival)
            with self._came:
                if hello.rank in self._links:  # one of them speaks for another
                    self._invalid[hello.rank] = "two came under its number"
                elif self._open and hello.rank < len(self._names):
                    self._links[hello.rank], self._hello[hello.rank] = link, hello
                    self._came.notify_all()
                    return
        except (OSError, Invalid):
            pass
        link.close()

    def _note_stranger(self, address: str, where: int = 0) -> None:
        if len(self._strangers) < _STRANGERS:
            self._strangers[f"{address} on {self._names[where]}"] = None

    def _await_all(self) -> None:
        until, nodes = Deadline(self._settings["meet"]), range(len(self._names))
        with self._came:
            self._came.wait_for(lambda: len(self._links) == len(nodes), until.left)
            self._open = False
        why = f"it did not come to the check within {self._settings['meet']:g}s"
        self._gone.update({node: why for node in nodes if node not in self._links})

    # -- what they do

    def run(self) -> NetcheckResult:
        """All of it: every wait has an end."""
        self._await_all()
        nodes, until = len(self._names), Deadline(self._settings["limit"])
        every, pairs = chosen(nodes), list[Measured]()
        for each in every:
            if not until.left:
                break
            pairs += self._round(each)
        left = sum(map(len, rounds(nodes))) - len(pairs)
        why = f"netcheck.limit, {self._settings['limit']:g}s, was over"
        if len(pairs) == sum(map(len, every)):
            why = f"of more than {MOST_NODES} nodes a sample is, {len(every)} peers of each"
        sweep = self._sweep()
        for node in self._links:
            self._ask(node, Leave())
        return NetcheckResult(
            nodes=tuple((label, host) for label, host in self._settings["nodes"]),
            pairs=tuple(pairs),
            left_out=left,
            why_left_out=why if left else "",
            backend=sweep.backend,
            reduced=tuple(Reduced(size, seconds, bus_bandwidth(size, seconds, nodes)) for size, seconds in sweep.rows),
            no_sweep=sweep.why,
            rejected=tuple(self._strangers),
            invalid=tuple(sorted(self._invalid.items())),
        )

    def _round(self, pairs: list[Pair]) -> list[Measured]:
        """Pairs that measure at the same time."""
        asked, seconds = [], self._settings["seconds"]
        for a, b in pairs:
            if a in self._gone or b in self._gone:
                continue
            if self._ask(a, MeasurePair(b, self._address(b), self._hello[b].port, seconds)):
                asked.append((a, b))
        until = Deadline(measure.limit(seconds) + HANDSHAKE)
        saw = {(a, b): self._answer(a, until, Figures, Unmeasured) for a, b in asked}
        return [self._measured(a, b, saw.get((a, b))) for a, b in pairs]

    def _measured(self, a: int, b: int, saw: Figures | Unmeasured | None) -> Measured:
        if isinstance(saw, Figures):
            return Measured(a, b, saw.latency_ms, saw.worst_ms, saw.there_gbps, saw.back_gbps)
        why = saw.why if saw else next((self._gone[node] for node in (b, a) if node in self._gone), "no answer")
        return Measured(a, b, error=one_line(why or "no answer", _TEXT))

    def _address(self, node: int) -> str:
        """Where others reach it: on the interface that was asked for, else where the roll call did."""
        host: str = self._hello[node].address if node in self._hello else ""
        return host or self._settings["addresses"][node] or self._settings["nodes"][node][1]

    def _sweep(self) -> SweepEnd:
        """The all-reduce of all nodes together, where all can."""
        if self._gone:
            names = ", ".join(self._names[node] for node in sorted(self._gone))
            return SweepEnd("", (), f"{names} cannot take part", ())
        if without := [self._names[node] for node, hello in sorted(self._hello.items()) if not hello.torch]:
            return SweepEnd("", (), f"there is no torch on {some(without, 4)}", ())
        nodes = range(len(self._names))
        self._ask(0, Reduce(len(nodes), "localhost", 0))
        begun = self._answer(0, Deadline(netsweep.LIMIT), SweepPort)
        port = begun.port if begun else 0
        if port:
            host = self._hello[0].address or self._settings["leader"]
            for node in nodes[1:]:
                self._ask(node, Reduce(len(nodes), host, port))
        until = Deadline(netsweep.LIMIT + HANDSHAKE)
        nothing = SweepEnd("", (), "no answer", ())
        ends = [self._answer(node, until, SweepEnd) or nothing for node in (nodes if port else nodes[:1])]
        failed = [f"{self._names[node]}: {end.why}" for node, end in enumerate(ends) if end.why]
        return SweepEnd(ends[0].backend, ends[0].rows, one_line((failed or [""])[0], _TEXT), ())

    # -- talk

    def _ask(self, node: int, order: MeasurePair | Reduce | Leave) -> bool:
        """Whether the order is on its way."""
        if node in self._gone:
            return False
        try:
            self._links[node].send(order, HANDSHAKE)
        except OSError as error:
            self._gone[node] = f"{self._names[node]} is gone: {error}"
        return node not in self._gone

    def _answer(self, node: int, until: Deadline, *kinds: type) -> Any:
        """What it says; None where it says nothing valid in time, and nothing more is asked of it."""
        if node in self._gone:
            return None
        try:
            said = self._links[node].receive(max(until.left, 0.1), *kinds)
        except Invalid as error:
            self._invalid[node] = str(error)
            self._gone[node] = f"{self._names[node]} sent an invalid message: {error}"
            return None
        except OSError as error:
            self._gone[node] = f"{self._names[node]} does not answer: {error}"
            return None
        for stranger in getattr(said, "strangers", ()):
            self._note_stranger(stranger, node)
        return said

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.close()
        for each in self._links.values():
            with contextlib.suppress(OSError):
                each.close()


def log(text: str) -> None:
    """A line for people, on stderr."""
    print(f"netcheck: {escaped(text)}", file=sys.stderr, flush=True)
