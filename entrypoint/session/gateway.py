"""The way into this node for the others of its job: the job's keys, the control endpoint, sshd."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from entrypoint.base.errors import HostError
from entrypoint.base.model import Facts, Node, Outcome, Plan, Topology, of_task
from entrypoint.base.values import dataclass, replace
from entrypoint.job import events, messages
from entrypoint.output.log import Callbacks
from entrypoint.session.callin import Desk, Phone
from entrypoint.session.endpoint import Endpoint
from entrypoint.spec import JobSpec
from entrypoint.spec.rules import port_blocks
from entrypoint.system import account, keys
from entrypoint.system.files import RunDir
from entrypoint.system.ports import holder, is_connection, is_free
from entrypoint.system.sshd import Sshd
from entrypoint.system.threads import rest

# Seconds between two calls of a worker that nobody calls: in the first attempt, and after it, where
# worker-0 may be a new one.
_CALL_AGAIN = 10.0, 2.0
_ENDS = 10  # seconds in which an outgoing connection that has sshd's port may end


@dataclass
class Gateway:
    """Lets the leader and MPI daemons of this job into the node, and nobody else.

    `busy` and `desk` are as in Endpoint. Events go to the callback `tell`.
    """

    spec: JobSpec
    facts: Facts
    draft: Plan
    run_dir: RunDir
    callbacks: Callbacks
    busy: Callable[[Any], str]
    desk: Desk | None = None
    _sshd: Sshd | None = None
    # of `ssh.port: auto`, once the keys are there
    _seed = ""

    def __post_init__(self) -> None:
        self._topology = self.draft.topology
        self._tell = self.callbacks.tell
        self._endpoint = Endpoint(
            self._on_message,
            self._on_lost,
            self.busy,
            self._topology.hosts,
            self.callbacks.log,
            self.callbacks.background,
            self.desk,
        )

    async def open(self, own: keys.Keys) -> None:
        """Write the keys, open the control endpoint and start sshd.

        Raises EntrypointError if one of them is not possible here.
        """
        self._seed = seed(own, self._topology)
        this = self._topology.this
        planned = {file.name: file for file in self.draft.files}
        for name, content in own.files().items():
            if name in planned:
                self.run_dir.write(name, content, 0o600)
        for name, content in account.files(self.facts).items():
            self.run_dir.write(name, content, 0o600)
        self._tell(events.KeysReady())
        config = planned["sshd_config"]
        self.run_dir.write(config.name, config.text, config.mode)
        self._endpoint.open(self.run_dir)
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
            is_proven=self._topology.history.attempt > 1 or bool(self.desk and self.desk.hosts),
        )
        self._endpoint.listen(self._sshd.process.pid)
        self.callbacks.background(
            self._sshd.watch(lambda why: self._tell(events.Faulted(Outcome(HostError.status, why))))
        )

    def located(self, node: Node) -> Node:
        """Return the node with the port of its sshd, and its present address."""
        node = self.desk.located(node) if self.desk else node
        return replace(node, ssh_port=self.port(node))

    def know(self, calls: Any) -> None:
        """Nodes that call in again are answered by who of them is here, and called where they
        are."""
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

    def send(self, message: Any) -> None:
        """Send a message to the leader that has called this node."""
        self._endpoint.send(message)

    def stop(self) -> None:
        """Let nobody in any more."""
        self._endpoint.close()
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
