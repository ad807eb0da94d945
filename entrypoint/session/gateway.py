"""The way into this node for the others of its job: the job's keys, the control endpoint, sshd; and
the leader's sessions on the others. They stay for all attempts of this node."""

from __future__ import annotations

from collections.abc import Callable, Set
from typing import TYPE_CHECKING, Any

from entrypoint.base.errors import HostError, outcome_of
from entrypoint.base.model import Facts, Node, Outcome, Plan, Topology, of_task
from entrypoint.base.text import Log
from entrypoint.base.values import replace
from entrypoint.job import events, messages
from entrypoint.session.callin import Desk, Phone
from entrypoint.session.endpoint import FILES, Endpoint
from entrypoint.spec import JobSpec
from entrypoint.spec.rules import port_blocks
from entrypoint.system import account, keys
from entrypoint.system.files import RunDir
from entrypoint.system.ports import holder, is_connection, is_free
from entrypoint.system.sshd import Sshd
from entrypoint.system.threads import Background, rest

if TYPE_CHECKING:
    from entrypoint.session.calls import Caller  # slow to import, and workers need no ssh client

# Seconds between two calls of a worker that nobody calls: in the first attempt, and after it, where
# worker-0 may be a new one.
_CALL_AGAIN = 10.0, 2.0
_ENDS = 10  # seconds in which an outgoing connection that has sshd's port may end


