"""The record file of this node, next to its run directory: its state while it boots, its result at
the end.

The result is also written to the file that Kubernetes reads, as one line of JSON:

{"status": 75, "reason": "worker-1 is lost: ...", "node": "worker-0", "job": "demo", "class":
"infrastructure"}

The reason of a failure is also written to the file that SageMaker reads.
"""

from __future__ import annotations

import contextlib
import os
from _thread import allocate_lock  # in mode exec nothing else of `threading` is needed
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from entrypoint import __version__
from entrypoint.base.errors import CLASSES, ConfigError, EntrypointError, internal
from entrypoint.base.model import Outcome, Topology
from entrypoint.base.secret import scrubbed
from entrypoint.base.text import Log
from entrypoint.system.signals import StoppedBySignal

if TYPE_CHECKING:
    from entrypoint.features.record.content import JobStatus, RecordedProcess, Recording

TERMINATION_LOG = "/dev/termination-log"
SAGEMAKER_FAILURE = "/opt/ml/output/failure"  # its first 1024 characters are a job's FailureReason
_LIMIT = 4096  # bytes that Kubernetes reads
# Bytes of the parts of a result, which leave the reason at least 300.
_NAME, _LINE, _SENTENCE, _EXCLUDED = 250, 310, 510, 1000
_PATIENCE = 5.0  # seconds that the last write waits for one that has not ended
_STOPPED = {128 + 1, 128 + 2, 128 + 3, 128 + 15}  # HUP, INT, QUIT, TERM: the job was stopped
_CLASSES = {0: "success", **CLASSES, **dict.fromkeys(_STOPPED, "stopped")}


def record_of(run_dir: str) -> str:
    """Return the record file of the node with this run directory."""
    return f"{run_dir}-state.json"


def classify(outcome: Outcome) -> str:
    """Return who can fix it: success, stopped, job, config, infrastructure or defect."""
    kind = _CLASSES.get(outcome.status, "job")
    # A program may exit with one of our statuses.
    return "job" if outcome.program and kind not in ("success", "stopped") else kind


def result_of(
    outcome: Outcome, node: str, job: str, environ: Mapping[str, str], attempts: int = 1
) -> dict[str, Any]:
    """Return the result, with the number of attempts if there was more than one. As a line of JSON
    in ASCII it has at most 4096 bytes: texts that are too long are cut, and of many excluded nodes
    it has the first.

    Secrets of the environment are hidden.
    """
    import json  # not needed before the end

    def cut(text: str, most: int) -> str:
        text = scrubbed(text, environ)[:_LIMIT]
        while (length := len(json.dumps(text))) > most:
            # A character may take twelve bytes in JSON.
            text = f"{text[: -4 - (length - most) // 12]}..."
        return text

    result: dict[str, Any] = {
        "status": outcome.status,
        "reason": "",
        "node": cut(node, _NAME),
        "job": cut(job, _NAME),
        "class": classify(outcome),
    }
    if outcome.cause:
        from entrypoint.causes.phrase import as_json  # a job that ends well needs it never

        result |= as_json(outcome.cause)
        result["lines"] = [cut(line, _LINE) for line in outcome.cause.lines]
        result |= {name: cut(result[name], _SENTENCE) for name in ("text", "fix")}
    if nodes := [
        {name: cut(text, _LINE) for name, text in vars(entry).items()} for entry in outcome.excluded
    ]:
        while len(json.dumps(nodes)) > _EXCLUDED:
            nodes.pop()
        result["excluded"] = nodes
    if outcome.saved:
        result["saved"] = {**vars(outcome.saved), "name": cut(outcome.saved.name, _NAME)}
    if attempts > 1:
        result["attempts"] = attempts
    result["reason"] = cut(outcome.reason, _LIMIT - len(json.dumps(result)))
    return result


