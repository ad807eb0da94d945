"""worker-0: calls the roll, starts the launcher, hears of every rank, and tells every node how the job ended."""

from __future__ import annotations

import asyncio
import secrets
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial

from entrypoint import __version__, heartbeat, interfaces
from entrypoint.errors import ConfigError, RetryError, UnavailableError
from entrypoint.host import process
from entrypoint.host.progress import Waiting
from entrypoint.model import Members, Outcome
from entrypoint.model import Node as Peer
from entrypoint.plan.members import clock_warnings, with_interface
from entrypoint.run.launched import Launched
from entrypoint.run.node import KILL_MARGIN, Node, short
from entrypoint.session import codec
from entrypoint.session.pulse import Pulse
from entrypoint.session.resolve import resolve
from entrypoint.session.rollcall import RollCall
from entrypoint.session.session import Session
from entrypoint.verdict import End, Ends, UserSignals, count, everywhere, follow

_SHOWN = 15.0  # seconds for every node to show its stacks
_PASS_ON = 1.0  # seconds for the launcher to pass on what ranks said last


class Leader(Node):
    """The node that decides."""

    async def run(self) -> Outcome:
        """The whole job, from this node's start to its end."""
        self._call: RollCall | None = None
        self._ends = Ends()
        self._questions = 0
        self._launched = Launched(
            spec=self.spec,
            nodes=self.topology.nodes,
            run_dir=self.run_dir.path,
            started=self._started,
            verdict=self.verdict,
            failures=self._ends.failures,
            decide=self.decide,
            settle=self._settle,
            all_answer=self._all_answer,
            say=self.say,
        )
        self._quiet: dict[int, float] = {}  # node -> seconds since it printed, as it said last
        self._said: defaultdict[tuple[int, str], asyncio.Event] = defaultdict(asyncio.Event)
        self._released = False
        self._name = secrets.token_hex(8)  # another leader with our keys has another
        self._pulse = Pulse(self.spec.timeouts.lease, self._sessions)
        self._user_signals = UserSignals()
        self._begun = self._leaves = False  # whether all were told to start; whether only this node ends
        try:
            self.background(self._boot())
            return await self._end(await self.verdict)
        finally:
            await self.close()

    # -- boot

    async def _boot(self) -> None:
        members = self.draft.members
        if self.draft.mode == "coordinated":
            await self.open_door(self.draft)
            members = await self._call_roll()
            if self.verdict.done():
                return
        launch = self.draft.launch if self.draft.launch.needs_rank_table else self.prepare(members).launch
        self._launched.ranks.asked = launch.ranks or 0 if launch.reports == "ranks" else 0
        awaited = range(len(self.topology.nodes)) if launch.awaited is None else launch.awaited
        self._ends.awaited = set(awaited) if self._sessions() else {self.topology.me}  # of others nothing is heard
        self._begun = True
        for session in self._sessions().values():
            session.send("start", attempt=self.attempt)
        await self.start(members)
        if launch.reports == "ranks":
            self.background(self._launched.watch())
            self.background(self.watch_limit())
        if self.spec.stall.minutes:
            self.background(self._watch_for_stalls(60 * self.spec.stall.minutes))

    async def _call_roll(self) -> Members:
        assert self.keys is not None
        limit = self.spec.timeouts.peers
        waiting = Waiting(self.say, limit)
        own_name = Waiting(self.say, limit, "")
        begun = time.monotonic()
        self._call = RollCall(
            self.topology.peers,
            self.topology.user,
            self.keys,
            self._question,
            self._on_message,
            waiting,
            self.say,
        )
        own = self.topology.this
        report = replace(self.draft.members.reports[own.rank], broken=self.broken())
        self.background(self._pulse.beat())
        try:
            # The daemons of the others call this node back by its name.
            _, members = await asyncio.gather(
                self._resolve_own_name(limit, partial(own_name.update, f"the name {own.host}")),
                self._call.gather(report, limit),
            )
        finally:
            waiting.close()
            own_name.close()
        mine = interfaces.of_address(self.facts.interfaces, [each.local for each in self._sessions().values()])
        members = with_interface(members, own.rank, mine)
        broken = [(each.broken, self.topology.nodes[each.rank].host) for each in members.reports if each.broken]
        if broken:
            first, words = broken[0][0], "; ".join(f"{each.reason} on {host}" for each, host in broken)
            self.decide(first.status, words, first.program)
            return members
        # A leader that has replaced a lost one does not know how often the others have started.
        self.attempt = max(self.attempt, *(report.attempt for report in members.reports))
        for words in clock_warnings(self.topology, members):
            self.say(words)
        slots = sum(report.slots for report in members.reports)
        self.say(f"all {len(self.topology.nodes)} nodes are here, {slots} slots, after {time.monotonic() - begun:.1f}s")
        for session in self._sessions().values():
            self.background(self._watch(session))
        return members

    async def _resolve_own_name(self, limit: float, update: Callable[[str], None]) -> None:
        own = self.topology.this
        try:
            await asyncio.wait_for(resolve(own.address or own.host, None, update), limit)
        except asyncio.TimeoutError:
            raise UnavailableError(
                f"this node's own name has no address after {limit:.0f}s", own.host, "see that DNS knows it"
            ) from None

    def _question(self, peer: Peer, address: str) -> bytes:
        return codec.pack(
            "hello",
            hosts=[node.host for node in self.topology.nodes],
            rank=peer.rank,
            toolkit=__version__,
            launcher=self.draft.launcher,
            env=dict(self.spec.env),
            lease=self.spec.timeouts.lease,
            leader=self._name,
            address=address,
        )

    # -- while it runs

    def _sessions(self) -> dict[int, Session]:
        return self._call.sessions if self._call else {}

    async def _watch(self, session: Session) -> None:
        await session.lost.wait()
        quiet = time.monotonic() - session.heard
        silent = quiet > self.spec.timeouts.lease
        seen = (
            f"nothing heard of it for {quiet:.0f}s" if silent else f"its session ended, last word {quiet:.1f}s before"
        )
        lost = f"{session.node.host} is lost: {session.why or seen}"
        reason = lost if session.why else self._stood_still() or lost
        if not self._released:
            self.say(reason)  # now: the last line comes after the grace, and whoever watches may stop all meanwhile
        self.decide(RetryError.status, reason)

    def _stood_still(self) -> str:
        seconds = self._pulse.stood_still()
        words = f"stood still for {seconds:.0f}s, and its peers wait for {self.spec.timeouts.lease:g}s"
        return f"{self.topology.this.host} {words}" if seconds else ""

    async def _all_answer(self) -> None:
        """Return when every worker has told all that it knew until now; who is silent is lost by its lease."""
        self._questions += 1
        number = self._questions
        for session in self._sessions().values():
            session.send("ping", number=number)
        await self._all_said(f"pong {number}", self.spec.timeouts.lease)
        self.ranks.read()

    async def _watch_for_stalls(self, limit: float) -> None:
        """Show every rank's stack once none has printed anything for `limit` seconds; say no more until one does."""
        warned = False
        while not self.verdict.done():
            await asyncio.wait({self.verdict}, timeout=min(limit / 4, 10.0))
            quiet = min([self.quiet(), *self._quiet.values()])
            if self.verdict.done():
                return
            if quiet < limit / 2:  # what the nodes said is a little old, so they need not agree to the second
                warned = False
            elif quiet >= limit and not warned:
                warned = True
                await self._stalled(quiet)

    async def _stalled(self, quiet: float) -> None:
        reason = f"no rank has printed anything for {quiet / 60:.3g} minutes"
        self.say(f"{reason}; this is what they do:")
        for session in self._sessions().values():
            session.send("stacks")
        await asyncio.gather(self.show_stacks(), self._all_said("shown", _SHOWN))
        for rank in self._sessions():
            self._said[rank, "shown"].clear()
        if self.spec.stall.action == "stop":
            self.decide(RetryError.status, f"the job stalled: {reason}")

    def _on_message(self, session: Session, message: codec.Message) -> None:
        kind, host = message["kind"], session.node.host
        if kind == "rank":
            self._heard_of_rank(
                host, message["event"], message["rank"], message["value"], message["tail"], message["why"]
            )
        elif kind == "ended":
            end = End(message["status"], message["what"], message["reason"], tuple(message["tail"]))
            self._node_ended(session.node.rank, end, message["last"])
        elif kind == "failed":
            if message["stop"] and not self._begun and self.attempt == 1:
                return  # it leaves before the start, and is waited for again
            lost = message["status"] == RetryError.status and self._stood_still()
            words = lost or f"{host}: {message['reason']}"
            self.give_up(Outcome(message["status"], words, message["program"]), message["stop"])
        elif kind == "signal":
            self._pass_on_all(message["name"], session.node.rank)
        elif kind == "hurry":
            self.impatient.set()
        elif kind == "daemon":
            self._launched.daemon(host, message["name"], message["status"], message["why"])
        elif kind == "limit":
            self._launched.limit(host, message["reason"])
        elif kind == "pong":
            self._quiet[session.node.rank] = message["quiet"]
            if 0 < message["number"] <= self._questions:
                self._said[session.node.rank, f"pong {message['number']}"].set()
        elif kind in ("stopped", "leaving", "shown"):
            self._said[session.node.rank, kind].set()

    def on_rank(self, event: str, rank: int, value: int, tail: tuple[str, ...], why: str) -> None:
        self._heard_of_rank(self.topology.this.host, event, rank, value, tail, why)

    def _heard_of_rank(self, host: str, event: str, rank: int, value: int, tail: Sequence[str], why: str) -> None:
        if event == "start":
            self._launched.start(rank, host)
            return
        self._launched.ranks.ended[rank] = value
        if self._launched.ranks.all_well():
            self.background(self._launched.end())
        elif value != 0:
            what = f"rank {rank} on {host}"
            end = End(value, what, process.ended(what, value, why), tuple(tail))
            self._settle_in(self._ends.of_rank(end), end)

    def on_program_end(self, end: End, last: bool) -> None:
        if self.draft.launch.completion == "first-failure":
            self._node_ended(self.topology.me, end, last)
            return
        self.ranks.read()
        if self.draft.launch.reports == "ranks":
            self.background(self._launched.ended(end))
        else:
            self._settle(end)

    def _node_ended(self, rank: int, end: End, last: bool) -> None:
        host = self.topology.nodes[rank].host
        reason = f"{end.reason} on {host}" if self._sessions() else end.reason
        if end.status == 0 and self._sessions():
            reason = f"{end.reason} on {everywhere(self.topology.nodes, self.draft.launch.awaited)}"
        end = replace(end, what=f"{end.what} on {host}", reason=reason)
        self._settle_in(self._ends.of_node(rank, end, last), end)

    def _settle_in(self, seconds: float | None, end: End) -> None:
        if seconds:
            asyncio.get_running_loop().call_later(seconds, self._settle, end)
        elif seconds is not None:
            self._settle(end)

    def _settle(self, end: End) -> None:
        """The cause is the verdict, or this end where none failed; a failure's last words are worth a look."""
        if self.verdict.done():
            return
        cause = self._ends.cause() or end
        if cause.tail:
            self.say(f"last {count(len(cause.tail), 'line')} of {cause.what}:")
            for line in cause.tail:
                self.say(f"  | {line}")
        self.decide(cause.status, cause.reason, program=True)

    def on_limit(self, reason: str) -> None:
        self._launched.limit(self.topology.this.host, reason)

    def on_user_signal(self, signum: int) -> None:
        self._pass_on_all(signal.Signals(signum).name, self.topology.me)

    def _pass_on_all(self, name: str, node: int) -> None:
        if not self._user_signals.is_new(name, node, time.monotonic()):
            return
        if not self.draft.launch.takes_signals:
            self.say(f"{name}: not passed on, since {self.draft.launcher} would end by it")
            return
        self.say(f"{name}: passed on to the ranks{' of every node' if self._sessions() else ''}")
        self.pass_on(signal.Signals[name])
        for session in self._sessions().values():
            session.send("signal", name=name)

    def on_signal(self, signum: int) -> None:
        # Before the first start it may come again, and the others wait for it.
        self._leaves = not (self._begun or self.attempt > 1 or self.verdict.done())
        self.give_up(Outcome(128 + signum, process.ended("the job", 128 + signum)), stop=True)

    def on_leader(self, message: codec.Message) -> None:
        """Another node of this job leads too, as it says to all: both know the hosts in another order."""
        assert self.endpoint is not None
        if message["kind"] != "hello" or self.verdict.done():
            return
        if self._begun:
            self.endpoint.send("busy")
            return
        hosts, theirs = [node.host for node in self.topology.nodes], message.get("hosts") or ["another node"]
        seen = f"{short(hosts)} on {self.topology.this.host}, {short(theirs)} on {theirs[0]}"
        wrong = "two nodes believe to be the first", seen, "give all nodes the same hosts, in the same order"
        self.endpoint.send("refuse", what=wrong[0], seen=wrong[1], do=wrong[2])
        # Once it is heard: what is only sent goes down with our sshd.
        asyncio.get_running_loop().call_later(KILL_MARGIN, self.decide, ConfigError.status, " | ".join(wrong))

    # -- end

    async def _end(self, outcome: Outcome) -> Outcome:
        """Stop what still runs, everywhere at once, then let every node go with the result, which is returned."""
        if self._leaves:
            return outcome
        grace = self.spec.timeouts.grace
        if self._running or outcome.status != 0 or self.draft.launch.awaited is not None:
            for session in self._sessions().values():
                session.send("stop", grace=0 if self.impatient.is_set() else grace)
            hurry = asyncio.create_task(self._hurry())
            stopped = asyncio.create_task(self._all_said("stopped", grace + KILL_MARGIN))
            await self.stop_programs(grace)
            await stopped
            hurry.cancel()
            # Only now may the first that failed leave: from then on the launcher's daemons pass nothing on.
            for session in self._sessions().values():
                session.send("let_go")
            self.ranks.let_go()
            # What the ranks said last is on its way through these daemons, which are not told to end.
            ends = [asyncio.create_task(each.wait()) for each in self._started]
            if ends:
                await asyncio.wait(ends, timeout=_PASS_ON)
        outcome = follow(outcome, self.attempt, self.spec.restarts, self.stop)
        self._released = True  # who leaves from now on is not lost
        for session in self._sessions().values():
            session.send("release", **asdict(outcome))
        # Heard, and not only sent: what a dying connection still holds may be dropped.
        await self._all_said("leaving", KILL_MARGIN)
        quiet = [each.node.host for each in self._sessions().values() if self._awaits(each)]
        if quiet and not self.impatient.is_set():
            # It may stand still for a moment, and wakes to a job that has ended.
            limit = heartbeat.patience(self.spec.timeouts.lease)
            self.say(f"the result is known; waiting {limit:.0f}s at most for {', '.join(quiet)} to hear it")
            hurry = asyncio.create_task(self._hurried())
            heard = asyncio.create_task(self._all_said("leaving", limit))
            await asyncio.wait({hurry, heard}, return_when=asyncio.FIRST_COMPLETED)
        return outcome

    def _awaits(self, session: Session) -> bool:
        return not (session.lost.is_set() or self._said[session.node.rank, "leaving"].is_set())

    async def _all_said(self, kind: str, seconds: float) -> None:
        """Return when every worker has said so or is gone, or after that time."""
        waits = [asyncio.create_task(self._said_or_lost(rank, kind)) for rank in self._sessions()]
        if waits:
            await asyncio.wait(waits, timeout=seconds)

    async def _said_or_lost(self, rank: int, kind: str) -> None:
        said = asyncio.create_task(self._said[rank, kind].wait())
        lost = asyncio.create_task(self._sessions()[rank].lost.wait())
        await asyncio.wait({said, lost}, return_when=asyncio.FIRST_COMPLETED)

    async def _hurry(self) -> None:
        await self.impatient.wait()
        for session in self._sessions().values():
            session.send("stop", grace=0)