class Gateway:
    """Lets the leader and MPI daemons of this job into the node, and nobody else."""

    calls: Caller | None = None  # of the leader, once its node is open
    _files: frozenset[str] = frozenset()  # those in the run directory that stay
    _is_ready = False  # whether this attempt's machine knows what a call is
    _sshd: Sshd | None = None
    # of `ssh.port: auto`, once the keys are there
    _seed = ""

    def __init__(
        self,
        spec: JobSpec,
        facts: Facts,
        topology: Topology,
        run_dir: RunDir,
        log: Log,
        desk: Desk | None,
    ) -> None:
        """`desk`: as in Endpoint."""
        self.spec = spec
        self.facts = facts
        self.run_dir = run_dir
        self.desk = desk
        self._background = Background(lambda error: self._tell(events.Faulted(outcome_of(error))))
        self._endpoint = Endpoint(
            self._on_message,
            self._on_lost,
            lambda first: self._busy(first) if self._is_ready else messages.TAKEN,
            topology.hosts,
            log,
            self._background,
            desk,
        )

    def serve(self, draft: Plan, tell: Callable[[Any], None], busy: Callable[[Any], str]) -> None:
        """Serve an attempt: `tell` takes its events, `busy` is as in Endpoint. Raises
        CantCreateError if the run directory takes no files."""
        self._draft = draft
        self._topology = draft.topology
        self._tell = tell
        self._busy = busy
        self._is_ready = False
        if self._files:  # there was an attempt before
            self.run_dir.renew(self._files)

    async def open(self, own: keys.Keys) -> None:
        """Write the keys, open the control endpoint and start sshd, unless it is open.

        Raises EntrypointError if one of them is not possible here.
        """
        if self._sshd is None:
            self._write(own)
        self._tell(events.KeysReady())
        self._is_ready = True
        if self._sshd is None:
            await self._start()

    def _write(self, own: keys.Keys) -> None:
        self._seed = seed(own, self._topology)
        planned = {file.name: file for file in self._draft.files}
        files = {name: text for name, text in own.files().items() if name in planned}
        files |= account.files(self.facts)
        for name, content in files.items():
            self.run_dir.write(name, content, 0o600)
        config = planned["sshd_config"]
        self.run_dir.write(config.name, config.text, config.mode)
        self._files = frozenset((*files, config.name, *FILES))

    async def _start(self) -> None:
        self._endpoint.open(self.run_dir)
        this = self._topology.this
        port = self.port(this)
        waited = 0
        while not is_free(port, this.address):
            if waited == _ENDS or not is_connection(port, this.address):
                raise HostError(
                    f"EP433 port {port} is taken (ssh.port)",
                    f"by {holder(port, this.address)}",
                    f"end it, or set another port: {self.spec.setting('ssh.port')}",
                )
            await rest(1)
            waited += 1
        self._sshd = await Sshd.start(
            self.facts,
            self.run_dir.path / "sshd_config",
            port,
            this.address,
            self._on_sshd_line,
        )
        self._endpoint.listen(self._sshd.process.pid)
        self._background(
            self._sshd.watch(lambda why: self._tell(events.Faulted(Outcome(HostError.status, why))))
        )

    def located(self, node: Node) -> Node:
        """Return the node with the port of its sshd, and its present address."""
        node = self.desk.located(node) if self.desk else node
        return replace(node, ssh_port=self.port(node))

    def call_by(self, calls: Caller) -> None:
        """Nodes that call in again are answered by who of them is here, and called where they
        are."""
        self.calls = calls
        calls.located = self.located
        if self.desk:
            self.desk.is_here = calls.has_session

    async def call_in_again(self) -> None:
        """While no leader calls, tell worker-0 where this node is: it may have started again, and
        know nobody."""
        topology = self._topology
        leader = self.located(replace(topology.leader, address=topology.call_in))
        own = keys.load(self.spec, replace(topology, me=0))
        phone = Phone(self.spec, self.facts, topology, leader, own, self.run_dir)
        call = messages.CallIn(topology.this.host, topology.me)
        while True:
            await rest(_CALL_AGAIN[topology.history.attempt > 1] + len(topology.nodes) / 1000)
            if not self._endpoint.has_session:
                answer = await phone.call(call)
                if isinstance(answer, Outcome):
                    self._tell(events.Faulted(answer))

    def port(self, node: Node) -> int:
        """Return the port of a node's sshd, once this node is open."""
        return ssh_port(self.spec.network.ports, node, self._seed)

    def call(self, rank: int) -> None:
        """Call a node, as its leader."""
        assert self.calls
        self.calls.call(self._topology.nodes[rank])

    def end_session(self, rank: int) -> None:
        """End the session with a node that was called."""
        assert self.calls
        self.calls.close(rank)

    def send(self, message: Any, rank: int = 0) -> None:
        """Send a message to a node that was called, or to the leader that has called this one."""
        if rank:
            assert self.calls
            self.calls.send(rank, message)
        else:
            self._endpoint.send(message)

    def begin_attempt(self) -> None:
        """This attempt can answer its leader, which may have called."""
        self._endpoint.begin_attempt()

    def end_attempt(self, is_released: bool) -> Set[int]:
        """An attempt is over that another one follows, in the sessions of those that know it.
        `is_released`: this node does. Return the processes that stay."""
        assert self._sshd is not None
        self._endpoint.end_attempt(is_released and not self._topology.is_leader)
        if self.calls:
            self.calls.end_attempt()
        return self._endpoint.processes(self._sshd.process.pid)

    @property
    def is_open(self) -> bool:
        """Return whether sshd runs, and has its files."""
        is_up = self._sshd is not None and self._sshd.process.returncode is None
        return is_up and self.run_dir.has(self._files)

    def stop(self, ends_calls: bool = True) -> None:
        """Let nobody in any more. Without `ends_calls`, sessions on other nodes end with this
        process."""
        if self.calls and ends_calls:
            self.calls.close_all()
        self._endpoint.close()
        self._background.cancel()
        if self._sshd is not None:
            self._sshd.stop()

    async def ended(self) -> None:
        """Return when sshd has ended."""
        if self._sshd is not None:
            await self._sshd.ended()

    def _on_message(self, message: Any) -> None:
        is_leader = self._topology.is_leader
        self._tell(
            events.LeaderCalled(message) if is_leader else events.MessageReceived(0, message)
        )

    def _on_lost(self, why: str) -> None:
        if not self._topology.is_leader:
            self._tell(events.SessionLost(0, why))

    def _on_sshd_line(self, line: str) -> None:
        awaits = self.desk and not self.desk.hosts
        if (awaits or not self._topology.is_leader) and (
            "[preauth]" in line or line.startswith("Failed ")
        ):
            self._tell(
                events.Unreachable(0, "someone called, not with this job's keys: another secret?")
            )


def seed(own: keys.Keys, topology: Topology) -> str:
    """Return what determines the port of `ssh.port: auto`, on all nodes of the job alike."""
    return f"{own.client_public} {topology.job_id}"


def ssh_port(ports: str, node: Node, seed: str) -> int:
    """Return the port of a node's sshd; of this range if the job's keys determine it.

    `seed`: a text that all nodes of the job know, and that differs from job to job.
    """
    if node.ssh_port:
        return node.ssh_port
    (port,) = port_blocks(ports, 2, seed, 1)
    return of_task(port, node.task)
