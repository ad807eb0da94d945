"""The keeper: one process on each node that starts every program and every rank of the node, reads
their output, stops them, and reports their ends.

    entrypoint --orders--> keeper --fork, exec--> program or rank, in a process group of its own
               <-reports-         <--stdout, stderr--
                                  --lines--> stdout, stderr, log files, an MPI's pipes

The entrypoint starts it before its event loop; one socket pair is the only way between both. A
signal that can be caught does nothing here. It kills all that is below it when the entrypoint is
gone, and the kernel kills its programs and ranks when it dies itself.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import _socket
import os
import select
import time
from functools import partial

from entrypoint.base.kept import KeptForm
from entrypoint.launchers._daemons import DAEMONS, TELLS_CONTINUED
from entrypoint.output.stream import Stream, read
from entrypoint.ranks import orders, placeholder
from entrypoint.ranks import rank as machine
from entrypoint.ranks.attempt import Asked, KeptAttempt
from entrypoint.ranks.families import Families
from entrypoint.ranks.forked import ToStart, fork
from entrypoint.ranks.kept import Kept, Launched, Streams
from entrypoint.system.descriptors import CHUNK
from entrypoint.system.prctl import CHILD_SUBREAPER, NAME, prctl
from entrypoint.system.proc import has_ended, kill, name_of, state, sweep

if False:  # only for type checkers: importing it is slow
    from collections.abc import Callable, Mapping
    from typing import Any

    Wait = tuple[int, int, Callable[[], object]]  # a descriptor, its events, and what to do

_NOBODY = -1
_LEAVE = 1.0  # seconds in which ranks have to leave once they may
_OWN_TEXT = 2.0  # seconds that a launcher's own text waits for a reader at the end
_WAKE = 0.1  # seconds until a placeholder is told again that its status is there
_STARTED = 64 << 10  # bytes of a rank's words and environment that are reported
# Exit statuses as in entrypoint/base/errors.py.
_OS_ERROR = 71
_CANT_CREATE = 73
_RETRY = 75
_EAGAIN = 11  # limit on processes reached


def run(fd: int) -> None:
    """Keep programs and ranks until the entrypoint ends; `fd` is the socket to it."""
    channel = _socket.socket(fileno=fd)
    os.set_inheritable(fd, False)
    os.setsid()
    prctl(NAME, b"entrypoint:keep")
    prctl(CHILD_SUBREAPER, 1)
    for entry in os.listdir("/proc/self/fd"):
        if int(entry) > 2 and int(entry) != channel.fileno():
            try:
                os.close(int(entry))
            except OSError:
                continue  # the folder that was read
    for signum in _signal.valid_signals() - {_signal.SIGKILL, _signal.SIGSTOP}:
        _signal.signal(signum, _signal.SIG_IGN)
    _signal.pthread_sigmask(_signal.SIG_SETMASK, ())
    Keeper(channel).run()


class Keeper:
    """All that is kept on this node, and the loop that waits for what happens to it."""

    def __init__(self, channel: _socket.socket) -> None:
        self._channel = channel
        channel.setblocking(False)
        self._received = bytearray()
        self._to_send = bytearray()
        self._woken, waker = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        _signal.signal(_signal.SIGCHLD, lambda signum, frame: None)  # it only has to interrupt
        _signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        self._families = Families()
        self._attempt = KeptAttempt(orders.Begin("", None))
        self._kept: list[Kept] = []
        self._serial = 0
        self._next_look = machine.NEVER  # at what is left running
        self._suspended: set[int] = set()  # launchers, while their ranks leave
        self._resume_at = 0.0  # at the latest
        self._ends = machine.NEVER  # when the attempt ends although output waits
        self._patience = 0.0  # seconds that it waits since some was read

    # -- the loop

    def run(self) -> None:
        """Wait for what happens, and handle it, until the entrypoint is gone."""
        while True:
            readable: list[Stream] = []
            _handle(self._waits(readable), self._due())
            read(readable)
            self._look(time.monotonic())
            self._send()

    def _waits(self, readable: list[Stream]) -> list[Wait]:
        """Return what to wait for; streams with output come into `readable`."""
        attempt = self._attempt
        mask = select.POLLIN | (select.POLLOUT if self._to_send else 0)
        waits: list[Wait] = [
            (self._channel.fileno(), mask, self._receive),
            (self._woken, select.POLLIN, self._woke),
        ]
        if attempt.requests is not None:
            requests = attempt.requests
            waits.append((requests.fd, select.POLLIN, self._read_requests))
            take = partial(requests.take_fd, lambda pid: self._launcher_above(pid) > 0)
            waits.append((requests.fds.fileno(), select.POLLIN, take))
        targets = {*attempt.targets.values()}
        for kept in self._kept:
            for stream in kept.streams.all:
                targets.add(stream.target)
                if stream.is_wanted:
                    waits.append((stream.source, select.POLLIN, partial(readable.append, stream)))
            if kept.launched is not None and kept.launched.watch.fd >= 0:
                watch = kept.launched.watch
                waits.append((watch.fd, select.POLLIN, partial(self._left, kept)))
        waits += [(target.fd, select.POLLOUT, target.write) for target in targets if target.size]
        return waits

    def _due(self) -> float:
        times = [self._next_look, self._ends]
        times += [target.due for target in self._attempt.targets.values()]
        for kept in self._kept:
            times += [kept.rank.due, kept.next_look]
            times += [stream.due for stream in kept.streams.all]
        return min(times)

    def _look(self, now: float) -> None:
        """Do what is due, and have each machine know what became of its output."""
        for kept in self._kept:
            for stream in kept.streams.all:
                stream.pass_late(now)
        for target in self._attempt.targets.values():
            target.pass_late(now)
        for kept in list(self._kept):
            kept.look_at_streams()
            kept.look(now)
            if now >= kept.rank.due:
                kept.on(machine.Due())
        if now >= self._next_look:
            self._look_at_rest(now)
        self._resume(now)
        self._end_if_over(now)

    def _look_at_rest(self, now: float) -> None:
        """Look at what was left running, and at placeholders that have their status."""
        self._next_look = machine.NEVER
        for kept in list(self._kept):
            launched = kept.launched
            if launched is not None and not launched.is_gone:
                if launched.watch.fd < 0 and has_ended(launched.pid):
                    self._left(kept)
                elif launched.status is not None and self._attempt.requests is not None:
                    self._attempt.requests.wake(launched.pid)
            if kept.is_leaving:
                kept.on(machine.Alone(not (kept.family() or self._ranks_of(kept))))
            if kept.is_leaving or kept.is_answered:
                self._next_look = now + _WAKE
            elif launched is not None and not launched.is_gone and launched.watch.fd < 0:
                self._next_look = min(self._next_look, now + 1.0)
        self._remove_gone()

    def _look_soon(self) -> None:
        self._next_look = 0.0

    # -- the entrypoint

    def _receive(self) -> None:
        self._send()
        try:
            data = self._channel.recv(CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            _die()
        self._received += data
        for order in orders.decoded(self._received):
            _ORDERS[type(order)](self, order)

    def _tell(self, report: Any) -> None:
        # once the attempt ends, nobody wants to know how what is killed has ended
        if self._ends == machine.NEVER or isinstance(report, orders.AttemptEnded):
            self._to_send += orders.encoded(report)

    def _send(self) -> None:
        try:
            while self._to_send:
                del self._to_send[: self._channel.send(self._to_send)]
        except BlockingIOError:
            return
        except OSError:
            _die()

    def _begin(self, order: orders.Begin) -> None:
        self._attempt.close()
        self._attempt = KeptAttempt(order)

    def _start(self, order: orders.StartProgram) -> None:
        env = dict(entry.split(b"=", 1) for entry in order.env)
        words = tuple(map(os.fsencode, order.argv))
        self._keep((order.kind, order.number), order.form, words, env, order.cwd)

    def _signal(self, order: orders.SignalAll) -> None:
        for kept in list(self._kept):
            if kept.kind == order.kind and order.number in (-1, kept.number):
                kept.on(machine.Told(order.signum))
        self._look_soon()

    def _release(self, order: orders.ReleaseRanks) -> None:
        """Have launchers hear of the ranks that failed. They are suspended until all have left: one
        kills the others when the first of them leaves."""
        held = {kept.launched.launcher for kept in self._kept if kept.is_held and kept.launched}
        self._suspended = {pid for pid in held if name_of(pid) != TELLS_CONTINUED}
        kill(self._suspended, _signal.SIGSTOP)
        self._resume_at = time.monotonic() + _LEAVE
        for kept in list(self._kept):
            kept.on(machine.Released())
        self._look_soon()

    def _resume(self, now: float) -> None:
        """Let launchers go on whose ranks have left."""
        is_leaving = any(kept.is_answered for kept in self._kept)
        if self._suspended and (now >= self._resume_at or not is_leaving):
            kill(self._suspended, _signal.SIGCONT)
            self._suspended = set()

    def _end(self, order: orders.EndAttempt) -> None:
        """Kill all, and end the attempt once all output is passed on, or nobody reads any more."""
        self._ends = 0.0
        sweep()
        self._reap()
        for kept in self._kept:
            kept.streams.close()
        for target in self._attempt.targets.values():
            target.pass_rest()
        self._patience = order.patience
        self._ends = time.monotonic() + _OWN_TEXT
        if self._attempt.requests is not None:
            self._attempt.requests.close()
            self._attempt.requests = None

    def _end_if_over(self, now: float) -> None:
        if self._ends == machine.NEVER:
            return
        targets = list(self._attempt.targets.values())
        lost = sum(kept.streams.of_ranks for kept in self._kept)
        moved = max(target.moved for target in targets)
        self._ends = max(self._ends, moved + (self._patience if lost else _OWN_TEXT))
        if any(target.size for target in targets) and now < self._ends:
            return
        for kept in self._kept:
            if kept.launched is not None:
                kept.launched.watch.close()
        self._kept.clear()
        self._families = Families()
        self._attempt.close()
        self._attempt = KeptAttempt(orders.Begin("", None))
        self._tell(orders.AttemptEnded(lost))
        self._ends = machine.NEVER

    # -- processes

    def _reap(self) -> None:
        """Wait for all processes that have ended."""
        while True:
            try:
                info = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                break
            if info is None:
                break
            name = name_of(info.si_pid)
            code = os.waitstatus_to_exitcode(os.waitpid(info.si_pid, 0)[1])
            self._ended(info.si_pid, name, code if code >= 0 else 128 - code)
        if any(kept.is_leaving for kept in self._kept):
            self._look_soon()

    def _woke(self) -> None:
        os.read(self._woken, 512)
        self._reap()

    def _ended(self, pid: int, name: str, status: int) -> None:
        self._families.ended(pid)
        if name in DAEMONS:
            self._tell(orders.DaemonEnded(name, status))
        for kept in list(self._kept):
            if kept.pid == pid and not kept.has_exited:
                kept.exited(status)
                self._look_soon()
                for rank in self._ranks_of(kept):
                    rank.on(machine.Orphaned())
            elif kept.launched and kept.launched.launcher == pid and kept.is_held:
                kept.on(machine.LauncherGone())

    def _ranks_of(self, program: Kept) -> list[Kept]:
        """Return the ranks that were started by a launcher which is this program, and that run."""
        return [
            kept
            for kept in self._kept
            if kept.launched and kept.launched.owner is program and not kept.has_exited
        ]

    def _keep(
        self,
        name: tuple[str, int],
        form: KeptForm,
        words: tuple[bytes, ...],
        env: dict[bytes, bytes],
        cwd: str,
        asked: Asked | None = None,
    ) -> None:
        """Start a program or rank, and keep it."""
        self._serial += 1
        mark = str(self._serial)
        self._attempt.mark(env, name, mark)
        variables = {os.fsdecode(key): os.fsdecode(value) for key, value in env.items()}
        streams = Streams([], bytearray())
        pid = 0
        failed: OSError | None = None
        try:
            streams, fds = self._attempt.streams(form, name, streams.tail, asked, self._tell)
            pid = _forked(tuple(map(os.fsdecode, words)), variables, cwd, fds, asked)
        except OSError as error:
            failed = error
        kept = Kept((*name, mark), form, pid, streams, self._families.of, self._tell)
        self._kept.append(kept)
        if asked is not None:
            kept.launched = asked.launched
            kept.requests = self._attempt.requests
            self._families.placeholders.add(asked.launched.pid)
            kept.report("placeholder", asked.launched.pid)
        kept.report("start", pid)
        if failed is not None:
            self._not_started(kept, os.fsdecode(words[0]), failed)
            return
        self._families.add(kept)
        kept.look_for_launchers(variables)
        if kept.kind != orders.DAEMON and not form.is_launcher:
            entries = tuple(map(b"=".join, env.items()))
            if sum(map(len, words + entries)) <= _STARTED:
                self._tell(orders.StartedAs(*name, words, entries))

    def _not_started(self, kept: Kept, program: str, error: OSError) -> None:
        """Report why a program cannot be started or kept, as its end."""
        of_log = error.filename == kept.form.output.log
        place = f"{error.filename}: " if error.filename else ""
        text = f"cannot keep {program} | {place}{error.strerror}\n"
        kept.streams.tail += text.encode("utf-8", "surrogateescape")
        if of_log:
            kept.report("log", error.errno or 0)
        status = _RETRY if error.errno == _EAGAIN else _CANT_CREATE if of_log else _OS_ERROR
        kept.exited(status)
        self._look_soon()

    # -- launchers

    def _read_requests(self) -> None:
        requests = self._attempt.requests
        if requests is None:
            return
        for request in requests.read():
            known = {kept.placeholder: kept for kept in self._kept}.get(request.pid)
            if not request.signum and (known is not None or self._launcher_above(request.pid)):
                requests.hear(request)
            if known is None and not request.signum:
                self._start_rank(request.pid)
            elif known is not None and request.signum:
                is_term = request.signum == _signal.SIGTERM
                known.on(machine.LauncherEnds() if is_term else machine.Told(request.signum))

    def _start_rank(self, pid: int) -> None:
        """Start the rank of this placeholder, if it is one. One that is not ends with a failure."""
        ranks = self._attempt.begun.ranks
        requests = self._attempt.requests
        if ranks is None or requests is None or not (top := self._launcher_above(pid)):
            return
        if top == _NOBODY:
            requests.answer(pid, _OS_ERROR)
            return
        watch = placeholder.Watch(pid)
        place = placeholder.place(pid, ranks)
        same = [
            kept
            for kept in self._kept
            if place and (kept.kind, kept.number) == (orders.RANK, place.number)
        ]
        for kept in same:
            if kept.launched and has_ended(kept.launched.pid):
                self._left(kept)  # torch has started this rank again
        if place is None or any(kept.placeholder or not kept.has_left for kept in same):
            watch.close()
            if any(kept.placeholder for kept in same):
                requests.answer(pid, _OS_ERROR)
            elif place is not None:
                self._attempt.waiting.add(pid)  # until the other has been killed
            return
        owner = next((kept for kept in self._kept if kept.pid == top), None)
        has_launcher = any(kept.form.output.is_of_launcher for kept in self._kept)
        launched = Launched(pid, state(pid)[1], owner, watch)
        launched.passed_fd = requests.passed.pop(pid, None)
        self._keep(
            (orders.RANK, place.number),
            ranks.form.of(place.number, has_launcher),
            place.words,
            dict(place.env),
            place.cwd,
            Asked(place, launched),
        )

    def _launcher_above(self, pid: int) -> int:
        """Return the child of this keeper that has started this process: a program of this node, or
        a daemon of an MPI, or what has started that; _NOBODY if it is another one, such as a rank,
        and 0 if this process is not below this keeper.

        A daemon is known by its name, where no rank can be: before the first one, or below what
        this node was asked to start.
        """
        me = os.getpid()
        ranks = {kept.pid for kept in self._kept if kept.kind == orders.RANK}
        ranks |= {kept.placeholder for kept in self._kept}
        above = []
        parent = state(pid)[1]
        while parent not in (0, me):
            if parent in ranks:
                return _NOBODY
            above.append(parent)
            parent = state(parent)[1]
        if not parent:
            return 0
        starters = {kept.pid for kept in self._kept if kept.kind == orders.DAEMON}
        daemons = self._attempt.daemons
        if above and (not self._attempt.has_ranks or above[-1] in starters):
            daemons |= {pid for pid in above if name_of(pid) in DAEMONS}
        programs = {kept.pid for kept in self._kept if kept.kind == orders.PROGRAM}
        if not {*above} & (programs | daemons):
            return _NOBODY
        self._attempt.has_ranks = True
        return above[-1]

    def _left(self, kept: Kept) -> None:
        """Note that a placeholder has ended."""
        launched = kept.launched
        if launched is None or launched.is_gone:
            return
        launched.is_gone = True
        launched.watch.close()
        self._families.placeholders.discard(launched.pid)
        if self._attempt.requests is not None:
            self._attempt.requests.forget(launched.pid)
        if launched.status is None:
            kept.on(machine.LauncherGone())
            self._look_soon()
        self._remove_gone()

    def _remove_gone(self) -> None:
        """Forget ranks of which nothing is left; streams that their processes hold are their
        launcher's."""
        for kept in [kept for kept in self._kept if kept.kind == orders.RANK and kept.has_left]:
            if not kept.placeholder and kept.streams.close_targets():
                self._kept.remove(kept)
        waiting = self._attempt.waiting
        self._attempt.waiting = set()
        for pid in waiting:
            self._start_rank(pid)


