"""The keeper as the entrypoint knows it: what it is told, and what it reports of programs and
ranks."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from entrypoint.base.errors import HostError
from entrypoint.base.kept import KEEPER
from entrypoint.base.text import one_line
from entrypoint.base.values import frozen
from entrypoint.job.messages import LINE, LINES
from entrypoint.launchers._daemons import DAEMONS
from entrypoint.ranks import orders
from entrypoint.ranks.reaper import Reaper
from entrypoint.system import cgroups, proc
from entrypoint.system.descriptors import CHUNK

_LAST = 10.0  # seconds for it to end an attempt, after the patience with a reader


class KeeperProcess:
    """The keeper's process, and the socket to it. It stays for all attempts.

    It is an interpreter of its own: a fork of this process would have most of its memory twice.
    """

    def __init__(self) -> None:
        """Start it. Raises RetryError if there is no process for it, HostError without a socket."""
        ours, theirs = socket.socketpair()
        theirs.set_inheritable(True)
        words = (sys.executable, "-I", "-S", KEEPER, str(theirs.fileno()))
        # without the job's secret, among others
        env = {name: os.environ[name] for name in os.environ if not name.startswith("ENTRYPOINT_")}
        try:
            # A signal to all processes here, as by Ctrl-C, must not end it before it ignores that.
            self.pid = os.posix_spawn(sys.executable, words, env, setsigmask=signal.valid_signals())
        except BlockingIOError as error:
            raise cgroups.refused("process") from error
        except OSError as error:
            raise HostError(
                "EP434 cannot start the keeper of the ranks",
                error.strerror or "",
                "raise the limit on processes or file handles",
            ) from None
        finally:
            theirs.close()
        ours.setblocking(False)
        self.socket = ours

    def close(self) -> None:
        """Have it end, with all that it keeps."""
        self.socket.close()
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)


@frozen
class Failure:
    """The end of a rank or program that failed."""

    name: str  # such as `rank 3`
    status: int
    lines: tuple[str, ...]  # the last that it printed
    verdict: str = ""  # file in which it may have said why


class KeptHere:
    """All programs, ranks or daemons that are kept on this node, and their state."""

    def __init__(self, kind: str, send: Callable[[Any], None]) -> None:
        self._kind = kind
        self._send = send
        self._pids: dict[int, int] = {}  # number -> pid, of what is not done; 0 until it is known
        self.placeholders: dict[int, int] = {}  # number -> pid, of ranks that a launcher starts
        self.statuses: dict[int, int] = {}  # number -> status of those that have ended
        self._last_output: dict[int, tuple[str, ...]] = {}
        self._changed = asyncio.Event()

    def start(self, order: orders.StartProgram) -> None:
        """Start one, which runs from now on."""
        self._pids[order.number] = 0
        self._send(order)

    def note(self, report: orders.Report | orders.Tail) -> None:
        """Take a report of this kind."""
        number = report.number
        if isinstance(report, orders.Tail):
            self._last_output[number] = _lines(report.output)
            return
        match report.event:
            case "start":
                self._pids[number] = report.value
                self.statuses.pop(number, None)
                self._last_output.pop(number, None)
            case "placeholder":
                self.placeholders[number] = report.value
            case "end":
                self.statuses[number] = report.value
            case "done":
                self._pids.pop(number, None)
        self._changed.set()

    def lost(self) -> None:
        """Note that the keeper was killed, and all that it kept with it."""
        for number in self._pids.keys() - self.statuses.keys():
            self.statuses[number] = 128 + signal.SIGKILL
        self._pids.clear()
        self._changed.set()

    def last_output(self, number: int) -> tuple[str, ...]:
        """Return the last lines of one that has failed."""
        return self._last_output.get(number, ())

    @property
    def count(self) -> int:
        """Return how many have started."""
        return len({*self._pids, *self.statuses})

    @property
    def alive(self) -> Mapping[int, int]:
        """Return number -> pid of those that run, or have left processes running."""
        return dict(self._pids)

    def signal(self, signum: int, number: int = -1) -> None:
        """Send a signal to the processes of all that run, or of one."""
        self._send(orders.SignalAll(self._kind, int(signum), number))

    async def ended(self) -> None:
        """Return when none runs."""
        while self._pids.keys() - self.statuses.keys():
            await self._change()

    async def gone(self) -> None:
        """Return when none runs, and all that they printed is passed on."""
        while self._pids:
            await self._change()

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()


class Keeping:
    """An attempt's programs and ranks in the keeper. `report` gets every report, once it is noted;
    `lost` is called if the keeper itself has ended."""

    def __init__(
        self, keeper: KeeperProcess, report: Callable[[Any], object], lost: Callable[[], object]
    ) -> None:
        self._socket = keeper.socket
        self.pid = keeper.pid
        self._report = report
        self._lost = lost
        self._received = bytearray()
        self._to_send = bytearray()
        self._is_lost = False
        self.kinds = {
            kind: KeptHere(kind, self.send) for kind in (orders.PROGRAM, orders.RANK, orders.DAEMON)
        }
        self._reaper = Reaper(keeper.pid)
        self._loop = asyncio.get_running_loop()
        # bytes of output that were lost when the attempt ended
        self._over: asyncio.Future[int] = self._loop.create_future()
        self._loop.add_reader(self._socket, self.read)

    def send(self, order: Any) -> None:
        """Send an order."""
        self._to_send += orders.encoded(order)
        self._write()

    def _write(self) -> None:
        sock = self._socket
        try:
            while self._to_send and not self._is_lost:
                del self._to_send[: sock.send(self._to_send)]
        except BlockingIOError:
            self._loop.add_writer(sock, self._write)
            return
        except OSError:
            self._ended()
            return
        self._loop.remove_writer(sock)

    def read(self) -> None:
        """Handle all reports that have come."""
        while not self._is_lost:
            try:
                data = self._socket.recv(CHUNK)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self._ended()
                return
            self._received += data
            for report in orders.decoded(self._received):
                self._take(report)

    def _take(self, report: Any) -> None:
        if isinstance(report, (orders.Report, orders.Tail)):
            self.kinds[report.kind].note(report)
        if isinstance(report, orders.AttemptEnded):
            self._over.set_result(report.lost)
        else:
            self._report(report)

    def _ended(self) -> None:
        if not self._is_lost:
            self._is_lost = True
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)
            self._over.cancel()
            for kept in self.kinds.values():
                kept.lost()
            self._lost()

    def spawned(self) -> list[int]:
        """Return the processes that MPI_Comm_spawn has started, which the keeper has not: below
        MPI's daemons, or the programs that this node has started."""
        below = proc.below(self.pid)
        ranks = self.kinds[orders.RANK]
        programs = self.kinds[orders.PROGRAM]
        launchers = {pid for pid, name, _ in below if name in DAEMONS}
        launchers |= {*programs.alive.values()}
        known = launchers | {*ranks.alive.values()} | {*ranks.placeholders.values()}
        # A process in its parent's group, such as an agent, is no process of the job.
        return [
            pid
            for pid, _, (_, parent, group, *_) in below
            if int(parent) in launchers and int(group) == pid and pid not in known
        ]

    async def end(self, patience: float) -> int:
        """End the attempt, and return how many bytes of output nobody took. `patience`: seconds in
        which a reader must take some."""
        self.send(orders.EndAttempt(patience))
        await asyncio.wait({self._over}, timeout=patience + _LAST)
        return 0 if self._over.cancelled() or not self._over.done() else self._over.result()

    def close(self) -> None:
        """Watch no more."""
        self._reaper.close()
        self._loop.remove_reader(self._socket)
        self._loop.remove_writer(self._socket)


def last_lines(lines: Iterable[str]) -> tuple[str, ...]:
    """Return the last lines of a failed program, for people."""
    return tuple(one_line(line, LINE) for line in [*lines][-LINES:])


def _lines(output: bytes) -> tuple[str, ...]:
    """Return the lines of a program's last output as a terminal shows them, without empty ones."""
    text = output.decode("utf-8", "replace")
    lines = [line.rpartition("\r")[2] for line in text.replace("\r\n", "\n").split("\n")]
    return tuple(line.rstrip() for line in lines if line.strip())
