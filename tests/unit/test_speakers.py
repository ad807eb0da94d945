"""Who may say what: a node is believed about itself, its own ranks and its own programs, and about
nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from entrypoint.base.model import Outcome
from entrypoint.job import actions, events, messages
from tests.unit.machine import SAMPLES, Node, ends, sent, starts

# answers to the roll call, which is over; and of a gate that was not announced
LATER = {messages.NodeInfo, messages.Taken, messages.HostsWanted, messages.Reject}
LATER |= {messages.Checking, messages.Checked}
NO_RANKS = {messages.RankStart, messages.RankEnd, messages.DaemonStarted, messages.Daemon}
NO_RANKS |= {messages.Limit}
NO_JOB = NO_RANKS - {messages.Daemon} | {messages.Ended, messages.Met, messages.Diagnosis}
NO_JOB |= {messages.Steps, messages.RankStacks, messages.Progressed, messages.Grew}
OTHERS = {messages.RankEnd, messages.Steps, messages.RankStacks}  # of a rank that has not started
REFUSED = {
    "mpirun": LATER | OTHERS | {messages.Ended, messages.Met, messages.Reply},
    "hydra": LATER | OTHERS | {messages.Ended, messages.Met, messages.Reply},
    "torchrun": LATER | NO_RANKS | {messages.Met, messages.Reply},
    "plain": LATER | NO_RANKS | {messages.Met, messages.Reply},
    "elastic": LATER | NO_RANKS | {messages.Reply},
}


def test_each_message_is_in_the_table() -> None:
    classes = {
        each
        for each in vars(messages).values()
        if isinstance(each, type) and each.__module__ == messages.__name__
    }
    assert classes == {*messages.FROM_WORKER, *messages.FROM_LEADER}
    assert set(SAMPLES) == {*messages.FROM_WORKER, *messages.FROM_LEADER}


@pytest.mark.promise("a node is believed only about itself, its own ranks and its own programs")
@pytest.mark.parametrize("launcher", REFUSED)
@pytest.mark.parametrize("message", messages.FROM_WORKER)
def test_what_a_worker_may_say_of_a_running_job(launcher: str, message: type) -> None:
    node = Node(launcher=launcher).start()
    node.hears(SAMPLES[message])
    refused = message in REFUSED[launcher]
    assert node.rejected() == ({1} if refused or message is messages.Goodbye else set())
    assert node.outcome != Outcome(0, ""), "whatever it says"
    assert node.outcome is None or node.outcome.status != 0
    if refused and launcher != "elastic":
        assert node.outcome.status == 75
        assert node.outcome.reason.startswith(
            "EP602 worker-1 (b) is lost: it sent an invalid message: "
        )
        assert messages.kind_of(message) in node.outcome.reason


@pytest.mark.parametrize("launcher", REFUSED)
@pytest.mark.parametrize("message", messages.FROM_WORKER)
def test_what_a_worker_may_say_before_the_start(launcher: str, message: type) -> None:
    node = Node(launcher=launcher)
    node.answers(1)
    node.hears(SAMPLES[message])
    node.waits(10)
    if message in REFUSED[launcher] | NO_JOB:
        assert actions.Call(1) in node.done[-40:] or node.rejected() == {1}, "it is called again"
    assert node.outcome is None or node.outcome.status != 0


@pytest.mark.control("a node is believed only about itself, its own ranks and its own programs")
@pytest.mark.parametrize("message", [messages.RankStart, messages.RankEnd, messages.Ended])
def test_what_only_the_own_node_says(message: type) -> None:
    """The control: the same of the leader's own programs, under mpirun."""
    node = Node().start()
    node.hears(messages.RankStart(0, 8), SAMPLES[message], sender=0)
    assert node.rejected() == set()
    assert node.outcome is None or node.outcome.status == 0


@pytest.mark.promise("a node is believed only about itself, its own ranks and its own programs")
@pytest.mark.parametrize(
    "said",
    [
        messages.RankStart(0, 9),
        messages.Reply(2, {}),
        messages.Reply(99, {}),
        messages.Reply(1, {"handles": "many"}),
    ],
    ids=["a rank", "for another node", "to no question", "nonsense"],
)
def test_a_check_hears_of_a_check_alone(said: Any) -> None:
    """The questions are 0 for the leader's node, 1 and 2 for the others."""
    node = Node(check=True)
    node.answers(1, 2)
    node.hears(said)
    assert node.rejected() == {1}


@pytest.mark.control("a node is believed only about itself, its own ranks and its own programs")
def test_a_check_hears_a_node_s_own_answer_once() -> None:
    node = Node(check=True)
    node.answers(1, 2)
    node.hears(messages.Reply(1, {}), messages.Reply(1, {"handles": "many"}))
    assert node.rejected() == set()
    node.hears(messages.Reply(0, {}), sender=0)
    node.hears(messages.Reply(2, {}), sender=2)
    assert node.machine.state.answer.startswith("job ")
    assert node.outcome == Outcome(0, "check of 3 nodes: nothing is wrong")


def test_a_check_asks_the_nodes_that_are_there_even_if_others_are_missing() -> None:
    node = Node(check=True, timeouts="{peers: 5}")
    node.answers(1)
    node.waits(6)
    assert node.outcome is None
    assert [each.node for each in sent(node.done, messages.Question)] == [0, 1]


def test_an_answer_is_for_the_leader_that_has_asked() -> None:
    node = Node(me=1, check=True)
    reply = messages.Reply(0, {})
    node.hears(node.hello, messages.Question(0, {}), sender=0)
    assert actions.Send(0, reply) in node.hears(reply, sender=1)
    node.told(events.SessionLost(0, "killed"))
    node.hears(node.hello, sender=0)
    assert node.hears(reply, sender=1) == []


