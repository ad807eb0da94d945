"""Who may say what: a node is believed about itself, its own ranks and its own programs, and about
nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from entrypoint.base.model import Outcome
from entrypoint.job import actions, messages
from tests.unit.machine import SAMPLES, Node

# answers to the roll call, which is over; and of a gate that was not announced
LATER = {messages.NodeInfo, messages.Taken, messages.HostsWanted, messages.Reject}
LATER |= {messages.Checking, messages.Checked}
NO_RANKS = {messages.RankStart, messages.RankEnd, messages.DaemonStarted, messages.Daemon}
NO_RANKS |= {messages.Limit}
OTHERS = {messages.RankEnd, messages.Steps, messages.RankStacks}  # of a rank that has not started
NO_JOB = {messages.Ended, messages.Met, messages.Diagnosis, messages.Progressed, messages.Grew}
NO_JOB |= NO_RANKS - {messages.Daemon} | OTHERS
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
    before = {messages.CallIn, messages.CalledIn}
    assert classes == {*messages.FROM_WORKER, *messages.FROM_LEADER, *before}
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
