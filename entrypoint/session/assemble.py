"""Before the boot of a job whose nodes call in: worker-0 waits for them, the others call it, until
each has the list of hosts and its own place in it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Coroutine
from importlib import import_module
from typing import Any

from entrypoint.base.errors import EntrypointError, RefusedError, UnavailableError
from entrypoint.base.model import Facts, Outcome, Topology
from entrypoint.base.text import count
from entrypoint.base.values import replace
from entrypoint.job import events
from entrypoint.job.failure import out_of_time
from entrypoint.job.messages import TAKEN, CalledIn, CallIn
from entrypoint.job.waits import SURE
from entrypoint.output.log import Logger
from entrypoint.output.progress import Waiting
from entrypoint.plan import located, settle
from entrypoint.session.callin import Desk, Phone
from entrypoint.session.gateway import Gateway, seed, ssh_port
from entrypoint.session.resolve import pause
from entrypoint.spec import JobSpec
from entrypoint.system import keys as job_keys
from entrypoint.system.files import RunDir
from entrypoint.system.network import addresses
from entrypoint.system.signals import Signals, StoppedBySignal
from entrypoint.system.threads import Background, in_thread, rest

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

    async def answer() -> CalledIn:
        assembly = _Assembly(spec, facts, topology, log)
        signals.take(lambda signum, again: assembly.end(StoppedBySignal(signum).outcome))
        asyncio.get_running_loop().call_at(
            signals.deadline, lambda: assembly.end(out_of_time(spec.timeouts.job).outcome)
        )
        return await assembly.run()

    with signals.held():
        found = asyncio.run(answer())
    hosts = [
        _entry(name, address or topology.call_in, rank == found.index, facts)
        for rank, (name, address) in enumerate(found.hosts)
    ]
    spec, whole = located(replace(spec, hosts=tuple(hosts), node_rank=found.index), facts)
    log(f"all {count(len(hosts), 'node')} have called in; this is {whole.this.name}")
    origins = {**whole.origins, "hosts": topology.origins["hosts"]}
    return spec, replace(whole, origins=origins)


def _entry(name: str, address: str, is_own: bool, facts: Facts) -> str:
    """Return a host as an entry of `hosts`. This container's own name suffices if it has an
    address: sshd would listen at the one by which others reach it, which may be a service's."""
    if is_own and name == facts.hostname:
        with contextlib.suppress(LookupError):
            addresses(name)
            return name
    return f"{name}={address}"