def _handle(waits: list[Wait], due: float) -> None:
    """Wait for events until this time at most, and handle them."""
    by_fd = {fd: act for fd, _, act in waits}
    poll = select.poll()
    for fd, mask, _ in waits:
        poll.register(fd, mask)
    limit = None if due == machine.NEVER else max(0.0, due - time.monotonic()) * 1000
    for fd, _ in poll.poll(limit):
        by_fd[fd]()


def _forked(
    words: tuple[str, ...],
    env: Mapping[str, str],
    cwd: str,
    streams: tuple[int, int, int],
    asked: Asked | None,
) -> int:
    """Start a program, and return its pid. The streams that are its own are closed here. Raises
    OSError."""
    place = asked.place if asked else None
    passed = asked.launched.passed_fd if asked else None
    try:
        return fork(ToStart(words, env, cwd, streams, place, passed), os.getpid())
    finally:
        for fd in {fd for fd in streams if fd > 2}:
            os.close(fd)


def _die() -> None:
    """End with all that is kept: the entrypoint is gone, and no other process could end them."""
    sweep()
    os._exit(128 + _signal.SIGKILL)


_ORDERS: Mapping[type, Callable[[Keeper, Any], None]] = {
    orders.Begin: Keeper._begin,
    orders.StartProgram: Keeper._start,
    orders.SignalAll: Keeper._signal,
    orders.ReleaseRanks: Keeper._release,
    orders.EndAttempt: Keeper._end,
}