class RecordFile:
    """This node's record. A failure to write it is a warning, and has no other effect."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._node = os.uname().nodename
        self._job = ""
        # Both are "" until the node is known. Readers find the record by the run directory.
        self._path = ""
        self.run_dir = ""
        # Held while the file is written, which takes long on a hung disk.
        self._writing = allocate_lock()
        self._is_over = False
        # The last state of the boot and its time; None if the boot has not begun.
        self.status: JobStatus | None = None
        self.at = 0.0
        self.timeline: Recording | None = None
        # The command line that was started; without secrets.
        self.command = ""
        self.result: Mapping[str, Any] | None = None  # once the job has ended here

    def about(self, topology: Topology) -> None:
        """Set the node of the record, and remove the files of an earlier run. Those of an
        entrypoint that runs stay.

        Raises ConfigError if another user's file exists and cannot be removed: readers would
        mistake it for ours.
        """
        from entrypoint.system.files import forget_ranks, is_held

        self._node = topology.this.host
        self._job = topology.job
        self.run_dir = topology.run_dir
        path = record_of(topology.run_dir)
        if not is_held(topology.run_dir):
            with contextlib.suppress(OSError):
                forget_ranks(topology.run_dir)
            with contextlib.suppress(OSError):
                os.unlink(path)
        with contextlib.suppress(OSError):
            if (owner := os.lstat(path).st_uid) != os.geteuid():
                detail = f"{path} is owned by {owner}, this user is {os.geteuid()}"
                hint = "remove it, or set ENTRYPOINT_RUN_DIR to another place"
                raise ConfigError(
                    "EP411 another user's file is in the place of this job's record", detail, hint
                )
        self._path = path

    def update(self, pause: float) -> None:
        """Write the state of the boot; the next write follows within `pause` seconds.

        Only this user can read it. Call it in a thread: the disk may be slow. Raises OSError if it
        cannot be written.
        """
        with self._writing:
            if self._path and not self._is_over:
                self._put(pause=pause)

    def hand_over(self, command: str) -> None:
        """Write that this process becomes the program of this command, which writes nothing more.

        Without a place for the record, the program runs all the same.
        """
        import time

        self.command = command
        self.at = time.monotonic()
        with contextlib.suppress(OSError):
            if self._is_ours():
                self._put()

    def end(self, outcome: Outcome) -> None:
        """Write the outcome."""
        import json

        attempts = self.status.attempt if self.status else 1
        self.result = result = result_of(outcome, self._node, self._job, os.environ, attempts)
        flags = os.O_WRONLY | os.O_TRUNC | os.O_NONBLOCK | os.O_NOFOLLOW
        # Without Kubernetes this file does not exist, and without SageMaker the other's folder.
        with contextlib.suppress(OSError), open(os.open(TERMINATION_LOG, flags), "wb") as file:
            file.write(json.dumps(result).encode())
        if outcome.status:
            text = " | ".join(filter(None, (result.get("text"), result["reason"])))
            # "x": the program's own description stays
            with contextlib.suppress(OSError), open(SAGEMAKER_FAILURE, "xb") as file:
                file.write(f"{text}\n".encode(errors="replace"))
        if self._is_ours():
            self._is_over = True
            try:
                self._finish(result)
            except OSError as error:
                from pathlib import Path

                from entrypoint.system.files import cure

                detail = f"{self._path}: {error.strerror or error}"
                hint = cure(error, Path(self._path), "set ENTRYPOINT_RUN_DIR to a writable place")
                old = "an older file there is not this job's result"
                self._log(f"warning: EP415 the result cannot be written | {detail}; {old} | {hint}")

    def _is_ours(self) -> bool:
        """Return whether the record has a place, and no other boot holds its run directory. One
        with a state has had it."""
        from entrypoint.system.files import is_held

        return bool(self._path) and (self.status is not None or not is_held(self.run_dir))

    def _finish(self, result: Mapping[str, Any]) -> None:
        if not self._writing.acquire(timeout=_PATIENCE):
            raise TimeoutError("an earlier write has not ended")
        try:
            self._put(result)
        finally:
            self._writing.release()

    def _put(self, result: Mapping[str, Any] | None = None, pause: float = 0.0) -> None:
        from pathlib import Path  # imported late, since a start without a record needs none

        from entrypoint.base.wire import to_json
        from entrypoint.features.record.content import VERSION, Record
        from entrypoint.system.files import put

        record = Record(
            version=VERSION,
            toolkit=__version__,
            result=result,
            process=_this_process(),
            at=self.at,
            pause=pause,
            status=_without_secrets(self.status) if self.status else None,
            timeline=self.timeline,
            command=scrubbed(self.command, os.environ),
        )
        path = Path(self._path)
        path.parent.mkdir(parents=True, exist_ok=True)
        put(path, f"{to_json(record)}\n".encode("utf-8", "backslashreplace"), 0o600)


def _without_secrets(status: JobStatus) -> JobStatus:
    from entrypoint.base.values import replace

    # Each once: most nodes have the same detail, and a call takes 0.1 ms.
    details = {node.detail for node in status.nodes}
    hidden = {detail: scrubbed(detail, os.environ) for detail in details}
    nodes = tuple(replace(node, detail=hidden[node.detail]) for node in status.nodes)
    outcome = status.outcome
    if outcome:
        outcome = replace(outcome, reason=scrubbed(outcome.reason, os.environ))
    return replace(status, nodes=nodes, outcome=outcome)


def _this_process() -> RecordedProcess | None:
    from entrypoint.features.record.content import RecordedProcess
    from entrypoint.system import proc

    with contextlib.suppress(OSError, ValueError, IndexError):
        started = int(proc.stat("self")[1][19])
        return RecordedProcess(os.getpid(), started, os.stat("/proc/self/ns/pid").st_ino)
    return None


@contextlib.contextmanager
def recorded(log: Log) -> Iterator[RecordFile]:
    """Yield the record; also write an error that is raised inside as the result."""
    record = RecordFile(log)
    try:
        yield record
    except (EntrypointError, StoppedBySignal) as error:
        record.end(error.outcome)
        raise
    except Exception as error:
        record.end(internal(error))
        raise
