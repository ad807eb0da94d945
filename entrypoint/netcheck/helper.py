"""The network check's program, once on each node: `python -I helper.py RUN_DIR`. It finds its settings there."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.append(os.path.abspath(f"{__file__}/../../.."))  # an isolated Python does not find our package

from entrypoint.errors import EntrypointError, OsError, RetryError
from entrypoint.netcheck import measure
from entrypoint.netcheck import sweep as netsweep
from entrypoint.netcheck.analysis import findings, summary
from entrypoint.netcheck.coordinator import Coordinator, log
from entrypoint.netcheck.link import HANDSHAKE, Deadline, PeerLink, Unauthenticated, connect
from entrypoint.netcheck.messages import Arrival, Leave, MeasurePair, Reduce, SweepEnd, SweepPort, Unmeasured
from entrypoint.netcheck.page import page
from entrypoint.netcheck.result import Limits, NetcheckResult, as_json
from entrypoint.netcheck.table import text
from entrypoint.plan.netcheck import ALL_REDUCE, SETTINGS, TOKEN, WHY
from entrypoint.system.files import explained, put
from entrypoint.system.proc import undo_launcher
from entrypoint.text import escaped_lines, json_document
from entrypoint.wire import Invalid

_AGAIN = 0.2  # seconds between two tries to reach worker-0's program, which may not listen yet


def main(run_dir: str) -> int:
    """This node's part. Returns the exit status; why it is not 0 is in the run directory."""
    undo_launcher()
    folder = Path(run_dir)
    settings = json.loads((folder / SETTINGS).read_bytes())
    token = (folder / TOKEN).read_bytes()
    if settings["rank"]:
        _take_part(settings, token, folder)
        return 0  # worker-0's end is the job's
    try:
        meeting = Coordinator(settings, token)
    except OSError as error:
        do = "end what listens there, or set netcheck.port (ENTRYPOINT_NETCHECK_PORT) on every node"
        return _end(
            folder, OsError(f"EP014 cannot listen on port {settings['port']}", os.strerror(error.errno or 0), do)
        )
    threading.Thread(target=_take_part, args=(settings, token, folder), daemon=True).start()
    result = meeting.run()
    meeting.close()
    limits = Limits(settings["max_latency_ms"], settings["min_bandwidth_gbps"], settings["stop"])
    return _tell(settings, result, limits, folder)


def _tell(settings: Mapping[str, Any], result: NetcheckResult, limits: Limits, folder: Path) -> int:
    """Print and write what was seen. Returns the exit status."""
    found = findings(result, limits)
    seen = json_document(as_json(result, found))
    shown = seen if settings["how"] == "json" else escaped_lines(text(result, found))
    print(shown, end="", file=sys.stderr if settings["how"] == "before" else sys.stdout, flush=True)
    log_dir = Path(settings["log_dir"])
    try:
        with explained(log_dir, "ENTRYPOINT_LOG_DIR"):
            put(log_dir / "netcheck.json", seen.encode(), 0o644)
            put(log_dir / "netcheck.html", page(result, found, settings["job"]).encode(), 0o644)
        log(f"wrote {log_dir}/netcheck.html and netcheck.json")
    except EntrypointError as error:
        log(str(error))
    if reason := summary(found):
        do = "start the job on other nodes, or see netcheck.html"
        return _end(folder, RetryError("EP013 the network is not fit for this job", reason, do))
    return 0


def _end(folder: Path, error: EntrypointError) -> int:
    put(folder / WHY, str(error).encode("utf-8", "surrogateescape"), 0o600)
    return error.status


def _take_part(settings: Mapping[str, Any], token: bytes, folder: Path) -> None:
    """Do what worker-0 asks, until it says that it is done or goes away."""
    server, has_torch = measure.PairServer(token), netsweep.has_torch()
    until, again, why = Deadline(settings["meet"]), threading.Event(), ""
    while True:
        try:
            link = connect("localhost" if settings["rank"] == 0 else settings["leader"], settings["port"], token)
            break
        except (OSError, Unauthenticated) as error:
            why = words(error)
            if not until.left:
                log(f"cannot reach worker-0's check, port {settings['port']} | {why} | see that the port is open")
                return
            again.wait(_AGAIN)
    hello = Arrival(settings["rank"], server.port, settings["address"], has_torch)
    wait = settings["meet"] + settings["limit"] + 2 * netsweep.LIMIT + 2 * measure.limit(settings["seconds"])
    try:
        with link:
            link.send(hello, until.left + 1)
            while not isinstance(order := link.receive(wait, MeasurePair, Reduce, Leave), Leave):
                if isinstance(order, MeasurePair):
                    link.send(_measure(order, settings, token, server), HANDSHAKE)
                else:
                    _reduce(order, link, settings, folder, server)
    except (OSError, Invalid) as error:
        log(f"worker-0's check ended: {words(error)}")
    finally:
        server.close()


def _measure(order: MeasurePair, settings: Mapping[str, Any], token: bytes, server: measure.PairServer) -> Any:
    """What this node and another one have measured, or why they have not."""
    strangers = tuple(server.strangers)
    try:
        return measure.measure(order.host, order.port, token, order.seconds, strangers)
    except Invalid as error:
        peer = "".join(label for label, _ in settings["nodes"][order.node : order.node + 1])
        return Unmeasured(f"{peer} sent an invalid message: {error}", strangers)
    except (OSError, Unauthenticated) as error:
        return Unmeasured(words(error), strangers)


def _reduce(
    order: Reduce, link: PeerLink, settings: Mapping[str, Any], folder: Path, server: measure.PairServer
) -> None:
    """This node's part of the all-reduce, and what it measured."""
    sweep = netsweep.Sweep(str(folder / ALL_REDUCE), settings["rank"], order.nodes, order.host, order.port)
    if not order.port:
        link.send(SweepPort(sweep.port()), HANDSHAKE)
    backend, rows, why = sweep.end()
    link.send(SweepEnd(backend, rows, why, tuple(server.strangers)), HANDSHAKE)


def words(error: Exception) -> str:
    """An error for people: `Connection refused`, not `[Errno 111] Connection refused`."""
    return (getattr(error, "strerror", None) or str(error) or type(error).__name__).lower()


if __name__ == "__main__":
    os._exit(main(sys.argv[1]))