@pytest.mark.promise("a node is believed only about itself, its own ranks and its own programs")
@pytest.mark.parametrize("started", [False, True])
@pytest.mark.parametrize("called", [False, True])
@pytest.mark.parametrize("message", messages.FROM_LEADER)
def test_what_a_leader_may_say(message: type, called: bool, started: bool) -> None:
    node = Node(me=1)
    if called:
        node.hears(SAMPLES[messages.Hello], sender=0)
    if called and started:
        node.hears(SAMPLES[messages.Start], sender=0)
    before = len(node.done)
    node.hears(SAMPLES[message], sender=0)
    started &= called
    refused = {messages.Hello, messages.Question}
    if not called:
        refused = set(messages.FROM_LEADER) - {messages.Hello}
    elif not started:
        refused = {messages.StartDaemon, messages.Progressed, messages.Question, messages.Release}
    if message not in refused:
        return
    if started:
        assert node.outcome.status == 75
        assert f"it sent an invalid message: {messages.kind_of(message)} " in node.outcome.reason
    else:  # it waits for its leader
        assert node.outcome is None
        assert [
            each
            for each in node.done[before:]
            if not isinstance(each, (actions.Entered, actions.ShowWaiting))
        ] == []


def test_a_leader_may_end_a_check_and_a_failure_before_the_start() -> None:
    """The control of a success before the start."""
    for node, message in (
        (Node(me=1, check=True), SAMPLES[messages.Release]),
        (Node(me=1), messages.Release(69, "2 peers did not answer", False, False)),
    ):
        node.hears(node.hello, message, sender=0)
        assert node.outcome.status == message.status


def test_a_worker_names_what_it_waits_for() -> None:
    """Until the leader calls, until all nodes are there, while they are asked, and after its
    session has ended."""
    node = Node(me=1, check=True)
    node.hears(node.hello, messages.Question(0, {}), sender=0)
    node.told(events.SessionLost(0, "its session ended"))
    assert node.shown("worker-0 (a)") == [
        "it has not called yet",
        "it waits for other nodes",
        "it asks all nodes first",
        "its session ended",
    ]


# -- ranks


@pytest.mark.parametrize(
    ("first", "second", "names"),
    [
        (1, 2, "worker-1 (b) and worker-2 (c)"),
        (0, 1, "worker-0 (a) and worker-1 (b)"),
        (1, 0, "worker-1 (b) and worker-0 (a)"),
    ],
)
def test_two_nodes_that_report_one_rank_are_both_named(first: int, second: int, names: str) -> None:
    node = Node().start()
    node.hears(*starts(4), sender=first)
    assert node.outcome is None
    node.hears(*starts(4), sender=second)
    assert node.outcome.status == 75
    assert node.outcome.reason.startswith(f"EP619 {names} both report that rank 4 runs there | see")


@pytest.mark.parametrize(
    ("sender", "reason"),
    [
        (1, "EP602 worker-1 (b) is lost: it sent an invalid message: rank_end of a rank that does"),
        (2, "EP600 rank 4 on worker-2 (c) exited with 9"),
    ],
)
def test_the_end_of_a_rank_is_believed_of_its_own_node(sender: int, reason: str) -> None:
    node = Node().start()
    for each in range(3):
        node.hears(*starts(2 * each, 2 * each + 1), sender=each)
    node.hears(*ends(4, status=9), sender=sender)
    node.waits(1)
    assert node.outcome.reason.startswith(reason)


def test_a_worker_that_reports_every_rank_first_is_the_one_that_is_named() -> None:
    node = Node().start()
    node.hears(*starts(*range(6)))
    assert node.outcome.status == 78
    assert node.outcome.reason.startswith(
        "EP604 worker-1 (b) reports 6 ranks and has 2 slots: none runs on worker-0 (a), worker-2 (c) |"
        " 6 ranks on 1 node"
    )


def test_ranks_that_nobody_asked_for_do_not_count_as_started() -> None:
    node = Node().start()
    node.hears(*starts(0, 1), sender=0)
    node.hears(*starts(100, 101, 102, 103), *ends(100, 101, 102, 103))
    node.hears(*ends(0, 1), sender=0)
    node.waits(20)
    assert node.outcome is None


def test_a_failed_start_hook_of_a_node_counts_as_a_failure_of_the_program() -> None:
    """Then only `restarts.on` has the job boot again."""
    node = Node().start()
    node.hears(messages.Failed(75, "EP441 it failed", True, False))
    assert node.outcome == Outcome(75, "worker-1 (b): EP441 it failed", program=True)


@pytest.mark.parametrize("of_leader", [1, 2])
def test_a_launcher_that_stays_is_a_success_only_where_each_node_reports_its_share(
    of_leader: int,
) -> None:
    """Two ranks on a, one on b: the control."""
    node = Node(mpi="{np: 3}").start()
    here, there = range(of_leader), range(of_leader, 3)
    node.hears(*starts(*here), sender=0)
    node.hears(*starts(*there), *ends(*there))
    node.hears(*ends(*here), sender=0)
    node.waits(20)
    assert node.outcome.status == (0 if of_leader == 2 else 75)
    assert of_leader == 2 or node.outcome.reason == (
        "EP620 mpirun is still running, though every rank is reported to have exited with 0 | worker-1"
        " (b) reports 2 ranks and has 2 slots; 3 ranks on 2 nodes: worker-0 (a) 0, worker-1 (b) 1-2"
        " | retry"
    )