class _Assembly:
    """This node's part in it."""

    _rejected = ""  # what is known of callers without the job's keys
    _reason = ""  # why worker-0 has not answered this node
    _deadline = 0.0  # when this node waits no longer for it
    _is_reached = False  # worker-0 has taken a call

    def __init__(self, spec: JobSpec, facts: Facts, topology: Topology, log: Logger) -> None:
        self._spec = spec
        self._facts = facts
        self._topology = topology
        self._worker_0 = f"worker-0 at {topology.call_in}"
        self._log = log
        self._waiting = Waiting(log, spec.timeouts.peers, log.live)
        # whoever awaits a task gets its error
        self._background = Background(lambda error: None)
        self._ended: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

    def end(self, outcome: Outcome) -> None:
        """The job ends with this outcome, unless it has one."""
        if not self._ended.done():
            self._ended.set_result(outcome)

    async def run(self) -> CalledIn:
        """Return the list, and this node's index."""
        topology, spec = self._topology, self._spec
        leads_here = await self._leads_here()
        is_given = topology.origin("node_rank")
        if leads_here and not is_given:
            self._topology = topology = replace(topology, me=0)
        keys = job_keys.load(spec, replace(topology, me=0))
        leader = replace(
            topology.leader,
            address=topology.call_in,
            ssh_port=ssh_port(spec.network.ports, topology.leader, seed(keys, topology)),
        )
        run_dir = RunDir(topology.run_dir)
        try:
            if leads_here and topology.is_leader:
                return await self._lead(keys, run_dir)
            phone = Phone(spec, self._facts, topology, leader, keys, run_dir)
            if topology.is_leader:
                return await self._lead(keys, run_dir, phone)
            found: CalledIn = await self._unless_ended(
                self._call(phone, CallIn(self._facts.hostname, topology.me if is_given else None))
            )
            return found
        finally:
            self._waiting.close()
            # asyncio cancels again what has not ended, and a call would not wait for its ssh
            self._background.cancel()
            await asyncio.gather(*self._background, return_exceptions=True)
            run_dir.close()

    async def _leads_here(self) -> bool:
        """Return whether the address of worker-0 is one of this container's own."""
        if self._topology.call_in == self._facts.hostname:
            return True
        try:
            found = await in_thread(lambda: addresses(self._topology.call_in))
        except LookupError:
            return False
        own = {interface.address for interface in self._facts.interfaces}
        return any(entry[4][0] in own for entry in found)

    async def _lead(
        self, keys: job_keys.Keys, run_dir: RunDir, phone: Phone | None = None
    ) -> CalledIn:
        """Let all others call in. `phone`: to call the address of worker-0, which is not this
        container's: it is a service's, or another node has the same index."""
        first, *others = self._topology.nodes
        own = replace(first, host=self._facts.hostname or first.host, address=None)
        topology = replace(self._topology, nodes=(own, *others))
        desk = Desk(topology)
        desk.failed = self.end
        desk.changed = self._show
        desk.changed(0)
        draft = settle(self._spec, self._facts, topology)
        gateway = Gateway(self._spec, self._facts, topology, run_dir, self._log, desk)
        gateway.serve(draft, self._tell, lambda first: TAKEN)
        try:
            await gateway.open(keys)
            if phone:
                self._background(self._call_worker_0(phone, desk.own_call))
            # the calls of the roll call are slow to import, and this node only waits now
            await in_thread(lambda: import_module("entrypoint.session.calls"))
            await self._unless_ended(
                asyncio.wait_for(desk.complete.wait(), self._spec.timeouts.peers)
            )
            await asyncio.wait({self._background(desk.empty.wait())}, timeout=_HANG_UP)
        except asyncio.TimeoutError:
            missing = self._missing(desk.callers, len(others))
            desk.end(missing.outcome)
            raise missing from None
        except (EntrypointError, StoppedBySignal) as error:
            desk.end(error.outcome)
            raise
        finally:
            gateway.stop()
            await gateway.ended()
        return CalledIn(desk.hosts, 0)

    def _show(self, callers: int) -> None:
        others = len(self._topology.nodes) - 1
        self._waiting.update(f"{count(others, 'node')} to call in", f"{callers} have")

    def _missing(self, callers: list[str], peers: int) -> EntrypointError:
        """Return why there is no list of all hosts."""
        return UnavailableError(
            f"EP500 {peers - len(callers)} of {peers} peers did not call in within"
            f" {self._spec.timeouts.peers:.0f}s",
            f"here: {', '.join(callers) or 'none'}{self._rejected}",
            "make sure that they run and have this node's address, or wait longer:"
            f" {self._spec.setting('timeouts.peers')}, in seconds",
        )

    async def _call_worker_0(self, phone: Phone, call: CallIn) -> None:
        """Call the address of worker-0, to find out whether another node answers there."""
        begun = time.monotonic()
        while True:
            answer = await phone.call(call)
            if isinstance(answer, Outcome):
                self.end(answer)
            await rest(pause(begun))

    async def _call(self, phone: Phone, call: CallIn) -> CalledIn:
        """Call worker-0 until it has answered."""
        begun = refused = time.monotonic()
        self._deadline = begun + self._spec.timeouts.peers
        self._note("calling it")
        phone.reached, phone.waits = self._reach, self._note
        while True:
            answer = await self._call_once(phone, call)
            if isinstance(answer, CalledIn):
                return answer
            if isinstance(answer, Outcome):
                raise StoppedByWorker0(answer)
            self._note(answer)
            now = time.monotonic()
            if not any(words in answer for words in _REFUSED):
                refused = now
            elif now - refused > SURE:
                raise RefusedError(
                    f"EP503 {self._worker_0} does not belong to this job",
                    answer,
                    "give all nodes the same secret and job name, and the address of worker-0",
                )
            if now >= self._deadline:
                raise UnavailableError(
                    f"EP501 {self._worker_0} could not be called within {now - begun:.0f}s",
                    answer,
                    "make sure that it runs, or wait longer:"
                    f" {self._spec.setting('timeouts.peers')}, in seconds",
                )
            await rest(pause(begun, len(self._topology.nodes)))

    async def _call_once(self, phone: Phone, call: CallIn) -> CalledIn | Outcome | str:
        """Return the answer of worker-0, or what is known of it when this node waits no longer."""
        task = self._background(phone.call(call))
        while not task.done() and (left := self._deadline - time.monotonic()) > 0:
            await asyncio.wait({task}, timeout=left)
        return task.result() if task.done() else self._reason

    def _reach(self) -> None:
        """Worker-0 has a deadline of its own, which may be later: it then says who is missing."""
        if not self._is_reached:
            self._is_reached = True
            self._deadline = time.monotonic() + self._spec.timeouts.peers + SURE
        self._note("it has no list of all nodes yet")

    def _note(self, reason: str) -> None:
        self._reason = reason
        self._waiting.update(self._worker_0, reason)

    async def _unless_ended(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Return the result of this work. Raises StoppedByWorker0 if the job ends before."""
        task = self._background(work)
        both: set[asyncio.Future[Any]] = {task, self._ended}
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if self._ended.done():
            task.cancel()
            await asyncio.wait({task})
            raise StoppedByWorker0(self._ended.result())
        return task.result()

    def _tell(self, event: Any) -> None:
        if isinstance(event, events.Faulted):
            self.end(event.outcome)
        elif isinstance(event, events.Unreachable):
            self._rejected = f"; {event.why}"
            self._waiting.update("all callers", event.why)
