"""Before the boot of a job whose nodes call in: worker-0 waits for them, the others call it, until
each has the list of hosts and its own place in it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import Any, TypeVar

from entrypoint.base.errors import EntrypointError, RefusedError, UnavailableError
from entrypoint.base.model import Facts, Outcome, Topology
from entrypoint.base.text import count
from entrypoint.base.values import replace
from entrypoint.job import events, messages
from entrypoint.job.waits import SURE
from entrypoint.output.log import Callbacks, Logger
from entrypoint.output.progress import Waiting
from entrypoint.plan import located, settle
from entrypoint.session.callin import CalledIn, CallIn, Desk
from entrypoint.session.gateway import Gateway
from entrypoint.session.phone import Phone
from entrypoint.session.resolve import pause
from entrypoint.spec import JobSpec
from entrypoint.system import keys as job_keys
from entrypoint.system.files import RunDir
from entrypoint.system.network import addresses
from entrypoint.system.signals import Signals, StoppedBySignal
from entrypoint.system.threads import in_thread, rest

T = TypeVar("T")

_HANG_UP = 2.0  # seconds in which callers must have read the list
# What ssh prints if one side does not accept the other's key.
_REFUSED = ("Host key verification failed", "Permission denied")


class StoppedByWorker0(StoppedBySignal):
    """Worker-0 has ended the job before there was a list of its hosts, maybe for a signal there."""

    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome


def assembled(
    spec: JobSpec, facts: Facts, topology: Topology, signals: Signals, log: Logger
) -> tuple[JobSpec, Topology]:
    """Return the spec with all hosts and this node's index, and the topology, once all nodes have
    called in.

    Raises EntrypointError if they do not within `timeouts.peers`, StoppedByWorker0 if the job ends
    there before.
    """
    if not topology.call_in:
        return spec, topology
    with signals.held():
        hosts, index = asyncio.run(_assemble(spec, facts, topology, signals, log))
    entries = [
        _entry(name, address or topology.call_in, rank == index, facts)
        for rank, (name, address) in enumerate(hosts)
    ]
    spec, found = located(replace(spec, hosts=tuple(entries), node_rank=index), facts)
    log(f"all {count(len(hosts), 'node')} have called in; this is {found.this.name}")
    return spec, replace(found, call_in=topology.call_in)


def _entry(name: str, address: str, is_own: bool, facts: Facts) -> str:
    """Return a host as an entry of `hosts`. This container's own name suffices if it has an
    address: sshd would listen at the one by which others reach it, which may be a service's."""
    if is_own and name == facts.hostname:
        try:
            addresses(name, None)
        except LookupError:
            return f"{name}={address}"
        return name
    return f"{name}={address}"


async def _assemble(
    spec: JobSpec, facts: Facts, topology: Topology, signals: Signals, log: Logger
) -> tuple[tuple[tuple[str, str], ...], int]:
    """Return names and addresses of all hosts, and this node's index."""
    leads_here = await _leads_here(topology, facts)
    if leads_here and not topology.origin("node_rank"):
        topology = replace(topology, me=0)
    end = _End()
    signals.take(lambda signum, again: end.come(StoppedBySignal(signum).outcome))
    keys = job_keys.load(spec, replace(topology, me=0))
    run_dir = RunDir(topology.run_dir)
    waiting = Waiting(log, spec.timeouts.peers, log.live)
    try:
        if topology.is_leader:
            host = _Host(spec, facts, topology, log, waiting, end)
            # its address may be a service's, or another node has its index, too
            second = None if leads_here else Phone(spec, facts, topology, keys, run_dir)
            return await host.receive(keys, run_dir, second), 0
        phone = Phone(spec, facts, topology, keys, run_dir)
        return await end.unless(_call(spec, facts, topology, phone, waiting))
    finally:
        waiting.close()
        run_dir.close()


async def _leads_here(topology: Topology, facts: Facts) -> bool:
    """Return whether the address of worker-0 is one of this container's own."""
    if topology.call_in == facts.hostname:
        return True
    try:
        found = await in_thread(lambda: addresses(topology.call_in, None))
    except LookupError:
        return False
    own = {interface.address for interface in facts.interfaces}
    return any(entry[4][0] in own for entry in found)


