"""The nodes of `entrypoint local`: starts a real `entrypoint run` for each, makes faults, and awaits their ends."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING

from entrypoint.output.mux import Merge
from entrypoint.system import children, proc, process
from entrypoint.system.signals import USERS
from entrypoint.text import count, duration
from entrypoint.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

    from entrypoint.local.faults import Fault, Faults
    from entrypoint.text import Log

_SAME = 0.2  # seconds within which two signals are one request: timeout(1) signals us, and then our group
_FORCED = 5.0  # seconds from the second signal until what is left is killed
_GONE = 10.0  # seconds for killed processes to be gone


@dataclass(frozen=True)
class NodeCommand:
    """How a node is started."""

    argv: tuple[str, ...]
    env: Mapping[str, str]


class LocalCluster:
    """Runs all nodes. `resolve` makes their names known, where that is to come late."""

    def __init__(
        self, starts: Sequence[NodeCommand], faults: Faults, signals: int, resolve: Callable[[], object], log: Log
    ) -> None:
        self._starts = starts
        self._faults = faults
        self._resolve = resolve
        self._log = log
        self._signals = signals
        self._loop = asyncio.get_running_loop()
        self._merge = Merge()
        self._running: dict[int, asyncio.subprocess.Process] = {}
        self._ended: dict[int, int] = {}  # node -> status
        self._ahead = list(faults.each)  # faults that are still to come
        self._why: dict[int, str] = {}  # node -> the fault that ended it
        self._frozen: dict[int, float | None] = {}  # node -> when it continues, None for never
        self._stops = 0  # how often we were asked to stop,
        self._asked = -_SAME  # and when last
        self._over = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self.orphaned = False  # whether the process that people see is gone

    async def run(self) -> int:
        """From the start to the end of all nodes; worker-0's status."""
        self._loop.add_reader(self._signals, self._signalled)
        late = self._faults.late
        timers = [self._loop.call_later(fault.at, self._make, fault) for fault in self._faults.each]
        if self._faults.late_dns is not None:
            timers.append(self._loop.call_later(self._faults.late_dns, self._name))
        timers += [
            self._loop.call_later(fault.ends, self._continue, fault)
            for fault in self._faults.each
            if fault.ends is not None
        ]
        for node in reversed(range(len(self._starts))):  # worker-0 last: the order does not matter
            if node not in late and not self._stops:
                await self._start(node)
        await self._over.wait()
        for timer in timers:
            timer.cancel()
        self._loop.remove_reader(self._signals)
        for node in self._frozen.keys() & self._running.keys():
            self._why.setdefault(node, "still frozen, and killed")
        left = await children.end_all(_GONE)
        if left:
            self._log(f"killed processes are still there after {_GONE:g}s | {'; '.join(left)}")
        await asyncio.gather(*self._tasks)
        if lost := await self._merge.finish():
            self._log(f"warning: EP037 output of the nodes is lost, {lost} bytes | nobody reads it")
        return self._result()

    # -- nodes

    async def _start(self, node: int) -> None:
        streams = [os.pipe(), os.pipe()]
        out, err = (writing for _, writing in streams)
        start, nothing = self._starts[node], asyncio.subprocess.DEVNULL
        try:
            self._running[node] = await children.start(start.argv, start.env, stdin=nothing, stdout=out, stderr=err)
        finally:
            os.close(out)
            os.close(err)
        for (reading, _), target in zip(streams, (1, 2), strict=True):
            self._merge.add(reading, target)
        self._background(self._await(node))
        if self._stops:  # it came while the node was being started
            self._kill([node], signal.SIGTERM)

    async def _await(self, node: int) -> None:
        code = await self._running[node].wait()
        self._ended[node] = process.exit_status(code)
        del self._running[node]
        self._look()

    def _background(self, work: Coroutine[None, None, None]) -> None:
        """Run it in the background; an error in it ends the run, which raises it."""
        task = asyncio.create_task(work)
        self._tasks.append(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception():
            self._over.set()

    def _look(self) -> None:
        """The job is over once nobody is left who can end by itself, and worker-0 was started."""
        left = [node for node in self._running if self._frozen.get(node, 0.0) is not None]
        if not left and (self._stops or 0 in self._running or 0 in self._ended):
            self._over.set()

    def _result(self) -> int:
        """Say how the nodes ended; worker-0's status."""
        each = []
        for node in range(len(self._starts)):
            status = str(self._ended[node]) if node in self._ended else "not started"
            each.append(f"worker-{node} {status}" + (f" ({self._why[node]})" if node in self._why else ""))
        if self._ahead:
            self._log(f"the job was over before {', '.join(fault.given for fault in self._ahead)}")
        result = self._ended.get(0, 128 + signal.SIGTERM)
        if len(each) > 1 and len({self._ended.get(node) for node in range(len(each))}) == 1:
            self._log(f"all {len(each)} nodes ended with {result}")
        elif len(each) > 1:
            self._log(f"the nodes ended differently: {', '.join(each)}; this ends with worker-0's, {result}")
        return result

    # -- signals to us

    def _signalled(self) -> None:
        data = os.read(self._signals, 64)
        if not data:
            self.orphaned = True
            self._over.set()
        for number in data:
            signum = signal.Signals(number)
            if signum in USERS:
                self._kill(self._running, signum)
                continue
            if self._loop.time() - self._asked < _SAME:
                continue
            self._asked = self._loop.time()
            self._stops += 1
            if self._stops == 1:
                self._log(f"{signum.name}: stopping, with SIGTERM to every node; once more skips the grace")
                self._kill(self._running, signal.SIGTERM)
            elif self._stops == 2:
                self._log(f"{signum.name} again: not waiting for the grace to end")
                self._kill(self._running, signal.SIGTERM)
                self._loop.call_later(_FORCED, self._over.set)
                self._frozen = dict.fromkeys(self._frozen)  # nobody waits for them any more
            else:
                self._over.set()
            self._look()

    def _kill(self, nodes: Sequence[int] | Mapping[int, object], signum: int) -> None:
        proc.kill([self._running[node].pid for node in nodes], signum)

    # -- faults

    def _tell(self, at: float, text: str) -> None:
        self._log(f"{duration(at)} after the start: {text}")

    def _name(self) -> None:
        self._resolve()
        self._tell(self._faults.late_dns or 0.0, "the nodes' names resolve from now on (--late-dns)")

    def _make(self, fault: Fault) -> None:
        self._ahead.remove(fault)
        name = f"worker-{fault.node}"
        if fault.kind == "late":
            if not self._stops:
                self._tell(fault.at, f"starting {name} ({fault.given})")
                self._background(self._start(fault.node))
            return
        if fault.node not in self._running:
            state = "has ended already" if fault.node in self._ended else "is not started yet"
            self._tell(fault.at, f"{name} {state}, so nothing happens to it ({fault.given})")
            return
        pid = self._running[fault.node].pid
        if fault.kind == "stop":
            self._tell(fault.at, f"SIGTERM to {name} ({fault.given})")
            proc.kill([pid], signal.SIGTERM)
            return
        tree = _stop_all(pid)  # also before a kill: then nobody sees the others die
        to = f"{name}, {count(len(tree), 'process', 'processes')}"
        if fault.kind == "freeze":
            until = f" until {duration(fault.ends)}" if fault.ends is not None else ""
            self._tell(fault.at, f"SIGSTOP to {to}{until} ({fault.given})")
            self._frozen[fault.node] = fault.ends
            self._look()
            return
        self._tell(fault.at, f"SIGKILL to {to} ({fault.given})")
        self._why[fault.node] = fault.given
        self._frozen.pop(fault.node, None)
        proc.kill(tree, signal.SIGKILL)

    def _continue(self, fault: Fault) -> None:
        if fault.node in self._running and self._frozen.pop(fault.node, None) is not None:
            pid = self._running[fault.node].pid
            proc.kill([*reversed(proc.descendants(pid)), pid], signal.SIGCONT)
            self._tell(fault.ends or 0.0, f"worker-{fault.node} continues ({fault.given})")


def _stop_all(pid: int) -> list[int]:
    """SIGSTOP to a process and all below it, until none is left that could start another. Returns them."""
    stopped: list[int] = []
    while new := [each for each in (pid, *proc.descendants(pid)) if each not in stopped]:
        proc.kill(new, signal.SIGSTOP)
        stopped += new
    return stopped
