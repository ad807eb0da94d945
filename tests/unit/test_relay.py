"""Signals for the ranks, such as SIGUSR1: who passes them on, and what is said of it."""

from __future__ import annotations

from entrypoint import spec
from entrypoint.job import events, messages
from entrypoint.job.history import History
from entrypoint.job.leader import Leader
from entrypoint.plan import settle
from tests.unit.machine import FACTS, logged

SIGNAL = messages.Signal("SIGUSR1")


def test_a_job_of_one_node_speaks_of_its_ranks_alone() -> None:
    job = spec.load("launcher: torchrun\nslots: 2\ncommand: [x]\n", "job.yaml", {}, {})
    leader = Leader(job, FACTS, settle(job, FACTS), History())
    for event in (events.Started(), events.Prepared(0, None)):
        leader.handle(event, 1000.0)
    done = leader.handle(events.MessageReceived(0, SIGNAL), 1001.0)
    assert logged(done) == ["SIGUSR1: passed on to the ranks"]
