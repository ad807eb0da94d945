"""A machine of three nodes with a clock that the test moves, and samples of all messages."""

from __future__ import annotations

from typing import Any

from entrypoint import __version__, spec
from entrypoint.base.cause import Cause, Saved
from entrypoint.base.history import History
from entrypoint.base.model import Facts, NodeReport, Outcome
from entrypoint.base.values import replace
from entrypoint.features.health.report import CheckOptions, inquiry
from entrypoint.job import actions, events, messages
from entrypoint.job.leader import Leader
from entrypoint.job.membership.team import Team
from entrypoint.job.stacks import ProcessStack
from entrypoint.job.worker import Worker
from entrypoint.plan import settle

FACTS = Facts(
    env={}, hostname="node", cwd="/job", uid=1000, user="u", home="/home/u", mpi="4.1.4",
    programs={name: f"/usr/bin/{name}" for name in ("sshd", "ssh", "mpirun", "orted", "python3", "mpiexec.hydra",
                                                    "hydra_pmi_proxy")},
)  # fmt: skip
# what such a job's spec has instead of its launcher
MORE = {"elastic": "launcher: torchrun\nnodes: 2:3\n"}
ECC = Cause("gpu-ecc", "root", "device", "elsewhere", "high", "{device} has an ECC error")
WELL = {"status": 0, "what": "mpirun", "reason": "mpirun exited with 0", "tail": (), "last": True}
SAMPLES = {
    type(each): each
    for each in (
        messages.NodeInfo(1, "", __version__, 0.0, History(), None, None, ()),
        messages.Taken(messages.TAKEN),
        messages.HostsWanted(),
        messages.Reject("a", "b", "c"),
        messages.Pong(0.0, 0),
        messages.Steps(((1, 7, 0.5),)),
        messages.RankStacks((ProcessStack(1, "rank 1", 9, False, "S", "", ""),)),
        messages.RankStart(1, 9),
        messages.RankEnd(0, 0, (), ""),
        messages.Ended(**WELL),
        messages.Met(),
        messages.Diagnosis(ECC),
        messages.DaemonStarted(0),
        messages.Daemon("orted", 0, ""),
        messages.Limit("no more"),
        messages.Failed(9, "it cannot", False, False),
        messages.ForceStop(),
        messages.Progressed(),
        messages.Grew(),
        messages.Signal("SIGUSR1"),
        messages.Stopped(Saved("step_70", 4.0)),
        messages.Reply(0, {}),
        messages.Phases((), 0.0, 0.0, 0.0, 0.0),
        messages.Goodbye(),
        messages.Checking("memory"),
        messages.Checked(""),
        messages.Hello(
            __version__, ("a", "b", "c"), 1, "mpirun", {}, 15.0, "leader", "10.0.0.2", "token"
        ),
        messages.Start(),
        messages.StartDaemon("orted"),
        messages.Ping(0),
        messages.Stacks(),
        messages.Stop(1.0),
        messages.Question(0, {}),
        messages.ReleaseFailedRanks(),
        messages.Release(0, "done", True, False),
    )
}


