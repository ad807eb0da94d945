"""How the job ended, as one line of JSON that outlives us: beside the run directory, and where Kubernetes looks.

{"status": 75, "reason": "worker-1 is lost: ...", "node": "worker-0", "job": "demo", "class": "infrastructure"}
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping

from entrypoint.errors import CLASSES, EXIT_SOFTWARE, ConfigError, EntrypointError
from entrypoint.model import Outcome, Topology
from entrypoint.secret import scrubbed
from entrypoint.system.signals import StoppedBySignal
from entrypoint.text import Log

TERMINATION_LOG = "/dev/termination-log"
_LIMIT = 4096  # bytes that Kubernetes reads
_STOPPED = {128 + 1, 128 + 2, 128 + 3, 128 + 15}  # HUP, INT, QUIT, TERM: somebody stopped it
_CLASSES = {0: "success", **CLASSES, **dict.fromkeys(_STOPPED, "stopped")}


def classify(outcome: Outcome) -> str:
    """Who can fix it: success, stopped, job, config, infrastructure or defect."""
    kind = _CLASSES.get(outcome.status, "job")
    # A program may use our statuses.
    return "job" if outcome.program and kind not in ("success", "stopped") else kind


def line(outcome: Outcome, node: str, job: str, environ: Mapping[str, str]) -> str:
    """The line, in ASCII, at most 4096 bytes; a reason that is too long is cut, and secrets are hidden."""
    import json  # not needed before the end

    reason = scrubbed(outcome.reason, environ)
    end, keep = "", len(reason)
    while True:
        fields = {"status": outcome.status, "reason": reason[:keep] + end, "node": node, "job": job}
        text = json.dumps({**fields, "class": classify(outcome)})
        if len(text) < _LIMIT:
            return f"{text}\n"
        # A character may take twelve bytes as JSON writes it.
        end, keep = "...", min(keep, _LIMIT) - 1 - max(0, len(text) - 2 * _LIMIT) // 12


def timeline_of(run_dir: str) -> str:
    """The file that the node with this run directory writes its timeline into (timeline.py)."""
    return f"{run_dir}-timeline.json"


class NodeResult:
    """This node's result, written once it is known. If that fails, a message says so, and nothing else changes."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._node, self._job = os.uname().nodename, ""
        self._file = ""  # where it goes, once that is known

    def about(self, topology: Topology) -> None:
        """Set whose result it will be, and remove the one of an earlier run.

        Raises ConfigError if another user's file is in its place and cannot be removed: readers would take it for ours.
        """
        self._node, self._job = topology.this.host, topology.job
        file = f"{topology.run_dir}-result.json"
        for old in (file, timeline_of(topology.run_dir)):
            with contextlib.suppress(OSError):
                os.unlink(old)
        with contextlib.suppress(OSError):
            if (owner := os.lstat(file).st_uid) != os.geteuid():
                seen = f"{file} is owned by {owner}, we are {os.geteuid()}"
                do = "remove it, or set ENTRYPOINT_RUN_DIR to another place"
                raise ConfigError("EP411 another user's file is in the place of this job's result", seen, do)
        self._file = file

    def end(self, outcome: Outcome) -> Outcome:
        """Write the outcome where it can be read afterwards."""
        text = line(outcome, self._node, self._job, os.environ).encode()
        flags = os.O_WRONLY | os.O_TRUNC | os.O_NONBLOCK | os.O_NOFOLLOW
        # Without Kubernetes there is no such file.
        with contextlib.suppress(OSError), open(os.open(TERMINATION_LOG, flags), "wb") as file:
            file.write(text)
        if self._file:
            from pathlib import Path  # a program that we become waits for no import of these

            from entrypoint.system.files import put

            path = Path(self._file)
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                put(path, text, 0o644)
            except OSError as error:
                do = "whatever lies there is not this job's"
                self._log(f"EP415 the result cannot be written | {self._file}: {error.strerror or error} | {do}")
        return outcome


@contextlib.contextmanager
def recorded(log: Log) -> Iterator[NodeResult]:
    """Also write what is raised within as the result."""
    result = NodeResult(log)
    try:
        yield result
    except EntrypointError as error:
        result.end(Outcome(error.status, "; ".join(error.lines())))
        raise
    except StoppedBySignal as stop:
        result.end(stop.outcome)
        raise
    except Exception as error:
        result.end(Outcome(EXIT_SOFTWARE, f"EP900 internal error: {type(error).__name__}: {error}"))
        raise
