"""Signals, from this process's start to its end: each is noted when it comes and given to the part in charge.

A signal that was ignored when we started stays ignored: nohup, or a shell's background job, asks for that.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from entrypoint.model import Outcome
from entrypoint.text import Log

if TYPE_CHECKING:
    import asyncio

STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
USERS = (signal.SIGUSR1, signal.SIGUSR2)  # Slurm and others send them to a job, to have it save


@contextlib.contextmanager
def ignoring(signums: Iterable[int]) -> Iterator[None]:
    """Ignore these, also in the programs that are started meanwhile."""
    before = {signum: signal.signal(signum, signal.SIG_IGN) for signum in signums}
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


class StoppedBySignal(BaseException):
    """A signal stops us before the job has started. A BaseException, so that no `except Exception` catches it."""

    def __init__(self, signum: int) -> None:
        name = signal.Signals(signum).name
        self.outcome = Outcome(128 + signum, f"EP611 ended by {name} ({128 + signum}) before the job started")


class Signals:
    """Handlers for all signals that may stop us. Until `hold` or `take`, the first one raises StoppedBySignal."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._stops: list[int] = []  # all that came
        self._given = 0  # how many of them `take`'s function has got
        self._shown = 0  # how many of them were said
        self._held = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._take: Callable[[int, bool], None] | None = None
        self._pass_on: Callable[[int], None] = lambda signum: None

    def watch(self) -> None:
        """From now on no stop signal is missed, and no user signal ends us."""
        for signum in (*STOPS, *USERS):
            if signal.getsignal(signum) is not signal.SIG_IGN:
                signal.signal(signum, self._came)

    @property
    def stopped(self) -> int | None:
        """The first that came, if any did."""
        return self._stops[0] if self._stops else None

    def hold(self) -> None:
        """From now on no signal raises: use `take` or `stopped`."""
        self._held = True

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold for this long; raises StoppedBySignal afterwards if one came."""
        self._held = True
        yield
        self._held = False
        if self._stops:
            raise StoppedBySignal(self._stops[0])

    def take(self, stop: Callable[[int, bool], None], pass_on: Callable[[int], None] = lambda signum: None) -> None:
        """Have `stop` called in the running loop with each one's number, and whether it was not the first.

        It also gets those that came before, even if an earlier function had them: the part behind that one may have
        been over already. `pass_on` gets the user signals, which are for the ranks; without ranks they are dropped.
        """
        import asyncio  # which a program that we only become does without

        self._loop = asyncio.get_running_loop()
        self._take = stop
        self._pass_on = pass_on
        self._given = 0
        self._loop.call_soon(self._give)

    def _came(self, signum: int, frame: object) -> None:
        if signum in USERS:
            self._soon(self._pass_on, signum)
            return
        self._stops.append(signum)
        if not self._held:
            self._held = True  # raise only once: while we end, our result is written
            raise StoppedBySignal(signum)
        self._soon(self._give)

    def _soon(self, callback: Callable[..., None], *args: int) -> None:
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(callback, *args)

    def _give(self) -> None:
        while self._take is not None and self._given < len(self._stops):
            signum, again = self._stops[self._given], self._given > 0
            self._given += 1
            if self._given > self._shown:
                self._shown = self._given
                name = signal.Signals(signum).name
                self._log(f"{name} again: not waiting for the grace to end" if again else f"{name}: stopping")
            self._take(signum, again)