class Node:
    """A machine, and a clock that the test moves: three nodes of two slots each."""

    def __init__(
        self,
        me: int = 0,
        launcher: str = "mpirun",
        check: bool = False,
        checking: bool = False,
        team: Team | None = None,
        **settings: Any,
    ) -> None:
        given = (
            "hosts: [a=10.0.0.1, b=10.0.0.2, c=10.0.0.3]\nslots: 2\ncommand: [train]\nsecret_file:"
            " /none\n"
        )
        given += MORE.get(launcher, f"launcher: {launcher}\n")
        given += "".join(f"{name}: {value}\n" for name, value in settings.items())
        env = {"ENTRYPOINT_NODE_RANK": str(me), "ENTRYPOINT_TIMEOUTS_HEARTBEAT": "15"}
        job = spec.load(given, "job.yaml", env, {})
        asked = inquiry(job, CheckOptions(1.0)) if check else None
        draft = replace(settle(job, FACTS), inquiry=asked)
        self.now = 1000.0
        self.done = []
        self.answered = 0  # how many of these are
        # of each node: how long its ranks have printed nothing, and the state of one of them
        self.idle = [0.0, 0.0, 0.0]
        self.states = ["S", "S", "S"]
        self.steps: list[tuple[int, int, float]] = []  # as the nodes report them
        self.launch = draft.launch
        self.hello = replace(SAMPLES[messages.Hello], launcher=draft.task)
        self.machine: Any = (
            Worker(job, draft, History()) if me else Leader(job, FACTS, draft, History(), team)
        )
        self.told(events.Started())
        self.told(events.KeysReady())
        report = NodeReport(me, 2, __version__, "4.1.4", checking=checking)
        self.told(events.EndpointReady(report))

    def told(self, event: Any) -> list[Any]:
        done: list[Any] = self.machine.handle(event, self.now)
        self.done += done
        return done

    def hears(self, *said: Any, sender: int = 1) -> list[Any]:
        return [
            action
            for message in said
            for action in self.told(events.MessageReceived(sender, message))
        ]

    def answers(self, *nodes: int, attempt: int = 1) -> None:
        self.told(events.NameState("a", ""))
        for node in nodes:
            self.told(
                events.Answered(
                    node,
                    NodeReport(node, 2, __version__, "4.1.4", history=History(attempt)),
                    "10.0.0.1",
                )
            )

    def start(self, *nodes: int) -> Node:
        self.answers(*(nodes or (1, 2)))
        self.told(events.Prepared(self.launch.ranks.reported, self.launch.awaited))
        return self

    def waits(self, seconds: float) -> None:
        """Time passes; all nodes answer, and mpirun prints nothing."""
        end = self.now + seconds
        while self.now < end:
            self.now = min(end, self.now + 1.0)
            self.told(events.TimerFired())
            while self.answered < len(self.done):
                self.answered += 1
                match self.done[self.answered - 1]:
                    case actions.CheckOutputProgress():
                        self.told(events.OutputProgress(100, True))
                    case actions.Send(node, message):
                        self.hears(*self.reply(node, message), sender=node)

    def reply(self, node: int, message: Any) -> list[Any]:
        """What a node answers to the leader."""
        match message:
            case messages.Ping(number):
                steps = tuple(row for row in self.steps if row[0] // 2 == node)
                told = [messages.Steps(steps)] if self.steps else []
                return [*told, messages.Pong(self.idle[node], number)]
            case messages.Stacks():
                state = self.states[node]
                note = f"exited with {state}" if state in ("ended", "left") else ""
                stack = ProcessStack(2 * node, f"rank {2 * node}", 9, False, state, "", note)
                return [messages.RankStacks((stack,))]
        return []

    @property
    def outcome(self) -> Outcome | None:
        decided: Outcome | None = self.machine.outcome
        return decided

    @property
    def reason(self) -> str:
        """Why the job ends; "" while that is not decided."""
        return self.outcome.reason if self.outcome else ""

    @property
    def is_prepared(self) -> bool:
        return any(isinstance(each, actions.Prepare) for each in self.done)

    def shown(self, host: str) -> list[str]:
        """Return what was shown of a host that is waited for."""
        waiting = (each for each in self.done if isinstance(each, actions.ShowWaiting))
        return [each.state for each in waiting if each.host == host]

    def rejected(self) -> set[int]:
        return {each.node for each in self.done if isinstance(each, actions.CloseSession)}


def logged(done: list[Any]) -> list[str]:
    """Return the lines that these actions log."""
    return [each.text for each in done if isinstance(each, actions.Log)]


def sent(done: list[Any], kind: type = object) -> list[actions.Send]:
    """Return those of these actions that send such a message to a node."""
    sends = (each for each in done if isinstance(each, actions.Send))
    return [each for each in sends if isinstance(each.message, kind)]


def starts(*ranks: int) -> list[Any]:
    return [messages.RankStart(rank, 100 + rank) for rank in ranks]


def ends(*ranks: int, status: int = 0) -> list[Any]:
    return [messages.RankEnd(rank, status, (), "") for rank in ranks]
