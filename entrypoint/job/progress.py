"""Whether an attempt makes progress: a part of the leader, which tells the workers, since another
leader asks them if this one is lost."""

from __future__ import annotations

from entrypoint.job.history import is_time_progress
from entrypoint.job.messages import Progressed, Steps
from entrypoint.job.outbox import Outbox
from entrypoint.job.state import JobState

_NOW = Progressed()


class ProgressMonitor:
    """Hears of progress from the nodes; if nothing is declared, the time that ranks ran is it."""

    def __init__(self, state: JobState, outbox: Outbox) -> None:
        self._state = state
        self._talk = outbox
        self._has_begun = False

    def begin(self) -> None:
        """Ranks run from now on."""
        spec = self._state.spec
        if is_time_progress(spec) and not self._has_begun:
            self._has_begun = True
            self._state.scheduler.after(60 * spec.restarts.minutes, lambda: self.heard(_NOW))

    def heard(self, message: Progressed) -> None:
        """A node says that the job has made progress there."""
        if self._state.note_progress(message.step):
            self._tell_all()

    def steps(self, message: Steps) -> None:
        """A node reports the steps of its ranks."""
        if self._state.note_steps(message):
            self._tell_all()

    def _tell_all(self) -> None:
        if self._state.spec.restarts.without_progress:
            for node in self._state.peers.alive():
                self._talk.tell(node, Progressed(self._state.step))

    def tell(self, node: int) -> None:
        """A node joins later than the others."""
        if self._state.has_progressed:
            self._talk.tell(node, Progressed(self._state.step))
