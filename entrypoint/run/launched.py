"""What worker-0 hears of the ranks that mpirun starts on all nodes, and what it makes of mpirun's own end.

mpirun may start no rank, or too few, or stay when all have ended; its logins may fail, and its daemons may be killed.
Its status alone says little of that, or there is none.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from entrypoint.errors import ConfigError, RetryError
from entrypoint.jobspec import JobSpec
from entrypoint.model import Node, Outcome
from entrypoint.run import process
from entrypoint.run.progress import Say
from entrypoint.secret import masked_words
from entrypoint.verdict import End, Heard, placement, without_rank

_ESCAPES = {"\n": "\\n", "\t": "\\t", "'": "\\'", "\\": "\\\\"}  # in bash's $'...'
LINE = "line"  # file in the run directory: the words that run_mpi.sh has started mpirun with, each ended by NUL
_ENDS = 3.0  # seconds without a byte passed on, after every rank has ended well: it sleeps, and is ended
_SETTLE = 0.8  # seconds for what nodes know of that, before every rank has started: more than they take to look
_NO_LOGIN = 255  # ssh's own status; any other is that of what it started
_CANNOT_START = (126, 127)  # the daemon is not there, which is nobody's fault but the image's


@dataclass
class Launched:
    """The ranks of all nodes under one mpirun, as far as was heard."""

    spec: JobSpec
    nodes: tuple[Node, ...]
    run_dir: Path
    started: list[asyncio.subprocess.Process]  # mpirun, once it runs
    verdict: asyncio.Future[Outcome]
    failures: list[End]  # of ranks
    decide: Callable[[int, str], None]
    settle: Callable[[End], None]
    all_answer: Callable[[], Coroutine[Any, Any, None]]  # ... the workers have told all that they know
    say: Say
    ranks: Heard = field(default_factory=lambda: Heard(0))
    lost: str = ""  # a daemon that failed, in words
    shown: bool = False  # the line that mpirun was started with

    def start(self, rank: int, host: str) -> None:
        """A rank has started there."""
        self.ranks.placed[rank] = host
        self.show_line()
        if len(self.ranks.placed) != self.ranks.asked:
            return
        self.say(words := placement(self.ranks.placed))
        empty = without_rank(self.nodes, self.ranks.placed)
        chosen = self.spec.mpi.hostfile or self.spec.mpi.np  # then the user decides where ranks run
        if empty and not chosen:
            do = "see that mpirun's options let it use the hostfile"
            self.decide(ConfigError.status, f"no rank runs on {', '.join(empty)} | {words} | {do}")

    def show_line(self) -> None:
        """Say once how mpirun was started, as run_mpi.sh wrote it down; a secret of it is not shown."""
        file = self.run_dir / LINE
        if not self.shown and file.is_file():
            self.shown = True
            words = file.read_bytes().decode(errors="replace").split("\0")[:-1]
            self.say(f"started: {' '.join(map(_quoted, masked_words(words)))}")

    async def watch(self) -> None:
        """mpirun that has not started every rank by the deadline waits for a daemon that will not come, or hangs."""
        limit = self.spec.timeouts.launch
        await asyncio.wait({self.verdict}, timeout=limit)
        if not self.ranks.all_started():
            self.show_line()
            number = self.ranks.words() if self.ranks.placed else "no rank"
            do = "see that the nodes reach each other's ports, and on which interfaces: MY_MPI_BTL_TCP_IF"
            do += "; or wait longer: ENTRYPOINT_TIMEOUTS_LAUNCH"
            self.decide(RetryError.status, f"mpirun has started {number} within {limit:.0f}s | {do}")

    async def ended(self, end: End) -> None:
        """mpirun has ended; what is known of the ranks says what that means."""
        self.show_line()
        if self.failures or self.ranks.all_well() or (self.ranks.all_started() and end.status):
            self.settle(end)
        elif end.status:
            await self._failed(end)
        else:
            await self._hear_the_rest(end)

    async def _failed(self, end: End) -> None:
        """Before every rank has started, a login or a daemon that failed is the cause; else it is mpirun's own."""
        if len(self.nodes) > 1:
            await asyncio.wait({self.verdict}, timeout=_SETTLE)
        cause = self._failed_login() or self.lost
        if cause and not self.failures:
            self.decide(RetryError.status, cause)
        else:
            self.settle(end)

    def _failed_login(self) -> str:
        """The login of mpirun's that failed, as the file says that its agent (mpirun/agent.sh.j2) left."""
        for file in sorted(self.run_dir.glob("login.*")):
            host, status = file.name.removeprefix("login."), file.read_text().strip()
            if status.isdigit() and int(status) not in _CANNOT_START:
                what = "mpirun's login" if int(status) == _NO_LOGIN else "the start of mpirun's daemon"
                return f"{what} failed on {host} | ssh exited with {status} | see that node's log, and the network"
        return ""

    async def _hear_the_rest(self, end: End) -> None:
        """It ended with 0, and not every rank was heard to: what workers say of theirs is on its way.

        Whoever has answered, twice, said all that it knew when mpirun ended; who is silent is lost by its lease.
        """
        for _ in range(2):
            await self.all_answer()
        heard, what = self.ranks, "mpirun exited with 0"
        if not heard.all_started():
            asked = self.spec.source("mpi.np") if self.spec.mpi.np else "the slots of all nodes"
            do = f"-np is {heard.asked} by {asked}: see that OPENMPI_EXTRA_ARGS and the like do not change that"
            self.decide(ConfigError.status, f"{what} and has started {heard.words()} | {do}")
        elif heard.ended.keys() < heard.placed.keys():
            self.decide(RetryError.status, f"{what}, and nothing was heard of the end of {heard.not_heard()}")
        else:
            self.settle(end)

    async def end(self) -> None:
        """Every rank has ended well. mpirun passes on their last words and ends; one that sleeps is ended."""
        passed, now = -1, 0
        while now != passed and not self.verdict.done():
            passed = sum(process.written(each.pid) for each in self.started)
            # Where nobody reads our output it cannot pass on anything, and may wait for that as long as a rank may.
            limit = _ENDS if process.is_read(1, 2) else max(_ENDS, self.spec.timeouts.grace)
            await asyncio.wait({self.verdict}, timeout=limit)
            await self.all_answer()  # a node that was frozen may have something to pass on
            now = sum(process.written(each.pid) for each in self.started)
        if self.ranks.all_well() and not self.verdict.done():
            self.say("mpirun did not end, though every rank did: it is ended")
            self.settle(End(0, "every rank", "every rank exited with 0"))

    def daemon(self, host: str, name: str, status: int, why: str) -> None:
        """A daemon of mpirun's has ended there: killed, it takes mpirun and the other ranks with it, slowly."""
        if not status or self.ranks.all_well():
            return  # as it was told to
        reason = process.ended(f"mpirun's daemon {name} on {host}", status, why)
        if status > 128:
            self.decide(RetryError.status, reason)
        self.lost = self.lost or reason

    def limit(self, host: str, reason: str) -> None:
        """A node could not start a process: before every rank has started, it was one of those that are needed."""
        if not self.ranks.all_started():
            self.decide(RetryError.status, f"{host} cannot start its ranks: {reason}")


def _quoted(word: str) -> str:
    """A word as bash reads it, in one line: a program given by `python -c` has many."""
    if word.isprintable():
        return shlex.quote(word)
    escaped = (_ESCAPES.get(each, each if each.isprintable() else f"\\U{ord(each):08x}") for each in word)
    return f"$'{''.join(escaped)}'"
