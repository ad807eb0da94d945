"""Nodes that call in: each logs in to worker-0 by ssh, says which node it is, and is answered with
the list of all.

The login proves the job's secret on both sides, as the roll call's does. A session stays open until
the list is complete, so worker-0 knows which callers are alive.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable
from typing import Any

from entrypoint.base.errors import ConfigError
from entrypoint.base.model import Facts, Node, Outcome, Topology
from entrypoint.base.text import count, one_line
from entrypoint.base.values import replace
from entrypoint.base.wire import Invalid
from entrypoint.job.messages import CalledIn, CallIn, Release
from entrypoint.plan.callin import Place, names, places
from entrypoint.plan.files import client_config
from entrypoint.session import codec
from entrypoint.session.resolve import AttemptFailed, connect, resolve
from entrypoint.spec import JobSpec
from entrypoint.system import account, children
from entrypoint.system.descriptors import CHUNK
from entrypoint.system.files import RunDir
from entrypoint.system.keys import Keys

_REASON = 300  # characters of what ssh prints
_LOST = 30.0  # seconds until a silent node counts as lost, and some
_TAKEN = b"\n"  # no message: tells a caller that its call has arrived


class Desk:
    """Worker-0's side: the nodes that have called in, and once all have, the place of each."""

    # Called with the number of callers; and with the outcome if they cannot be of one job.
    changed: Callable[[int], None]
    failed: Callable[[Outcome], None]
    # Returns whether a node has a session of the roll call.
    is_here: Callable[[int], bool] = staticmethod(lambda rank: False)
    # Does work once the loss of a node would be known.
    later: Callable[[Callable[[], None]], object] = staticmethod(
        lambda work: asyncio.get_running_loop().call_later(_LOST, work)
    )

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        # the address of worker-0 may be a service's, which leads back
        self.own_call = CallIn(topology.this.host, 0, os.urandom(8).hex())
        self._callers: dict[Any, Place] = {}  # by their sessions
        self.hosts: tuple[tuple[str, str], ...] = ()  # name and address of each, in rank order
        self.complete = asyncio.Event()
        self.empty = asyncio.Event()

    @classmethod
    def of(cls, topology: Topology) -> Desk | None:
        """Return the desk of worker-0 whose nodes have called in: one that starts again does so
        again. None on other nodes."""
        if not (topology.call_in and topology.is_leader):
            return None
        desk = cls(topology)
        desk.hosts = tuple((node.host, node.address or "") for node in topology.nodes)
        return desk

    def located(self, node: Node) -> Node:
        """Return the node with its present address."""
        return replace(node, address=self.hosts[node.rank][1] or None)

    @property
    def callers(self) -> list[str]:
        """The host names of those that wait for the list."""
        return [place.name for place in self._callers.values()]

    def take(self, call: CallIn, session: Any) -> None:
        """A node calls. It is answered now, or once the list is complete."""
        if call == self.own_call:
            return
        place = Place(call.index, call.name, session.caller)
        if self.hosts:
            self._answer_late(place, session)
        elif (place.index or 0) >= len(self._topology.nodes):
            _end(session, self._beyond(place))
        else:
            self._enter(place, session)

    def _enter(self, place: Place, session: Any) -> None:
        own = Place(0, self._topology.this.host, "")
        # a node that starts again may be here before the end of its old session
        self._callers = {other: it for other, it in self._callers.items() if it != place}
        for rival in (own, *self._callers.values()):
            if rival.index == place.index is not None:
                _end(session, two := _two(rival, place))
                self.failed(two)
                return
        self._callers[session] = place
        self.changed(len(self._callers))
        if len(self._callers) < len(self._topology.nodes) - 1:
            session.send(_TAKEN)
            return
        ordered = places([own, *self._callers.values()])
        self.hosts = tuple(
            (name, ordered[rank].address) for rank, name in enumerate(names(ordered))
        )
        for caller, it in self._callers.items():
            caller.send(codec.pack(CalledIn(self.hosts, ordered.index(it))))
        self.complete.set()

    def leave(self, session: Any) -> None:
        """A session has ended."""
        if self._callers.pop(session, None):
            self.changed(len(self._callers))
        if self.hosts and not self._callers:
            self.empty.set()

    def end(self, outcome: Outcome) -> None:
        """No list will be complete: all callers end with this outcome."""
        for session in self._callers:
            _end(session, outcome)

    def _answer_late(self, place: Place, session: Any, has_waited: bool = False) -> None:
        """Answer a node that starts again, maybe elsewhere; it keeps its place."""
        named = [rank for rank, (name, _) in enumerate(self.hosts) if name == place.name]
        named += [rank for rank, (_, at) in enumerate(self.hosts) if at == place.address]
        rank = place.index if place.index is not None else next(iter(named), len(self.hosts))
        if rank >= len(self.hosts):
            _end(session, self._beyond(place))
            return
        known = Place(rank, *self.hosts[rank])
        if known.address != place.address:
            if rank == 0 or self.is_here(rank):
                if rank and not has_waited:  # the one that is here may be lost
                    self.later(lambda: self._answer_late(place, session, has_waited=True))
                else:
                    _end(session, _two(known, place))
                return
            # a lost node may have had the address before: no two have one address in the list
            moves = {place.address: known.address, known.address: place.address}
            self.hosts = tuple((name, moves.get(at, at)) for name, at in self.hosts)
        session.send(codec.pack(CalledIn(self.hosts, rank)))

    def _beyond(self, place: Place) -> Outcome:
        nodes = count(len(self._topology.nodes), "node")
        number = "" if place.index is None else f" with index {place.index}"
        return ConfigError(
            "EP203 this node is beyond the last node of the job",
            f"{place.name} at {place.address}{number}; {nodes}, spares included",
            "count from 0, or set nodes and spares to the number of nodes that start",
        ).outcome


