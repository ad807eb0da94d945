"""The progress of a TrainJob, told to its controller while the job runs.

Source: Kubeflow Trainer, docs/user-guides/trainjob-progress.md ("Raw HTTP") and
pkg/statusserver/server.go. Its controller sets three variables: a URL, and the paths of a CA
certificate and of a bearer token, which rotates. It takes a POST of `trainerStatus` with
`metrics` (name and value, both text) and `lastUpdatedTime`, at most one in 5 s. Each request
replaces all that an earlier one has set, so nothing is sent unless `stall.line` shows the steps.
"""

from __future__ import annotations

import math
import os
import threading
from datetime import datetime, timezone
from typing import Any

from entrypoint.base.model import Plan
from entrypoint.base.text import Log
from entrypoint.extensions import Observer
from entrypoint.features.finish.end import deliver, host_of
from entrypoint.job import events, messages

VARIABLES = tuple(f"KUBEFLOW_TRAINER_SERVER_{name}" for name in ("URL", "CA_CERT", "TOKEN"))
_PAUSE = 10.0  # seconds between two requests
_LAST = 2.0  # seconds that the end of an attempt waits for one


class TrainJobProgress:
    """An observer that passes all on to another one, and on worker-0 tells the step that all ranks
    have reached."""

    _sent = -math.inf  # when
    _is_leader = False
    _thread: threading.Thread | None = None
    _why = ""  # the last request failed
    _told: int | None = None  # the step of that request
    _is_over = False  # a request may be killed with all else

    def __init__(self, observer: Observer, log: Log) -> None:
        self._observer = observer
        self._log = log
        self._steps: dict[tuple[int, int], int] = {}  # by node and rank

    def __getattr__(self, name: str) -> Any:
        return getattr(self._observer, name)

    def begin(self, plan: Plan) -> None:
        """Forget the steps of an earlier attempt."""
        self._observer.begin(plan)
        self._steps.clear()
        self._is_over = False
        self._is_leader = plan.topology.is_leader

    def saw(self, what: Any, now: float) -> None:
        """Note the steps of a node; tell them if the last time is long enough ago."""
        self._observer.saw(what, now)
        if not (
            self._is_leader
            and isinstance(what, events.MessageReceived)
            and isinstance(what.message, messages.Steps)
        ):
            return
        self._steps |= {(what.node, rank): step for rank, step, _ in what.message.ranks}
        if now - self._sent >= _PAUSE:
            self._sent = now
            self._tell()

    def close(self) -> None:
        """Tell the last step."""
        self._is_over = True
        self._join()
        self._tell()
        self._join()
        self._observer.close()

    def _join(self) -> None:
        if self._thread is not None:
            self._thread.join(_LAST)

    def _tell(self) -> None:
        step = min(self._steps.values(), default=None)
        is_busy = self._thread is not None and self._thread.is_alive()
        if step != self._told and step is not None and not is_busy:
            self._told = step
            self._thread = threading.Thread(target=self._send, args=(step,), daemon=True)
            self._thread.start()

    def _send(self, step: int) -> None:
        url, ca, token = (os.environ[name] for name in VARIABLES)
        status = {
            "metrics": [{"name": "step", "value": str(step)}],
            "lastUpdatedTime": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        }
        why = deliver(url=url, body={"trainerStatus": status}, ca=ca, token=token)
        if why and not (self._why or self._is_over):
            hint = "the job continues; is this the TrainJob's own pod?"
            self._log(
                f"warning: EP417 the TrainJob's progress was not delivered | {host_of(url)}: {why}"
                f" | {hint}"
            )
        self._why = why
