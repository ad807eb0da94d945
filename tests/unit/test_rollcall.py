"""What a roll call takes into account: what a node answers, who is missing, and calls that are for
another node."""

from __future__ import annotations

from typing import Any

import pytest

from entrypoint import __version__, spec
from entrypoint.base.errors import HostError
from entrypoint.base.history import History
from entrypoint.base.model import Interface, NodeReport, Outcome
from entrypoint.base.phases import Phase
from entrypoint.base.values import replace
from entrypoint.job import actions, events, messages
from entrypoint.job.answer import node_info, node_report
from entrypoint.job.failure import UNHEALTHY
from entrypoint.job.leader import Leader
from entrypoint.job.messages import Hello
from entrypoint.job.rollcall import two_leaders
from entrypoint.job.waits import Misdirected
from entrypoint.job.worker import Worker
from entrypoint.plan import settle
from tests.unit.machine import FACTS, Node, logged

HOSTS = ("a", "b", "c")


def hello(
    rank: int, hosts: tuple[str, ...] = HOSTS, toolkit: str = __version__, job: str = ""
) -> Hello:
    return Hello(toolkit, hosts, rank, "plain", {}, 15.0, "leader", "10.0.0.1", "token", job=job)


def of_node(rank: int, job_id: str = "") -> Misdirected:
    here = replace(Node().machine.state.topology, me=rank, job_id=job_id)
    return Misdirected(here)


@pytest.mark.parametrize(
    ("calls", "elsewhere"),
    [
        ([(hello(1), 0.0), (hello(1), 10.0), (hello(1), 10.1)], [True, True, False]),
        ([(hello(1), 0.0), (hello(2), 5.0), (hello(1), 15.0)], [True, False, True]),
        ([(hello(1, ("a", "B", "c")), 0.0), (hello(1, toolkit="0.0.1"), 0.0)], [False, False]),
    ],
    ids=["an address may be stale for 10 s", "the right call ends that", "another job's"],
)
def test_calls_for_another_node_are_a_mistake_if_they_go_on(
    calls: list[tuple[Hello, float]], elsewhere: list[bool]
) -> None:
    node, words = of_node(2), "that is worker-2 of this job"
    answers = [node.why(call, 100.0 + seconds) for call, seconds in calls]
    assert answers == [words if each else "" for each in elsewhere]


@pytest.mark.parametrize(
    ("ours", "theirs", "differ"),
    [("18.0", "17.0", True), ("17.0", "17.0", False), ("", "17.0", False), ("18.0", "", False)],
)
def test_two_jobs_of_one_name_and_secret_differ_by_the_scheduler_s_number(
    ours: str, theirs: str, differ: bool
) -> None:
    """Not where one side does not know its own."""
    why = of_node(2, ours).why(hello(2, job=theirs), 100.0)
    assert why == (messages.OTHER_JOB if differ else "")


@pytest.mark.parametrize("rank", [0, 1])
def test_a_call_of_another_job_is_answered_with_that(rank: int) -> None:
    """On a host that both jobs share; the leader that calls then tries its own node's port."""
    text = "hosts: [a=10.0.0.1, b=10.0.0.2]\nlauncher: plain\ncommand: [x]\nsecret_file: /none\n"
    here = replace(FACTS, env={"SLURM_JOB_ID": "18"})
    job = spec.load(text, "job.yaml", {"ENTRYPOINT_NODE_RANK": str(rank)}, {})
    draft = settle(job, here)
    node: Any = Worker(job, draft, History()) if rank else Leader(job, here, draft, History())
    for event in (
        events.Started(),
        events.KeysReady(),
        events.EndpointReady(NodeReport(rank, 1, __version__)),
    ):
        node.handle(event, 1000.0)
    call = hello(rank, ("a", "b"), job="17")
    answer = messages.Taken(messages.OTHER_JOB)
    if rank:
        done = node.handle(events.MessageReceived(0, call), 1000.0)
        assert actions.Send(0, answer) in done
    else:
        assert actions.Answer(answer) in node.handle(events.LeaderCalled(call), 1000.0)
    assert node.outcome is None


# --------------------------------------------------------------------------------------------------
# Answers


@pytest.mark.parametrize(
    "not_ready",
    [
        None,
        Outcome(73, "the disk is full"),
        Outcome(HostError.status, "EP460 a node is not healthy", cause=UNHEALTHY),
    ],
)
@pytest.mark.parametrize("interface", [None, Interface("eth1", "10.0.0.3", "10.0.0.0/24")])
def test_an_answer_brings_all_that_a_node_reports(
    not_ready: Outcome | None, interface: Interface | None
) -> None:
    report = NodeReport(
        rank=2, slots=4, toolkit="1.2.3", mpi="4.1.4", address="10.0.0.3", clock=-3.5,
        not_ready=not_ready, interface=interface, interfaces=("eth0", "eth1"),
        history=History(3, 2, 40), round_trip=0.25, ports=(6060, 20004), holder="another job", ssh_port=20002, checking=True,
    )  # fmt: skip
    info = node_info(report, clock=96.5)
    assert node_report(2, info, ("10.0.0.3", 20002), clock=100.0, trip=0.25) == report


