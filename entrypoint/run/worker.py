"""Every node but worker-0: answers the roll call, and stays until it is released or its leader is gone."""

from __future__ import annotations

import asyncio
import signal
import time
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from entrypoint import __version__, heartbeat, interfaces
from entrypoint.errors import ConfigError, EntrypointError, OsError, RetryError, UnavailableError
from entrypoint.host import process
from entrypoint.host.progress import Waiting
from entrypoint.model import Node as Peer
from entrypoint.model import Outcome
from entrypoint.plan.members import with_interface
from entrypoint.run.node import KILL_MARGIN, Node, short
from entrypoint.session import codec
from entrypoint.session.resolve import resolve
from entrypoint.verdict import End, follow


class Worker(Node):
    """A node that follows."""

    async def run(self) -> Outcome:
        """From this node's start to its end, with the job's result."""
        self._stop: asyncio.Task[None] | None = None  # of this node's programs, under way or over
        self._released = False
        self._refused = ""  # why this node cannot be of the leader's job
        self._lease = self.spec.timeouts.lease
        self._caller = ""  # which leader we have answered
        self._heard = time.monotonic()
        self._called = asyncio.Event()
        self._waiting = Waiting(self.say, self.spec.timeouts.peers, "")
        try:
            self.background(self._boot())
            outcome = await self.verdict
            await self._end()
            # Where the leader is gone, each worker counts on from what it said last.
            return outcome if self._released else follow(outcome, self.attempt, self.spec.restarts, self.stop)
        finally:
            await self.close()

    # -- boot

    async def _boot(self) -> None:
        await self.open_door(self.draft)
        await self._wait_for_leader()
        await self._keep_lease()

    async def _wait_for_leader(self) -> None:
        limit = self.spec.timeouts.peers
        leader, own = self.topology.leader, self.topology.this
        self._waiting.update(leader.host, "it has not called yet")
        # Neither is needed to answer a call; a name that nobody knows is why none comes, so it is worth a word.
        for node in (leader, own):
            self.background(self._resolve(node))
        patience = limit
        try:
            # A leader that has called, and is still there, gives up by itself and says why.
            while not await self._called_within(patience) and self._leader_is_there():
                patience = self._patience()
        finally:
            self._waiting.close()
        if not self._called.is_set():
            seen = ", ".join(f"{host}: {state}" for host, state in self._waiting.missing().items())
            do = "see its log, or wait longer: ENTRYPOINT_TIMEOUTS_PEERS"
            raise UnavailableError(f"{leader.host} did not call within {limit:.0f}s", seen, do)

    async def _called_within(self, seconds: float) -> bool:
        try:
            await asyncio.wait_for(self._called.wait(), seconds)
        except asyncio.TimeoutError:
            return False
        return True

    def _leader_is_there(self) -> bool:
        connected = self.endpoint is not None and self.endpoint.connected
        return connected and time.monotonic() - self._heard <= self._patience()

    async def _resolve(self, node: Peer) -> None:
        update = partial(self._waiting.update, f"the name {node.host}")
        await resolve(node.address or node.host, None, update)
        update("")

    def on_sshd_line(self, line: str) -> None:
        # A leader that takes us for another job's leaves before it logs in; one that we do not know is refused.
        if not self._called.is_set() and ("[preauth]" in line or line.startswith("Failed ")):
            self._waiting.update(self.topology.leader.host, "someone called, not with this job's keys: another secret?")

    async def _keep_lease(self) -> None:
        """The leader speaks every fifth of the lease; nothing of it for longer than that allows: it is gone."""
        while not self.verdict.done():
            now = time.monotonic()
            due = now + min(heartbeat.interval(self._lease), max(0.1, self._heard + self._patience() - now))
            await asyncio.wait({self.verdict}, timeout=due - now)
            self._heard = heartbeat.forgiven(self._heard, due, time.monotonic())
            quiet = time.monotonic() - self._heard
            if quiet > self._patience():
                reason = f"{self.topology.leader.host} is lost: nothing heard of it for {quiet:.0f}s"
                self._tell_failure(Outcome(RetryError.status, reason))  # read when it wakes
                self.decide(RetryError.status, reason)

    def _patience(self) -> float:
        return heartbeat.patience(self._lease)

    # -- what the leader says

    def on_leader(self, message: codec.Message) -> None:
        self._heard = time.monotonic()
        kind = message["kind"]
        if self.verdict.done() and kind != "release":
            return  # this node is leaving; a leader that starts again finds the next one
        if kind == "hello":
            self._answer(message)
        elif kind == "start":
            self._called.set()
            self.attempt = message["attempt"]
            self.say(f"{self.topology.leader.host} has everyone; {self._role()}")
            self.background(self.start(self.draft.members, self._leader_env))
            if self.draft.launch.reports == "ranks":
                self.background(self.watch_limit())
        elif kind == "ping":
            self.ranks.read()  # what a rank said before is on its way before this answer
            self._say_to_leader("pong", quiet=self.quiet(), number=message["number"])
        elif kind == "signal":
            self.pass_on(signal.Signals[message["name"]])
        elif kind == "stacks":
            self.background(self._show_stacks())
        elif kind == "stop":
            if message["grace"] == 0:
                self.impatient.set()
            self._begin_stop(message["grace"])
        elif kind == "let_go":
            self.ranks.let_go()
        elif kind == "release":
            self._released = True
            self._say_to_leader("leaving")
            self.decide(message["status"], message["reason"], message["program"], message["again"])

    def _role(self) -> str:
        return "starting" if self.draft.launch.programs else "this node's ranks are started from there"

    def _answer(self, hello: codec.Message) -> None:
        wrong = self._disagreement(hello)
        if wrong:
            self._say_to_leader("refuse", what=wrong[0], seen=wrong[1], do=wrong[2])
            # Once it is heard, which ends the session: what is only sent goes down with our sshd.
            self._refused = " | ".join(wrong)
            asyncio.get_running_loop().call_later(KILL_MARGIN, self.decide, ConfigError.status, self._refused)
            return
        self._caller, self._lease = hello["leader"], hello["lease"]
        self._leader_env = hello["env"]
        mine = interfaces.of_address(self.facts.interfaces, [hello["address"]])
        self.draft = replace(self.draft, members=with_interface(self.draft.members, self.topology.me, mine))
        broken = self.broken() or self._cannot_prepare()
        self._say_to_leader(
            "facts",
            slots=self.topology.this.slots,
            mpi=self.facts.mpi,
            toolkit=__version__,
            clock=time.time(),
            attempt=self.attempt,
            broken=broken and (broken.status, broken.reason, broken.program),
            interface=mine and [mine.name, mine.address, mine.network],
            interfaces=interfaces.names(self.facts.interfaces),
        )

    def _cannot_prepare(self) -> Outcome | None:
        """Write what ranks need, before the answer, which lets them come. Returns why that failed."""
        if self.draft.launch.needs_rank_table:
            return None
        try:
            self.prepare(self.draft.members, self._leader_env)
        except EntrypointError as error:
            return Outcome(error.status, str(error))
        return None

    def _disagreement(self, hello: codec.Message) -> tuple[str, str, str] | None:
        """Why this container and the leader's can't be one job: what, seen, do."""
        hosts = [node.host for node in self.topology.nodes]
        # The toolkit first: a hello of another version has nothing else to compare.
        mine = {"toolkit": __version__, "hosts": hosts, "rank": self.topology.me, "launcher": self.draft.launcher}
        for name, value in mine.items():
            if hello.get(name) != value:
                seen = f"{short(value)} here, {short(hello.get(name))} on {self.topology.leader.host}"
                return f"the nodes disagree on {name}", seen, "give all nodes the same image and the same spec"
        return None

    def may_replace_leader(self, hello: codec.Message) -> bool:
        """Only the same one again, for as long as that is heard: nobody else takes a running job's node."""
        return hello.get("leader") == self._caller or not self._leader_is_there()

    def on_leader_lost(self, why: str) -> None:
        if self._refused:
            self.decide(ConfigError.status, self._refused)
        # Before the start it may come again: a leader calls until all have answered.
        if self._called.is_set():
            self.decide(RetryError.status, f"{self.topology.leader.host} is lost: {why}")

    def _say_to_leader(self, kind: str, **fields: Any) -> None:
        if self.endpoint is not None:
            self.endpoint.send(kind, **fields)

    # -- what happens here

    def on_rank(self, event: str, rank: int, value: int, tail: tuple[str, ...], why: str) -> None:
        self._say_to_leader("rank", event=event, rank=rank, value=value, tail=tail, why=why)

    def on_daemon(self, name: str, status: int, why: str) -> None:
        self._say_to_leader("daemon", name=name, status=status, why=why)

    def on_limit(self, reason: str) -> None:
        self._say_to_leader("limit", reason=reason)

    def on_program_end(self, end: End, last: bool) -> None:
        self._say_to_leader("ended", **asdict(end), last=last)

    def on_sshd_died(self, what: str) -> None:
        self.give_up(Outcome(OsError.status, what))

    def on_user_signal(self, signum: int) -> None:
        self._say_to_leader("signal", name=signal.Signals(signum).name)

    def on_signal(self, signum: int) -> None:
        if self.impatient.is_set():
            self._say_to_leader("hurry")
        outcome = Outcome(128 + signum, process.ended("this node", 128 + signum))
        if self._called.is_set() or self.attempt > 1:  # a job that has run is stopped as a whole
            self.give_up(outcome, stop=True)
        else:  # it may come again, and the job has not started: nobody else ends
            self._tell_failure(outcome, stop=True)
            super().give_up(outcome, stop=True)

    def give_up(self, outcome: Outcome, stop: bool = False) -> None:
        """The leader decides for all; without one, or when it does not in time, this node decides for itself."""
        if not self._leader_is_there():
            super().give_up(outcome, stop)
            return
        if stop:
            self.stop = self.stop or outcome
        self._tell_failure(outcome, stop)
        patience = self.spec.timeouts.grace + KILL_MARGIN + self._patience()
        asyncio.get_running_loop().call_later(patience, super().give_up, outcome)

    def _tell_failure(self, outcome: Outcome, stop: bool = False) -> None:
        status, reason, program = outcome.status, outcome.reason, outcome.program
        self._say_to_leader("failed", status=status, reason=reason, program=program, stop=stop)

    async def _show_stacks(self) -> None:
        await self.show_stacks()
        self._say_to_leader("shown")

    # -- end

    async def _end(self) -> None:
        """Leave at once where the leader has let us go; without it, the programs have their grace all the same."""
        if not self._released or self._stop is None:
            await asyncio.wait({self._begin_stop(0 if self._released else self.spec.timeouts.grace)})

    def _begin_stop(self, grace: float) -> asyncio.Task[None]:
        if self._stop is None:
            self._stop = self.background(self._stop_programs(grace))
        return self._stop

    async def _stop_programs(self, grace: float) -> None:
        await self.stop_programs(grace)
        self._say_to_leader("stopped")
