"""Ranks that an MPI's launcher starts, and what the end of that launcher or of its daemons means for
the job."""

from __future__ import annotations

from typing import Any

import pytest

from entrypoint import __version__, spec
from entrypoint.base.history import History
from entrypoint.base.model import NodeReport
from entrypoint.base.values import replace
from entrypoint.job import events, messages
from entrypoint.job.leader import Leader
from entrypoint.plan import settle
from tests.unit.machine import FACTS, Node, logged, starts


def ended(status: int) -> messages.Ended:
    """The end of the launcher, worker-0's own program."""
    return messages.Ended(status, "mpirun", f"mpirun exited with {status}", (), True)


def reason(node: Node) -> str:
    return f"{node.outcome.status} {node.outcome.reason}"


@pytest.mark.promise(
    "ranks run where they should", control="its case in which every node has a rank"
)
@pytest.mark.parametrize(
    ("senders", "what"),
    [
        ((0, 0, 0, 1, 1, 1), "worker-1 (b) reports 3 ranks and has 2 slots: none runs on worker-2 (c) | 6 ranks on 2"
         " nodes: worker-0 (a) 0-2, worker-1 (b) 3-5"),
        ((0, 0, 0, 0, 0, 0), "no rank runs on worker-1 (b), worker-2 (c) | 6 ranks on 1 node: worker-0 (a) 0-5"),
        ((0, 1, 2, 0, 1, 2), ""),
    ],
)  # fmt: skip
def test_a_node_without_a_rank_is_a_mistake_unless_the_user_places_the_ranks(
    senders: tuple[int, ...], what: str
) -> None:
    node, own = Node().start(), Node(mpi="{np: 6}").start()
    for rank, sender in enumerate(senders):
        node.hears(*starts(rank), sender=sender)
        own.hears(*starts(rank), sender=sender)
    assert own.outcome is None
    do = "make sure that the options of mpirun let it use the hostfile"
    assert node.outcome is None if not what else reason(node) == f"78 EP604 {what} | {do}"


def leader_of(hosts: str, launcher: str) -> Leader:
    """The leader of a job of one or two nodes that has started its launcher."""
    text = f"hosts: {hosts}\nlauncher: {launcher}\nslots: 2\ncommand: [train]\nsecret_file: /none\n"
    job = spec.load(text, "job.yaml", {"ENTRYPOINT_NODE_RANK": "0"}, {})
    leader = Leader(job, FACTS, settle(job, FACTS), History())
    report = NodeReport(0, 2, __version__, "4.1.4")
    happened: list[Any] = [events.Started()]
    if hosts != "[a]":
        happened += [events.KeysReady(), events.EndpointReady(report), events.NameState("a", "")]
        happened.append(events.Answered(1, replace(report, rank=1), "10.0.0.1"))
    for event in (*happened, events.Prepared(2, None)):
        leader.handle(event, 1000.0)
    return leader


@pytest.mark.parametrize(("hosts", "seconds"), [("[a]", 0.0), ("[a, b]", 0.8)])
def test_the_end_of_the_launcher_is_the_job_s_once_other_nodes_can_have_said_why(
    hosts: str, seconds: float
) -> None:
    leader = leader_of(hosts, "mpirun")
    leader.handle(events.MessageReceived(0, ended(5)), 1001.0)
    assert (leader.outcome is None) == (seconds > 0)
    leader.handle(events.TimerFired(), 1001.0 + seconds)
    assert leader.outcome.reason == "EP600 mpirun exited with 5"


@pytest.mark.parametrize(("hosts", "where"), [("[a]", ""), ("[a, b]", " on worker-0 (a)")])
def test_the_end_of_a_node_s_launcher_names_that_node_if_there_are_others(
    hosts: str, where: str
) -> None:
    leader = leader_of(hosts, "torchrun")
    end = messages.Ended(5, "torchrun", "torchrun exited with 5", (), True)
    leader.handle(events.MessageReceived(0, end), 1001.0)
    assert leader.outcome.reason == f"EP600 torchrun{where} exited with 5"


def test_a_job_of_one_node_speaks_of_its_ranks_alone() -> None:
    said = events.MessageReceived(0, messages.Signal("SIGUSR1"))
    leader = leader_of("[a]", "torchrun")
    assert logged(leader.handle(said, 1001.0)) == ["SIGUSR1: passed on to the ranks"]