# --------------------------------------------------------------------------------------------------
# Who is missing


def test_two_leaders_with_the_same_hosts_have_one_index() -> None:
    here = Node().machine.state.topology
    assert two_leaders(here, HOSTS)[1] == "both have index 0 of a, b, c"
    assert "another node has" in two_leaders(here, ())[1]


def test_a_worker_has_one_leader_at_a_time() -> None:
    """The same one may call again before the start, and any once the first is gone. Every node
    knows its name, and this one alone has the token."""
    node = Node(me=1)
    others = (
        replace(node.hello, leader="another one", token="its own"),
        replace(node.hello, token="of another node"),
        messages.Ping(0),
    )
    node.hears(node.hello, sender=0)
    assert node.machine.busy(node.hello, node.now) == ""
    assert {node.machine.busy(other, node.now) for other in others} == {messages.TAKEN}
    wrong_node = replace(node.hello, rank=2, token="of node 2")
    assert node.machine.busy(wrong_node, node.now) == "that is worker-1 of this job"
    node.told(events.SessionLost(0))
    assert {node.machine.busy(other, node.now) for other in others} == {""}


def test_a_worker_says_that_an_attempt_runs_there_until_its_ranks_have_ended() -> None:
    """Also after it has lost its leader."""
    node = Node(me=1, restarts=2)
    other = replace(node.hello, leader="another one", token="its own")
    node.hears(node.hello, messages.Start(), sender=0)
    assert node.machine.busy(other, node.now) == messages.RUNS
    node.told(events.SessionLost(0))
    node.waits(29)
    assert node.machine.busy(other, node.now) == messages.RUNS
    assert node.machine.state.phase is Phase.ENDING
    node.hears(messages.Stopped(), sender=1)
    assert node.machine.state.phase is Phase.ENDED


def test_a_session_with_a_call_for_another_node_may_be_replaced() -> None:
    node = Node(me=1)
    done = node.hears(replace(node.hello, rank=2, token="of node 2"), sender=0)
    assert actions.Send(0, messages.Taken("that is worker-1 of this job")) in done
    assert node.outcome is None
    assert node.machine.busy(node.hello, node.now) == ""


def test_a_worker_that_has_started_waits_for_no_call() -> None:
    """Its leader is then lost if it is silent, not late."""
    node = Node(me=1, timeouts="{peers: 100}")

    def at(seconds: float, *said: Any) -> None:
        node.now = 1000.0 + seconds
        node.told(events.TimerFired())
        node.hears(*said, sender=0)

    at(95, node.hello)
    at(100)  # its leader is there: it is awaited for 18 s more, and 18 s more
    at(101, messages.Start())
    for seconds in range(102, 118):
        at(seconds, messages.Ping(0))
    at(117 + 15 / 16, messages.Ping(0))
    while node.outcome is None:
        node.now = node.machine.wake
        node.told(events.TimerFired())
    assert node.outcome.reason == "EP602 worker-0 (a) is lost: nothing heard of it for 18s"


def test_a_worker_whose_leader_speaks_seldom_wakes_for_anything_else() -> None:
    node = Node(me=1)
    node.hears(node.hello, messages.Start(), sender=0)
    begun, looks = node.now, 0
    for beat in range(1, 61, 3):
        while (wake := node.machine.wake) < begun + beat:
            node.now = wake
            node.told(events.TimerFired())
            looks += 1
        node.now = begun + beat
        node.hears(messages.Ping(0), sender=0)
    assert 0 < looks <= 60 / 12


@pytest.mark.fault("16", "clocks minutes apart", launcher="all")
@pytest.mark.parametrize(("clock", "named"), [(300.0, True), (100.0, False)])
def test_clocks_minutes_apart_are_said_before_ranks_start(clock: float, named: bool) -> None:
    node = Node()
    node.told(events.NameState("a", ""))
    for rank in (1, 2):
        report = NodeReport(rank, 2, __version__, "4.1.4", clock=clock * (rank == 1))
        node.told(events.Answered(rank, report, "10.0.0.1"))
    said = "\n".join(logged(node.done))
    assert ("EP424 clocks differ | worker-1 (b) is 300s ahead of the others | " in said) == named
    assert node.is_prepared
