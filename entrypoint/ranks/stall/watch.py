"""The observation of this node's ranks: last steps and stacks, as messages and in the log."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping

from entrypoint.base.model import Facts, Plan
from entrypoint.base.text import one_line
from entrypoint.base.values import frozen, replace
from entrypoint.job.messages import STEPS, RankStacks, Steps
from entrypoint.job.stacks import PROCESSES, Frame, ProcessStack
from entrypoint.output import steps
from entrypoint.output.log import Callbacks
from entrypoint.plan import environment
from entrypoint.ranks.node_ranks import NodeRanks
from entrypoint.spec.jobspec import StallSpec
from entrypoint.system import proc

_LIMIT = 10.0  # seconds to read the stacks of a job that has stalled
_CHILDREN = 16  # processes of one rank that are read, besides its own
_HELPERS = ("resource_tracker", "torch/_inductor/compile_worker", "semaphore_tracker")


@frozen
class WatchedRank:
    """A rank or program of this node: the number by which it is kept, the rank, its name, and its
    pid, 0 if it has ended."""

    number: str  # in the names of its files
    rank: int  # -1: a program that is no rank
    what: str
    pid: int
    status: int  # of one that has ended


class RankWatcher:
    """Reads what the ranks of this node do, and reports it. They are those that the launcher
    starts, and those that a program of this node starts."""

    def __init__(
        self,
        stall: StallSpec,
        facts: Facts,
        draft: Plan,
        callbacks: Callbacks,
        ranks: NodeRanks,
    ) -> None:
        self._stall = stall
        self._env = facts.env
        self._draft = draft
        self.launch = draft.launch  # until the plan is settled
        self._tell = callbacks.tell
        self._log = callbacks.log
        self._ranks = ranks
        self._had_steps = False  # whether the last report of steps had any

    def _watched(self) -> list[WatchedRank]:
        """Return the ranks of this node, or its programs where these are not known to start any."""
        launch = self.launch
        kept = self._ranks.without_launchers
        if launch.ranks.kind.in_programs and not kept.alive and not kept.statuses:
            kept = self._ranks.programs
        programs = {}
        if kept is self._ranks.programs:
            programs = {
                number: (-1 if program.rank is None else program.rank, program.label)
                for number, program in enumerate(launch.programs)
            }
        alive, left = kept.alive, kept.statuses
        watched = []
        for number in sorted({*alive, *left}):
            rank, label = programs.get(number, (number, ""))
            what = f"rank {rank}" if rank >= 0 else label or self._draft.launcher
            pid = 0 if number in left else alive[number]
            if not pid and number not in left:
                continue  # it is being started
            watched.append(WatchedRank(str(number), rank, what, pid, left.get(number, 0)))
        return watched

    def tell_steps(self, of_all: bool = False) -> None:
        """Report the last steps of the ranks that run here, if the job is to have any; or `of_all`,
        also of those that have ended."""
        if self._stall.line is None:
            return
        rows = []
        now = time.monotonic()
        for rank in self._watched():
            last = steps.last(self._draft.topology.run_dir, rank.number)
            if last is not None and (of_all or rank.pid):
                rows.append((rank.rank, last[1], max(0.0, now - last[0])))
        if rows or self._had_steps:  # also once, when no rank is left
            self._had_steps = bool(rows)
            self._tell(Steps(tuple(rows[:STEPS])))

    async def tell_stacks(self) -> None:
        """Report what all processes of the ranks here do."""
        self._tell(await self._positions())

    async def lines(self) -> tuple[str, ...]:
        """Return what all processes of the ranks here do, as the leader would say it."""
        # Only `entrypoint stacks` on a worker needs it.
        from entrypoint.job.stall.judge import judge

        topology = self._draft.topology
        found = await self._positions()
        return judge({topology.me: found.stacks}, topology.name).lines

    async def _positions(self) -> RankStacks:
        """Return the stacks of all processes here, with their collective operations."""
        stacks, operations = await asyncio.gather(self._read(_LIMIT), self._ask_recorder())
        named = (replace(stack, operation=operations.get(stack.rank, "")) for stack in stacks)
        return RankStacks(tuple(named))

    async def _read(self, limit: float) -> tuple[ProcessStack, ...]:
        from entrypoint.ranks.stall import reader  # only a stall, or the end of a grace, needs it

        async def read(rank: WatchedRank, pid: int, is_child: bool) -> ProcessStack:
            state, kernel = reader.kernel_of(pid)
            frames: tuple[Frame, ...] = ()
            note = "is no Python"
            if _is_python(pid):
                frames, note = await reader.read(pid, limit)
            return ProcessStack(
                rank.rank, rank.what, pid, is_child, state, kernel, one_line(note, 100), frames
            )

        watched = self._watched()
        gone = [_gone(rank) for rank in watched if not rank.pid][:PROCESSES]
        wanted = [
            (rank, pid, at > 0)
            for rank in watched
            if rank.pid
            for at, pid in enumerate(_processes(rank.pid))
        ]
        # Ranks first: where there is no room for all, data workers are left out.
        wanted.sort(key=lambda entry: entry[2])
        room = PROCESSES - len(gone)
        found = await asyncio.gather(*(read(*entry) for entry in wanted[:room]))
        return (*gone, *found)

    async def _ask_recorder(self) -> Mapping[int, str]:
        """Return the operation of each rank here, where torch's flight recorder answers."""
        from entrypoint.ranks.stall import flightrecorder

        place = flightrecorder.prefixes(environment(self._env, self._draft.env))
        ranks = [rank.rank for rank in self._watched() if rank.pid and rank.rank >= 0]
        return await flightrecorder.ask(place, ranks, _LIMIT) if place else {}

    async def show(self, limit: float) -> None:
        """Log what the processes of the ranks here do."""
        for stack in await self._read(limit):
            if not stack.pid:
                continue
            state = f"state {stack.state}{f', in {stack.kernel}' if stack.kernel else ''}"
            self._log(f"{stack.what}, pid {stack.pid}, {_command(stack.pid)}: {state}")
            for frame in stack.frames:
                self._log(f"  | {frame.function} ({frame.file}:{frame.line})")
            if stack.note and not stack.frames:
                self._log(f"  | {stack.note}")


def _gone(rank: WatchedRank) -> ProcessStack:
    note = f"exited with {rank.status}"
    state = "left" if rank.status else "ended"
    return ProcessStack(rank.rank, rank.what, 0, False, state, "", note)


def _processes(program: int) -> list[int]:
    """Return a rank's own process, then those that it has started."""
    below = [program, *proc.descendants(program)]
    main = next((pid for pid in below if _is_python(pid)), program)
    started = [pid for pid in proc.descendants(main) if _is_python(pid)]
    workers = [pid for pid in started if not any(word in _command(pid) for word in _HELPERS)]
    return [main, *workers[:_CHILDREN]]


def _is_python(pid: int) -> bool:
    try:
        return os.path.basename(os.readlink(f"/proc/{pid}/exe")).startswith("python")
    except OSError:
        return False


def _command(pid: int) -> str:
    try:
        line = proc.content(pid, "cmdline", 4096).replace(b"\0", b" ")
        return one_line(line.decode(errors="replace"), 200)
    except OSError:
        return ""
