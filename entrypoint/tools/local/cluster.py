"""The nodes of `entrypoint local`: starts a real `entrypoint run` for each, injects faults, and
awaits their ends."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Coroutine, Mapping, Sequence

from entrypoint.base.text import Log, count, duration
from entrypoint.base.values import dataclass
from entrypoint.output.mux import Merge
from entrypoint.system import children, proc, process
from entrypoint.system.signals import Signals
from entrypoint.tools.local.faults import Fault

_POLL = 0.2  # seconds between checks whether a killed node has ended
_FORCED = 5.0  # seconds from the second signal until remaining processes are killed
_GONE = 10.0  # seconds for killed processes to be gone


@dataclass
class LocalCluster:
    """All nodes of a run, which start with the same command, each in its environment."""

    _argv: Sequence[str]
    _envs: Sequence[Mapping[str, str]]
    _faults: Sequence[Fault]
    _signals: Signals
    _log: Log

    def __post_init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._merge = Merge()
        self._running: dict[int, asyncio.subprocess.Process] = {}
        self._ended: dict[int, int] = {}  # node -> status
        self._pending = list(self._faults)  # faults that are still to be injected
        self._causes: dict[int, str] = {}  # node -> the fault that ended it
        self._frozen: dict[int, float | None] = {}  # node -> when it continues, None for never
        self._returning: set[int] = set()  # killed nodes that are to start again
        self._stops = 0  # requests to stop
        self._over = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def run(self) -> int:
        """Run all nodes to their end, and return worker-0's status."""
        self._signals.take(self._stop, lambda signum: self._kill(self._running, signum))
        late = [fault.node for fault in self._faults if fault.kind == "late"]
        timers = [self._loop.call_later(fault.at, self._inject, fault) for fault in self._faults]
        timers += [
            self._loop.call_later(fault.ends, self._end, fault)
            for fault in self._faults
            if fault.ends is not None
        ]
        for node in reversed(range(len(self._envs))):  # worker-0 last: the order does not matter
            if node not in late and not self._signals.stopped:
                await self._start(node)
        await self._over.wait()
        for timer in timers:
            timer.cancel()
        for node in self._frozen.keys() & self._running.keys():
            self._causes.setdefault(node, "still frozen, and killed")
        if remaining := await children.end_all(_GONE):
            self._log(f"killed processes are still there after {_GONE:g}s | {'; '.join(remaining)}")
        await asyncio.gather(*self._tasks)
        if lost := await self._merge.finish():
            self._log(f"warning: EP037 output of the nodes is lost, {lost} bytes | nobody reads it")
        return self._result()

    # -- nodes

    async def _start(self, node: int) -> None:
        streams = [os.pipe(), os.pipe()]
        out, err = (writing for _, writing in streams)
        null = asyncio.subprocess.DEVNULL
        try:
            self._running[node] = await children.start(
                self._argv, self._envs[node], stdin=null, stdout=out, stderr=err
            )
        finally:
            os.close(out)
            os.close(err)
        for (reading, _), target in zip(streams, (1, 2), strict=True):
            self._merge.add(reading, target)
        self._background(self._await(node))
        if self._stops:  # a stop was requested while the node was being started
            self._kill([node], signal.SIGTERM)

    async def _await(self, node: int) -> None:
        code = await self._running[node].wait()
        self._ended[node] = process.exit_status(code)
        del self._running[node]
        self._check_end()

    def _background(self, work: Coroutine[None, None, None]) -> None:
        """Run a coroutine in the background; an error in it ends the run, which raises it."""
        task = asyncio.create_task(work)
        self._tasks.append(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception():
            self._over.set()

    def _check_end(self) -> None:
        """End the run if no node can end on its own any more, and worker-0 was started.

        A killed node does not start again once the others have ended."""
        active = [node for node in self._running if self._frozen.get(node, 0.0) is not None]
        if self._returning and not self._stops and not self._ended.keys() - self._causes.keys():
            return
        if not active and (self._stops or 0 in self._running or 0 in self._ended):
            self._over.set()

    def _result(self) -> int:
        """Log how the nodes ended, and return worker-0's status."""
        ends = []
        for node in range(len(self._envs)):
            status = self._ended.get(node, "not started")
            cause = f" ({self._causes[node]})" if node in self._causes else ""
            ends.append(f"worker-{node} {status}{cause}")
        if self._pending:
            self._log(
                f"the job was over before {', '.join(fault.option for fault in self._pending)}"
            )
        result = self._ended.get(0, 128 + signal.SIGTERM)
        if len(ends) > 1 and len({self._ended.get(node) for node in range(len(ends))}) == 1:
            self._log(f"all {len(ends)} nodes ended with {result}")
        elif len(ends) > 1:
            self._log(
                f"the nodes ended differently: {', '.join(ends)}; this ends with worker-0's,"
                f" {result}"
            )
        return result

    # -- signals to this process

    def _stop(self, signum: int, again: bool) -> None:
        self._stops += 1
        if self._stops > 2:
            self._over.set()
            return
        self._kill(self._running, signum)
        if again:
            self._loop.call_later(_FORCED, self._over.set)
            self._frozen = dict.fromkeys(self._frozen)  # they are not waited for any more
        self._check_end()

    def _kill(self, nodes: Sequence[int] | Mapping[int, object], signum: int) -> None:
        proc.kill([self._running[node].pid for node in nodes], signum)

    # -- faults

    def _log_at(self, at: float, text: str) -> None:
        self._log(f"{duration(at)} after the start: {text}")

    def _inject(self, fault: Fault) -> None:
        self._pending.remove(fault)
        name = f"worker-{fault.node}"
        if fault.kind == "late":
            if not self._stops:
                self._log_at(fault.at, f"starting {name} ({fault.option})")
                self._background(self._start(fault.node))
            return
        if fault.node not in self._running:
            state = "has ended already" if fault.node in self._ended else "is not started yet"
            self._log_at(fault.at, f"{name} {state}, so nothing happens to it ({fault.option})")
            return
        pid = self._running[fault.node].pid
        if fault.kind == "stop":
            self._log_at(fault.at, f"SIGTERM to {name} ({fault.option})")
            proc.kill([pid], signal.SIGTERM)
            return
        tree = _stop_all(pid)  # also before a kill, so that no process sees the others die
        target = f"{name}, {count(len(tree), 'process', 'processes')}"
        if fault.kind == "freeze":
            until = f" until {duration(fault.ends)}" if fault.ends is not None else ""
            self._log_at(fault.at, f"SIGSTOP to {target}{until} ({fault.option})")
            self._frozen[fault.node] = fault.ends
            self._check_end()
            return
        again = f"; it starts again at {duration(fault.ends)}" if fault.ends is not None else ""
        self._log_at(fault.at, f"SIGKILL to {target}{again} ({fault.option})")
        self._causes[fault.node] = fault.option
        if fault.ends is not None:
            self._returning.add(fault.node)
        self._frozen.pop(fault.node, None)
        proc.kill(tree, signal.SIGKILL)

    def _end(self, fault: Fault) -> None:
        """End a fault: a killed node starts again, a frozen one continues."""
        if fault.kind == "freeze":
            if fault.node in self._running and self._frozen.pop(fault.node, None) is not None:
                pid = self._running[fault.node].pid
                proc.kill([*reversed(proc.descendants(pid)), pid], signal.SIGCONT)
                self._log_at(fault.ends or 0.0, f"worker-{fault.node} continues ({fault.option})")
        elif fault.node in self._running:  # its end is not known yet
            self._loop.call_later(_POLL, self._end, fault)
        elif fault.node in self._returning and not self._stops:
            self._returning.remove(fault.node)
            self._causes.pop(fault.node, None)
            self._ended.pop(fault.node, None)
            self._log_at(fault.ends or 0.0, f"starting worker-{fault.node} again ({fault.option})")
            self._background(self._start(fault.node))


def _stop_all(pid: int) -> list[int]:
    """Send SIGSTOP to a process and all below it, until none could start another, and return the
    pids."""
    stopped: list[int] = []
    while new := [entry for entry in (pid, *proc.descendants(pid)) if entry not in stopped]:
        proc.kill(new, signal.SIGSTOP)
        stopped += new
    return stopped
