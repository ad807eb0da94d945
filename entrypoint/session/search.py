"""The search for a peer's sshd among the ports at which it may listen."""

from __future__ import annotations

_ALL = 16  # of so many rounds, one tries all ports, also if nothing answers at the likely one


class AttemptFailed(Exception):
    """A failed attempt to log in to a peer; the next attempt may succeed."""

    def __init__(
        self,
        reason: str,
        refused: bool = False,
        late: bool = False,
        is_other_job: bool = False,
        goes_on: bool = False,
        is_ours: bool = False,
    ) -> None:
        super().__init__(reason)
        self.refused = refused  # the peer answered, but one side does not accept the other's key
        self.late = late  # the peer, or its machine, may only be slow
        self.is_other_job = is_other_job  # the sshd of another job has the port
        self.goes_on = goes_on  # who has the port may not be the peer, which may be at another one
        self.is_ours = is_ours  # another node of this job has answered


class PortSearch:
    """The ports of one peer. It listens at the first that was free when it started.

    So the first one is the likely port, unless another job's sshd answers there. Others cost an
    attempt only if something answers that may not be the peer, and in some rounds, in case the
    program that had the first port has ended meanwhile.
    """

    def __init__(self, ports: tuple[int, ...]) -> None:
        self._ports = ports
        self._likely = 0
        self._rounds = 0
        # port -> how another job's sshd there has answered last
        self._other_jobs: dict[int, AttemptFailed] = {}
        self._is_silent = False  # whether the likely port answered last, and not as an sshd in time
        self._tried: list[int] = []  # in this round
        self._last: AttemptFailed | None = None  # of the peer itself, or of a port without answer

    @property
    def is_single(self) -> bool:
        """Whether there is only one port."""
        return len(self._ports) == 1

    def begin_round(self) -> list[int]:
        """Return the ports to try now, one after the other."""
        self._rounds += 1
        self._tried = []
        self._last = None
        likely, *others = self._from_likely()
        if self._is_silent:  # that takes time again
            return [*others, likely]
        return [likely, *others] if self._rounds % _ALL == 0 else [likely]

    def failed(self, port: int, error: AttemptFailed, left: list[int]) -> list[int]:
        """Return the ports to try after the attempt at this port has failed, of which `left` were
        planned."""
        self._tried.append(port)
        if port == self._ports[self._likely]:
            self._is_silent = error.goes_on and error.late
        if error.is_other_job:
            self._other_jobs[port] = error
            if port == self._ports[self._likely]:
                self._likely = (self._likely + 1) % len(self._ports)
        else:
            self._other_jobs.pop(port, None)
            self._last = self._last or error
        if error.is_other_job or error.goes_on:
            return [other for other in self._from_likely() if other not in self._tried]
        return [] if error.late else left  # a host that does not answer at one port does at none

    def failure(self) -> AttemptFailed:
        """Return why the peer was not found in this round."""
        others = (self._other_jobs[port] for port in self._ports if port in self._other_jobs)
        return next(others, self._last) or AttemptFailed("not tried")

    def _from_likely(self) -> list[int]:
        return [*self._ports[self._likely :], *self._ports[: self._likely]]