def _end(session: Any, outcome: Outcome) -> None:
    session.send(codec.pack(Release(**vars(outcome))))


def _two(one: Place, other: Place) -> Outcome:
    seen = " and ".join(f"{it.name} at {it.address}".removesuffix(" at ") for it in (one, other))
    return ConfigError(
        f"EP504 two nodes have index {one.index}",
        seen,
        "give each node an index of its own, and only worker-0 the address of worker-0",
    ).outcome


class Phone:
    """A worker's side: calls worker-0 by the ssh client, a process that ends after each call, so
    that no client stays in memory."""

    # Called when worker-0 has taken the call, and cannot answer it yet.
    reached: Callable[[], None] = staticmethod(lambda: None)
    # Called with the reason while its name has no address.
    waits: Callable[[str], None] = staticmethod(lambda reason: None)

    def __init__(
        self,
        spec: JobSpec,
        facts: Facts,
        topology: Topology,
        leader: Node,
        keys: Keys,
        run_dir: RunDir,
    ) -> None:
        """Write the client's files. `leader`: worker-0, with its address and port; `keys`: also
        those of a client. Raises ConfigError if the image has no ssh client."""
        if (ssh := facts.programs.get("ssh")) is None:
            raise ConfigError(
                "EP430 this image has no ssh client, with which a node calls in",
                "not on PATH, not in /usr/bin",
                "install openssh-client, or name all hosts: ENTRYPOINT_HOSTS",
            )
        config = client_config(spec, topology, leader)
        files = {name: keys.files()[name] for name in ("client_key", "known_hosts")}
        files |= {config.name: config.text, **account.files(facts)}
        for name, content in files.items():
            run_dir.write(name, content, 0o600)
        self._leader = leader
        self._argv = (ssh, "-F", f"{run_dir.path}/{config.name}", leader.host, codec.ATTEND)
        self._env = {**facts.env, **account.variables(facts, run_dir.path)}

    async def call(self, call: CallIn) -> CalledIn | Outcome | str:
        """Call once. Return the answer, or why there is none."""
        try:
            # If nothing listens yet, ssh costs much more, and tries again only after a second.
            found = await resolve(self._leader.where, self._leader.ssh_port, self.waits)
            (await connect(found)).close()
        except AttemptFailed as error:
            return str(error)
        pipe = asyncio.subprocess.PIPE
        process = await children.start(self._argv, self._env, stdin=pipe, stdout=pipe, stderr=pipe)
        try:
            return await self._answer(process, call)
        finally:
            if process.returncode is None:
                # not process.kill(), which may take the status from asyncio's own wait
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGKILL)
                await process.wait()

    async def _answer(self, process: Any, call: CallIn) -> CalledIn | Outcome | str:
        intake = codec.Intake(codec.TO_CALLER, codec.TO_WORKER, time.monotonic())
        process.stdin.write(codec.pack(call))
        try:
            while data := await process.stdout.read(CHUNK):
                if arrived := intake.feed(data, time.monotonic()):
                    answer: CalledIn | Release = arrived[0]
                    return answer if isinstance(answer, CalledIn) else Outcome(**vars(answer))
                self.reached()
        except Invalid as error:
            return f"it sent an invalid message: {error}"
        await process.wait()
        lines = (await process.stderr.read()).decode(errors="replace").strip().splitlines()
        return one_line(lines[-1], _REASON) if lines else "it closed the session"
