"""Worker-0's part of the network check: the nodes meet here.

It tells the pairs of each round to measure, and gathers what they saw.
"""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
from collections.abc import Mapping
from typing import Any

from entrypoint.job.messages import one_line
from entrypoint.netcheck.pairs import MOST_NODES, Pair, chosen, rounds
from entrypoint.netcheck.result import Measured, Reduced, Result, bus_bandwidth
from entrypoint.programs import netpair, netsweep
from entrypoint.programs.netlink import HANDSHAKE, Deadline, Stranger, admit, listen, receive, send, serve

_LARGEST, _TEXT = 1e9, 300  # figures and characters of a text that a node may say
_MOST_AT_ONCE = 256  # connections that may prove themselves at one time


class Meeting:
    """The nodes that came, each over a link of its own."""

    def __init__(self, settings: Mapping[str, Any], token: bytes) -> None:
        """Raises OSError where its port is taken."""
        self._settings, self._token = settings, token
        self._names: list[str] = [label for label, _ in settings["nodes"]]
        self._links: dict[int, socket.socket] = {}
        self._hello: dict[int, dict[str, Any]] = {}
        self._gone: dict[int, str] = {}  # node -> why nothing more is asked of it
        self._strangers: dict[str, None] = {}
        self._came, self._open = threading.Condition(), True
        self._socket = listen(settings["port"])
        serve(self._socket, _MOST_AT_ONCE, self._admit)

    # -- who comes

    def _admit(self, link: socket.socket, address: str) -> None:
        try:
            admit(link, self._token)
            hello = receive(link, HANDSHAKE)
            rank = int(hello["rank"])
            with self._came:
                if not self._open or rank in self._links or not 0 <= rank < len(self._names):
                    raise ConnectionError("too late, or here already")
                self._links[rank], self._hello[rank] = link, hello
                self._came.notify_all()
        except Stranger:
            self._strangers[f"{address} on {self._names[0]}"] = None
            link.close()
        except (OSError, KeyError, TypeError, ValueError):
            link.close()

    def _await_all(self) -> None:
        until, nodes = Deadline(self._settings["meet"]), range(len(self._names))
        with self._came:
            self._came.wait_for(lambda: len(self._links) == len(nodes), until.left)
            self._open = False
        why = f"it did not come to the check within {self._settings['meet']:g}s"
        self._gone.update({node: why for node in nodes if node not in self._links})

    # -- what they do

    def run(self) -> Result:
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
            self._ask(node, {"do": "done"})
        return Result(
            nodes=tuple((label, host) for label, host in self._settings["nodes"]),
            pairs=tuple(pairs),
            left_out=left,
            why_left_out=why if left else "",
            backend=sweep.get("backend", ""),
            reduced=tuple(
                Reduced(size, seconds, bus_bandwidth(size, seconds, nodes)) for size, seconds in sweep.get("rows", ())
            ),
            no_sweep=sweep["why"],
            strangers=tuple(self._strangers),
        )

    def _round(self, pairs: list[Pair]) -> list[Measured]:
        """Pairs that measure at the same time."""
        asked = []
        for a, b in pairs:
            if a in self._gone or b in self._gone:
                continue
            host = self._address(b)
            order = {
                "do": "pair",
                "host": host,
                "port": self._hello[b].get("port"),
                "seconds": self._settings["seconds"],
            }
            if self._ask(a, order):
                asked.append((a, b))
        until, saw = Deadline(netpair.limit(self._settings["seconds"]) + HANDSHAKE), {}
        for a, b in asked:
            saw[a, b] = self._answer(a, until)
        return [self._measured(a, b, saw.get((a, b), {})) for a, b in pairs]

    def _measured(self, a: int, b: int, saw: Mapping[str, Any]) -> Measured:
        try:
            figures = [float(saw[name]) for name in ("latency_ms", "worst_ms", "there_gbps", "back_gbps")]
            if not all(0 <= each < _LARGEST for each in figures):  # nor is it a NaN
                raise ValueError
        except (KeyError, TypeError, ValueError):
            error = saw.get("error") or next((self._gone[node] for node in (b, a) if node in self._gone), "no answer")
            return Measured(a, b, error=one_line(str(error), _TEXT))
        return Measured(a, b, figures[0], figures[1], figures[2], figures[3])

    def _address(self, node: int) -> str:
        """Where others reach it: on the interface that was asked for, else where the roll call did."""
        known = str(self._hello.get(node, {}).get("address") or "")
        return known or self._settings["addresses"][node] or self._settings["nodes"][node][1]

    def _sweep(self) -> dict[str, Any]:
        """The all-reduce of all nodes together, where all can."""
        if self._gone:
            return {"why": f"{', '.join(self._names[node] for node in sorted(self._gone))} cannot take part"}
        if without := [self._names[node] for node, hello in sorted(self._hello.items()) if not hello.get("torch")]:
            more = f" and {len(without) - 4} more" if len(without) > 4 else ""
            return {"why": f"there is no torch on {', '.join(without[:4])}{more}"}
        nodes, order = range(len(self._names)), {"do": "reduce", "nodes": len(self._names)}
        self._ask(0, {**order, "host": "localhost", "port": 0})
        port = self._answer(0, Deadline(netsweep.LIMIT)).get("port")
        if port:
            host = str(self._hello[0].get("address") or self._settings["leader"])
            for node in nodes[1:]:
                self._ask(node, {**order, "host": host, "port": port})
        until = Deadline(netsweep.LIMIT + HANDSHAKE)
        ends = {node: self._answer(node, until) for node in (nodes if port else nodes[:1])}
        failed = [f"{self._names[node]}: {why}" for node, end in ends.items() if (why := end.get("why", "no answer"))]
        first = ends[0]
        return {
            "backend": first.get("backend", ""),
            "rows": first.get("rows", ()),
            "why": one_line((failed or [""])[0], _TEXT),
        }

    # -- talk

    def _ask(self, node: int, order: dict[str, Any]) -> bool:
        """Whether the order is on its way."""
        if node in self._gone:
            return False
        try:
            send(self._links[node], order, HANDSHAKE)
        except OSError as error:
            self._gone[node] = f"{self._names[node]} is gone: {error}"
        return node not in self._gone

    def _answer(self, node: int, until: Deadline) -> dict[str, Any]:
        """What it says; {} where it says nothing in time, and nothing more is asked of it."""
        if node in self._gone:
            return {}
        try:
            said = receive(self._links[node], max(until.left, 0.1))
        except OSError as error:
            self._gone[node] = f"{self._names[node]} does not answer: {error}"
            return {}
        strangers = said.get("strangers")
        for stranger in strangers[: netpair.MOST_STRANGERS] if isinstance(strangers, list) else ():
            self._strangers[f"{one_line(str(stranger), 60)} on {self._names[node]}"] = None
        return said

    def close(self) -> None:
        for each in (self._socket, *self._links.values()):
            with contextlib.suppress(OSError):
                each.close()


def say(text: str) -> None:
    """A line for people, on stderr."""
    print(f"netcheck: {text}", file=sys.stderr, flush=True)
