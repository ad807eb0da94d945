"""Signals, from this process's start to its end: each is recorded on arrival and passed to the
handler in charge.

A signal that was ignored when this process started stays ignored: nohup, or a shell's background
job, relies on that.
"""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from entrypoint.base.model import Outcome
from entrypoint.base.text import Log, signal_name

if TYPE_CHECKING:
    import asyncio

STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
USERS = (signal.SIGUSR1, signal.SIGUSR2)  # Slurm and others send them to a job to make it save


@contextlib.contextmanager
def ignoring(signums: Iterable[int]) -> Iterator[None]:
    """Ignore these signals, also in programs that are started meanwhile."""
    before = {signum: signal.signal(signum, signal.SIG_IGN) for signum in signums}
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


class StoppedBySignal(BaseException):
    """A signal stops this process before the job has started; no `except Exception` catches it."""

    def __init__(self, signum: int) -> None:
        name = signal_name(signum)
        self.outcome = Outcome(
            128 + signum, f"EP611 ended by {name} ({128 + signum}) before the job started"
        )


class Signals:
    """Handlers for all signals that may stop this process. Until `hold` or `take`, the first raises
    StoppedBySignal.

    A stop signal within `same` seconds of the one before does not count, unless it is SIGINT: each
    Ctrl-C counts.
    """

    # When the job is stopped in any case, by the monotonic clock (`timeouts.job`).
    deadline = float("inf")
    _delivered = 0  # how many of them were passed to `take`'s function
    _shown = 0  # how many of them were logged
    _held = False
    _loop: asyncio.AbstractEventLoop | None = None
    _take: Callable[[int, bool], None] | None = None

    def __init__(self, log: Log, same: float = 0.0) -> None:
        self._log = log
        self._same = same
        self._first = float("inf")  # times of the first and of the last stop signal
        self._last = float("-inf")
        self._stops: list[int] = []  # all stop signals so far
        self._pass_on: Callable[[int], None] = lambda signum: None

    def watch(self) -> None:
        """Install the handlers: no stop signal is missed, and no user signal ends this process."""
        for signum in (*STOPS, *USERS):
            if signal.getsignal(signum) is not signal.SIG_IGN:
                signal.signal(signum, self._on_signal)

    @property
    def stopped(self) -> int | None:
        """The first stop signal, if any."""
        return self._stops[0] if self._stops else None

    @property
    def left(self) -> float:
        """Return the seconds until the deadline; infinity if there is none."""
        return max(0.0, self.deadline - time.monotonic())

    @property
    def over_at(self) -> float:
        """Return when a signal or the deadline stops or has stopped this node, by the monotonic
        clock."""
        return min(self._first, self.deadline)

    @property
    def is_over(self) -> bool:
        """Return whether a signal or the deadline has stopped this node."""
        return bool(self._stops) or self.left == 0

    def hold(self) -> None:
        """Raise no exception on a signal from now on: use `take` or `stopped`."""
        self._held = True

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold signals inside this context, and raise StoppedBySignal after it if one arrived."""
        self._held = True
        yield
        self._held = False
        if self._stops:
            raise StoppedBySignal(self._stops[0])

    def take(
        self,
        stop: Callable[[int, bool], None],
        pass_on: Callable[[int], None] = lambda signum: None,
    ) -> None:
        """Call `stop` in the running loop for each stop signal, with its number and whether it is a
        further one.

        It also gets earlier signals, even those that an earlier function got, since that one may
        have been too late to handle them. `pass_on` gets the user signals, which are for the ranks;
        without ranks they are dropped.
        """
        import asyncio  # slow to import, and not needed in mode exec

        self._loop = asyncio.get_running_loop()
        self._take = stop
        self._pass_on = pass_on
        self._delivered = 0
        self._loop.call_soon(self._give)

    def _on_signal(self, signum: int, frame: object) -> None:
        if signum in USERS:
            self._soon(self._pass_on, signum)
            return
        now = time.monotonic()
        if signum != signal.SIGINT and now - self._last < self._same:
            return
        self._first = min(self._first, now)
        self._last = now
        self._stops.append(signum)
        if not self._held:
            self._held = True  # raise only once, so that the result can be written
            raise StoppedBySignal(signum)
        self._soon(self._give)

    def _soon(self, callback: Callable[..., None], *args: int) -> None:
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(callback, *args)

    def _give(self) -> None:
        while self._take is not None and self._delivered < len(self._stops):
            signum = self._stops[self._delivered]
            again = self._delivered > 0
            self._delivered += 1
            if self._delivered > self._shown:
                self._shown = self._delivered
                name = signal_name(signum)
                self._log(
                    f"{name} again: not waiting for the grace to end"
                    if again
                    else f"{name}: stopping"
                )
            self._take(signum, again)