class _End:
    """The end of the job before it has a list of its hosts."""

    def __init__(self) -> None:
        self._outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

    def come(self, outcome: Outcome) -> None:
        """The job ends with this outcome, unless it has one."""
        if not self._outcome.done():
            self._outcome.set_result(outcome)

    async def unless(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of this work. Raises StoppedByWorker0 if the job ends before."""
        task = asyncio.create_task(work)
        both: set[asyncio.Future[Any]] = {task, self._outcome}
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if self._outcome.done():
                raise StoppedByWorker0(self._outcome.result())
            return task.result()
        finally:
            task.cancel()
            await asyncio.wait({task})


class _Host:
    """Worker-0, until all have called in."""

    _rejected = ""  # what is known of callers without the job's keys

    def __init__(
        self,
        spec: JobSpec,
        facts: Facts,
        topology: Topology,
        log: Logger,
        waiting: Waiting,
        end: _End,
    ) -> None:
        nodes = topology.nodes
        names = (replace(nodes[0], host=facts.hostname or nodes[0].host, address=None), *nodes[1:])
        self._topology = topology = replace(topology, nodes=names)
        self._spec = spec
        self._facts = facts
        self._log = log
        self._waiting = waiting
        self._tasks: set[asyncio.Task[Any]] = set()
        self._end = end

    async def receive(
        self, keys: job_keys.Keys, run_dir: RunDir, second: Phone | None
    ) -> tuple[tuple[str, str], ...]:
        """Return names and addresses of all hosts. `second`: calls the address of worker-0."""
        others = len(self._topology.nodes) - 1

        def changed(callers: int) -> None:
            self._waiting.update(f"{count(others, 'node')} to call in", f"{callers} have")

        desk = Desk(self._topology, changed, self._end.come)
        changed(0)
        draft = settle(self._spec, self._facts, self._topology)
        callbacks = Callbacks(self._log, self._tell, self._background)
        gateway = Gateway(
            self._spec, self._facts, draft, run_dir, callbacks, lambda first: messages.TAKEN, desk
        )
        try:
            await gateway.open(keys)
            if second:
                self._background(self._call_worker_0(second))
            complete = asyncio.wait_for(desk.complete.wait(), self._spec.timeouts.peers)
            await self._end.unless(complete)
            await asyncio.wait({self._background(desk.empty.wait())}, timeout=_HANG_UP)
        except asyncio.TimeoutError:
            missing = self._missing(desk)
            desk.end(missing.outcome)
            raise missing from None
        except (EntrypointError, StoppedBySignal) as error:
            desk.end(error.outcome)
            raise
        finally:
            gateway.stop()
            for task in list(self._tasks):
                task.cancel()
            await gateway.ended()
        return desk.hosts

    def _missing(self, desk: Desk) -> EntrypointError:
        """Return why there is no list of all hosts."""
        limit = f"{self._spec.timeouts.peers:.0f}s"
        peers = len(self._topology.nodes) - 1
        return UnavailableError(
            f"EP500 {peers - len(desk.callers)} of {peers} peers did not call in within {limit}",
            f"here: {', '.join(desk.callers) or 'none'}{self._rejected}",
            "make sure that they run and have this node's address, or wait longer:"
            f" {self._spec.setting('timeouts.peers')}, in seconds",
        )

    async def _call_worker_0(self, phone: Phone) -> None:
        """Call the address of worker-0, to find out whether another node answers there."""
        begun = time.monotonic()
        while True:
            answer = await phone.call(CallIn(self._topology.this.host, 0))
            if isinstance(answer, messages.Release):
                self._end.come(Outcome(answer.status, answer.reason, answer.program))
            await rest(pause(begun))

    def _tell(self, event: Any) -> None:
        if isinstance(event, events.Faulted):
            self._end.come(event.outcome)
        elif isinstance(event, events.Unreachable):
            self._rejected = f"; {event.why}"
            self._waiting.update("all callers", event.why)

    def _background(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


async def _call(
    spec: JobSpec, facts: Facts, topology: Topology, phone: Phone, waiting: Waiting
) -> tuple[tuple[tuple[str, str], ...], int]:
    """Call worker-0 until it has answered."""
    leader = f"worker-0 at {topology.call_in}"
    call = CallIn(facts.hostname, topology.me if topology.origin("node_rank") else None)
    begun = refused = time.monotonic()
    limit = spec.timeouts.peers
    while True:
        waiting.update(leader, "calling it")
        try:
            answer = await asyncio.wait_for(phone.call(call), begun + limit - time.monotonic())
        except asyncio.TimeoutError:
            answer = "it has no list of all nodes yet"
        if isinstance(answer, CalledIn):
            return answer.hosts, answer.index
        if isinstance(answer, messages.Release):
            raise StoppedByWorker0(Outcome(answer.status, answer.reason, answer.program))
        waiting.update(leader, answer)
        now = time.monotonic()
        if not any(words in answer for words in _REFUSED):
            refused = now
        elif now - refused > SURE:
            raise RefusedError(
                f"EP503 {leader} does not belong to this job",
                answer,
                "give all nodes the same secret and job name, and the address of worker-0",
            )
        if now - begun >= limit:
            raise UnavailableError(
                f"EP501 {leader} could not be called within {limit:.0f}s",
                answer,
                "make sure that it runs, or wait longer:"
                f" {spec.setting('timeouts.peers')}, in seconds",
            )
        await rest(pause(begun, len(topology.nodes)))
