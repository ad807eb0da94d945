"""A real machine with its observer, and a clock that goes on by a second with each event."""

from __future__ import annotations

import json
from typing import Any

from entrypoint import __version__, spec
from entrypoint.base.history import History
from entrypoint.base.model import Facts, NodeReport, Outcome, Plan
from entrypoint.base.wire import to_json
from entrypoint.extensions import LoopView
from entrypoint.features.record.content import JobStatus
from entrypoint.features.record.observer import JobObserver
from entrypoint.job import events
from entrypoint.job.leader import Leader
from entrypoint.job.worker import Worker
from entrypoint.plan import settle

FACTS = Facts(
    env={}, hostname="node", cwd="/job", uid=1000, user="u", home="/home/u", mpi="4.1.4",
    programs={name: f"/usr/bin/{name}" for name in ("sshd", "ssh", "mpirun", "orted", "python3")},
)  # fmt: skip
STARTED, PRINTED, ENDED = (
    events.RankChanged("rank 0", change) for change in ("start", "output", "end")
)


def settled(
    me: int, launcher: str = "mpirun", nodes: int = 2, more: str = ""
) -> tuple[spec.JobSpec, Plan]:
    hosts = ", ".join(f"{'abcdefgh'[rank]}=10.0.0.{rank + 1}" for rank in range(nodes))
    text = (
        f"hosts: [{hosts}]\nslots: 2\nlauncher: {launcher}\ncommand: [train]\nsecret_file:"
        f" /none\n{more}"
    )
    read = spec.load(text, "job.yaml", {"ENTRYPOINT_NODE_RANK": str(me)}, {})
    return read, settle(read, FACTS)


class Seen:
    """A real machine with its observer, and a clock that goes on by a second with each event."""

    def __init__(self, me: int, launcher: str = "mpirun", nodes: int = 2, more: str = "") -> None:
        self.now = 1000.0
        read, plan = settled(me, launcher, nodes, more)
        self.machine = (
            Leader(read, FACTS, plan, History()) if me == 0 else Worker(read, plan, History())
        )
        self.members = plan.members
        self.observer = JobObserver((), self.now)
        self.observer.begin(plan, self.now)

    def step(self, *happens: Any) -> Seen:
        for event in happens:
            self.now += 1
            for what in (event, *self.machine.handle(event, self.now)):
                self.observer.saw(what, self.now)
        return self

    def open(self, me: int = 0) -> Seen:
        return self.step(events.Started(), events.KeysReady(), events.EndpointReady(report(me)))

    def says(self, node: int, *messages: Any) -> Seen:
        return self.step(*(events.MessageReceived(node, message) for message in messages))

    def status(self, outcome: Outcome | None = None, idle: float = 0.0) -> JobStatus:
        return self.observer.status(self.now, LoopView(1, outcome, idle, ""))

    def shown(self, outcome: Outcome | None = None, idle: float = 0.0) -> dict[str, Any]:
        return dict(json.loads(to_json(self.status(outcome, idle))))

    def phases(self) -> list[str]:
        return [each["phase"] for each in self.shown()["nodes"]]

    def details(self) -> list[str]:
        return [each["detail"] for each in self.shown()["nodes"]]


def report(rank: int) -> NodeReport:
    return NodeReport(rank, 2, __version__, "4.1.4")


def ready(launcher: str = "mpirun", nodes: int = 2, more: str = "") -> Seen:
    """Worker-0 whose roll call is complete."""
    seen = Seen(0, launcher, nodes, more).open().step(events.NameState("a", ""))
    return seen.step(*(events.Answered(rank, report(rank)) for rank in range(1, nodes)))


def started(
    launcher: str = "mpirun", nodes: int = 2, more: str = "", asked: int | None = None
) -> Seen:
    ranks = (2 * nodes if asked is None else asked) if launcher == "mpirun" else 0
    return ready(launcher, nodes, more).step(events.Prepared(ranks, None))
