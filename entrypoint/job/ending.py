"""From the job's result to the leader's last word: all stop, hear the result, and leave."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from entrypoint import heartbeat
from entrypoint.job import actions, messages
from entrypoint.job.analysis import follow
from entrypoint.job.machine import Machine
from entrypoint.job.peers import Peers
from entrypoint.job.rounds import Rounds
from entrypoint.model import Outcome, Topology
from entrypoint.spec import JobSpec

KILL_MARGIN = 2.0  # seconds after the grace for killed processes to be seen gone
_PASS_ON = 1.0  # seconds for the launcher to pass on what ranks said last


class Ending:
    """The end of one attempt."""

    def __init__(
        self,
        machine: Machine,
        spec: JobSpec,
        topology: Topology,
        peers: Peers,
        rounds: Rounds,
        tell_all: Callable[[Any], None],
    ) -> None:
        self._machine, self._spec, self._topology = machine, spec, topology
        self._peers, self._rounds, self._tell_all = peers, rounds, tell_all
        self._outcome: Outcome | None = None
        self._attempt = 1
        self._force = False  # a second signal: nobody waits for the grace
        self._late = False  # whether only those who are silent are waited for
        self.stop: Outcome | None = None  # somebody asked us to stop, be the job's result known or not
        self.released = False  # whether all were told; who leaves from then on is not lost
        self.over = False

    def begin(self, outcome: Outcome, attempt: int, running: bool) -> None:
        """Stop what still runs, everywhere at once, then let every node go with the result."""
        self._outcome, self._attempt = outcome, attempt
        if not running:
            self._release()
            return
        grace = self._spec.timeouts.grace
        self._tell_all(messages.Stop(0 if self._force else grace))
        self._await("stopped", grace + KILL_MARGIN, self._let_go)

    def force(self) -> None:
        """Nobody waits for the grace, nor for who is silent."""
        if self._force:
            return
        self._force = True
        if self._rounds.is_open("stopped"):
            self._tell_all(messages.Stop(0))
        if self._late:
            self._rounds.end("leaving")

    def _await(self, name: str, seconds: float, then: Callable[[], None]) -> None:
        self._rounds.begin(name, [self._topology.me, *self._peers.alive()], seconds, then)

    def _let_go(self) -> None:
        # Only now may the first that failed leave: from then on the launcher's daemons pass nothing on.
        self._tell_all(messages.LetGo())
        # What the ranks said last is on its way through these daemons, which are not told to end.
        self._machine.act(actions.AwaitLaunchers())
        self._machine.after(_PASS_ON, self.launchers_gone, "launchers")

    def launchers_gone(self) -> None:
        """They have passed on all that there was, or had the time for it."""
        self._machine.drop("launchers")
        if not self.released:
            self._release()

    def _release(self) -> None:
        assert self._outcome is not None
        self._outcome = follow(self._outcome, self._attempt, self._spec.restarts, self.stop)
        self.released = True
        self._rounds.note(self._topology.me, "leaving")
        for node in self._peers:
            self._machine.act(actions.Send(node, messages.Release(**vars(self._outcome))))
        # Heard, and not only sent: what a dying connection still holds may be dropped.
        self._await("leaving", KILL_MARGIN, self._await_the_silent)

    def _await_the_silent(self) -> None:
        nodes = self._topology.nodes
        silent = [nodes[node].host for node in self._peers.alive() if not self._rounds.has_said(node, "leaving")]
        if not silent or self._force:
            self._end()
            return
        # It may stand still for a moment, and wakes to a job that has ended.
        limit = heartbeat.patience(self._spec.timeouts.lease)
        self._machine.say(f"the result is known; waiting {limit:.0f}s at most for {', '.join(silent)} to hear it")
        self._late = True
        self._await("leaving", limit, self._end)

    def leave(self, outcome: Outcome) -> None:
        """This node alone ends; the others wait for it to come again."""
        self._outcome = outcome
        self._end()

    def _end(self) -> None:
        assert self._outcome is not None
        self.over = True
        self._machine.end(self._outcome)
