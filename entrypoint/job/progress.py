"""The progress of an attempt: a part of the leader, which tells the workers, since another leader
asks them if this one is lost."""

from __future__ import annotations

from entrypoint.job.history import MINUTES, is_time_progress
from entrypoint.job.messages import Progressed
from entrypoint.job.outbox import Part


class ProgressMonitor(Part):
    """Hears of progress from the nodes; if nothing is declared, the time that ranks ran is it."""

    _has_begun = False
    _has_sent = False

    def begin(self) -> None:
        """Ranks run from now on."""
        if is_time_progress(self._spec) and not self._has_begun:
            self._has_begun = True
            self._scheduler.after(60 * MINUTES, self.heard)

    def heard(self) -> None:
        """A node says that the job has made progress there."""
        self._state.note_progress()
        self._tell_all()

    def steps(self, reached: int) -> None:
        """Most ranks are at this step now; -1 if none prints any. An attempt is judged by the last
        one, so a step that a rank has printed by mistake counts until its next line."""
        if reached >= 0:
            self._state.step = reached
            self._tell_all()

    def _tell_all(self) -> None:
        is_wanted = self._spec.restarts.without_progress > 0
        if is_wanted and self._state.has_progressed and not self._has_sent:
            self._has_sent = True
            for node in self._peers.alive():
                self.tell(node)

    def tell(self, node: int) -> None:
        """A node joins later than the others."""
        if self._state.has_progressed:
            self._outbox.tell(node, Progressed(self._state.step))
