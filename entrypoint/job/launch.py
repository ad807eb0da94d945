"""The leader's view of the ranks that an MPI's launcher starts on all nodes, and of what that
launcher's end means.

It may start no rank, or too few, or stay when all have ended; its daemons may not start, or be
killed. Its exit status alone does not tell these cases apart.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from entrypoint.base.errors import ConfigError, RetryError
from entrypoint.job import actions, messages
from entrypoint.job.failure import ProgramExit, RankReports, ended, placement
from entrypoint.job.outbox import Part, Shared

# seconds without new output after every rank has ended with 0: then mpirun hangs, and we end it
_ENDS = 3.0
NO_LOGIN = 255  # what ssh exits with when a login fails: to mpirun, its agent is an ssh
_CANNOT_START = (126, 127)  # the image lacks the daemon, as mpirun then says itself
# seconds for nodes to report why a start failed: longer than they take between two looks
_SETTLE = 0.8


class LaunchMonitor(Part):
    """The ranks of all nodes under one launcher, as far as nodes reported them."""

    _lost = ""  # a daemon that failed, in words
    _passed = -1  # bytes that mpirun had passed on when it was measured last
    _ending = False  # whether every rank has ended well, and mpirun is to follow
    _placed = False  # whether it was logged where the ranks run

    def __init__(
        self,
        shared: Shared,
        failures: list[ProgramExit],
        settle: Callable[[ProgramExit], None],
    ) -> None:
        super().__init__(shared)
        self._act = self._scheduler.act
        self._host = self._topology.name
        self._own = self._host(self._state.me)
        self._failures = failures
        self._settle = settle
        self.heard = RankReports()
        self._launch = self._state.plan.launch.ranks
        self._name = self._launch.name
        self._asked: set[int] = set()  # nodes whose agent waits for an answer

    def runs_on(self, rank: int, host: str) -> bool:
        """Return whether that host is the one that has reported this rank's start."""
        return self.heard.placed.get(rank) == host

    def run_on(self, message: Any, host: str) -> bool:
        """Return whether that host is one that has reported the starts of all ranks in this
        message; where no rank reports its start, nobody can say so."""
        named = getattr(message, "stacks", getattr(message, "ranks", ()))
        ranks = {row[0] if isinstance(row, tuple) else row.rank for row in named} - {-1}
        return not self._launch.kind.report_ends or all(self.runs_on(rank, host) for rank in ranks)

    def started(self, rank: int, host: str) -> str:
        """A rank has started there. Returns the host that has reported its start before, where that
        is another one."""
        before = self.heard.placed.setdefault(rank, host)
        if before != host:
            return before
        self._act(actions.ShowLine())
        if not self._placed and self.heard.all_started():
            self._placed = True
            self._show_placement()
        return ""

    def _show_placement(self) -> None:
        self._scheduler.log(words := placement(self.heard.placed))
        used = set(self.heard.placed.values())
        names = map(self._host, self._membership.roster.team.nodes)
        hosts = ", ".join(name for name in names if name not in used)
        # then the user decides where ranks run
        chosen = self._spec.mpi.hostfile or self._spec.mpi.np
        # A job that runs on fewer nodes than asked must not count as a success.
        if hosts and not chosen:
            above = "; ".join(self.heard.above_slots(self._own))
            what = f"{above}: none runs on {hosts}" if above else f"no rank runs on {hosts}"
            do = f"make sure that the options of {self._name} let it use the hostfile"
            self._decide(ConfigError(f"EP604 {what}", words, do).outcome)

    def out_of_time(self) -> None:
        """The deadline is over. Raises RetryError if ranks are missing: mpirun hangs or waits for a
        daemon that will not come."""
        if self.heard.all_started():
            return
        self._act(actions.ShowLine())
        number = self.heard.words() if self.heard.placed else "no rank"
        do = f"{self._launch.network_hint}; or wait longer: ENTRYPOINT_TIMEOUTS_LAUNCH"
        limit = self._spec.timeouts.launch
        what = f"EP605 {self._name} has started {number} within {limit:.0f}s"
        raise RetryError(what, hint=do)

    def launcher_ended(self, end: ProgramExit) -> None:
        """mpirun has ended; what that means depends on its ranks."""
        self._act(actions.ShowLine())
        if self._failures:
            return  # we already wait for other failures, which may be the cause
        if self.heard.all_well() or (self.heard.all_started() and end.status):
            self._settle(end)
        elif not end.status:
            self._outbox.await_reports(lambda: self._judge(end))
        else:  # the end of a daemon or a rank may still be on its way, and be the cause
            seconds = _SETTLE if self._topology.has_peers else 0
            self._scheduler.after(seconds, lambda: self._blame(end))

    def _blame(self, end: ProgramExit) -> None:
        """If a daemon failed, that is the cause: raises RetryError; else mpirun's own end is."""
        if self._lost and not self._failures:
            raise RetryError(self._lost)
        self._settle(end)

    def _judge(self, end: ProgramExit) -> None:
        """mpirun ended with 0, but not every rank is known to have."""
        heard, what = self.heard, f"{self._name} exited with 0"
        if not heard.all_started():
            asked = self._spec.source("mpi.np") if self._spec.mpi.np else "the slots of all nodes"
            do = (
                f"-np is {heard.asked} by {asked}: make sure that launcher_args and the like"
                " do not change that"
            )
            self._decide(
                ConfigError(f"EP606 {what} and has started {heard.words()}", hint=do).outcome
            )
        elif heard.ended.keys() < heard.placed.keys():
            self._decide(
                RetryError(f"EP607 {what}, and no end was reported for {heard.not_heard()}").outcome
            )
        else:
            self._settle(end)

    def all_well(self) -> None:
        """Every rank has ended with 0. mpirun passes on their last output and ends; if it hangs, we
        end it."""
        if not self._ending:
            self._ending = True
            self._act(actions.CheckOutputProgress())

    def progress(self, written: int, read: bool) -> None:
        """Take the number of bytes that mpirun has written, and whether our output is read."""
        if written == self._passed and self.heard.all_well():
            self._stays()
            return
        self._passed = written
        # If nobody reads our output, mpirun cannot pass on anything; it may wait for a reader as
        # long as a rank may.
        limit = _ENDS if read else max(_ENDS, self._spec.timeouts.grace)
        # A node that was frozen may still have output to pass on.
        self._scheduler.after(
            limit,
            lambda: self._outbox.ask_all_they_know(
                lambda: self._act(actions.CheckOutputProgress())
            ),
        )

    def _stays(self) -> None:
        """mpirun hangs. It is a success only if each node has reported its own ranks and no
        others; else raises RetryError."""
        if above := self.heard.above_slots(self._own):
            what = (
                f"EP620 {self._name} is still running, though every rank is reported to have exited"
                " with 0"
            )
            detail = "; ".join([*above, placement(self.heard.placed)])
            raise RetryError(what, detail, "retry")
        self._scheduler.log(
            f"EP613 {self._name} is still running after all ranks exited; ending it"
        )
        self._settle(ProgramExit(0, "every rank", "every rank exited with 0"))

    def start_daemon(self, node: int, command: str) -> None:
        """mpirun wants a daemon on that node; without a command it is refused."""
        if not command:
            self._act(actions.AnswerAgent(node, NO_LOGIN))
            return
        self._asked.add(node)
        self._outbox.tell(node, messages.StartDaemon(command))

    def daemon_started(self, node: int, status: int) -> None:
        """The start of a daemon there has ended, or the node is lost."""
        if node not in self._asked or (self._launch.agents_stay and not status):
            return
        self._answer(node, status)
        if status and status not in _CANNOT_START:
            what = f"EP608 the start of {self._name}'s daemon failed on {self._host(node)}"
            self._lost = (
                self._lost or f"{what} | its shell exited with {status} | see that node's log"
            )

    def _answer(self, node: int, status: int) -> None:
        self._asked.remove(node)
        self._act(actions.AnswerAgent(node, status))

    def daemon(self, node: int, message: messages.Daemon) -> None:
        """A daemon of mpirun's has ended there. Raises RetryError if it was killed: mpirun and the
        other ranks end, too, but slowly."""
        if node == self._state.me and not self._launch.agents_stay:  # mpirun itself runs here
            return
        host = self._host(node)
        if self._launch.agents_stay and node in self._asked:
            self._answer(node, message.status)
        if not message.status or self.heard.all_well():
            return  # mpirun told it to end
        reason = ended(
            f"EP608 {self._name}'s daemon {message.name} on {host}",
            message.status,
            message.why,
        )
        self._lost = self._lost or reason
        if message.status > 128:
            raise RetryError(reason)

    def limit(self, node: int, message: messages.Limit) -> None:
        """A node could not start a process. Raises RetryError before all ranks have started: it was
        a rank or its daemon."""
        if not self.heard.all_started():
            raise RetryError(f"EP609 {self._host(node)} cannot start its ranks: {message.reason}")
