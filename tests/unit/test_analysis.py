"""Whose failure is the job's: what is heard, in its order, and what is made of it."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from entrypoint.base.cause import Cause
from entrypoint.base.history import History
from entrypoint.base.model import Node, Outcome
from entrypoint.base.values import replace
from entrypoint.job import events, messages
from entrypoint.job.failure import (
    Failures,
    ProgramExit,
    RankReports,
    by_class,
    difference,
    everywhere,
    lost,
    of_program,
    placement,
)
from entrypoint.job.history import follow
from entrypoint.job.relay import SignalRelay
from entrypoint.spec.jobspec import RestartsSpec
from tests import table
from tests.unit.machine import ECC
from tests.unit.machine import Node as Machine

TABLE = table("tests/tables/analysis.yaml")


def end(status: int, what: str = "it") -> ProgramExit:
    return ProgramExit(status, what, f"{what} exited with {status}")


@pytest.mark.parametrize(("statuses", "wait", "cause"), TABLE["ranks"])
def test_the_cause_among_failed_ranks(statuses: list[int], wait: float, cause: int) -> None:
    failures = Failures()
    waits = [
        failures.of_rank(end(status, f"rank {number}")) for number, status in enumerate(statuses)
    ]
    # Once for all: the second must not delay the outcome.
    assert waits == [wait] + [None] * (len(statuses) - 1)
    found = failures.cause()
    assert found.what == f"rank {cause}"


@pytest.mark.parametrize(
    ("status", "id"),
    [(0, ""), (1, "EP600 "), (128, "EP600 "), (129, "EP601 "), (192, "EP601 "), (193, "EP600 ")],
)
def test_a_program_s_end_has_the_id_of_its_kind(status: int, id: str) -> None:
    """A failure, or a signal; unless its sentence has one."""
    said = Outcome(status, f"{id}it exited with {status}", program=True)
    assert of_program(end(status)) == said
    known = ProgramExit(status, "it", "EP100 known already")
    assert of_program(known).reason == known.reason


def test_who_ended_well_is_no_cause() -> None:
    assert Failures().cause() is None


@pytest.mark.parametrize(("heard", "waits", "cause"), TABLE["nodes"])
def test_the_outcome_among_nodes(
    heard: list[tuple[int, int, bool]], waits: list[float | None], cause: int | None
) -> None:
    job = Machine(launcher="torchrun")
    job.answers(1, 2)
    job.told(events.Prepared(0, (0, 1)))
    for (node, status, last), wait in zip(heard, waits, strict=True):
        assert job.outcome is None
        job.hears(messages.Ended(status, "it", f"it exited with {status}", (), last), sender=node)
        assert (job.outcome is not None) == (wait == 0.0)
    job.waits(max([wait or 0.0 for wait in waits]))
    assert (job.outcome and job.outcome.status) == (cause or (0 if 0.0 in waits else None))


def test_what_all_nodes_get_at_once_is_one_signal() -> None:
    got = [(0, 0.0), (1, 0.1), (0, 0.2), (1, 0.3), (2, 0.3), (1, 1.3), (0, 9.0)]
    signals = SignalRelay(Mock())
    expected = [True, False, True, False, False, True, True]
    assert [signals.is_new("SIGUSR1", *each) for each in got] == expected
    assert signals.is_new("SIGUSR2", 1, 9.0), "another one"


LOST, STOP = Outcome(75, "worker-1 is lost"), Outcome(143, "somebody wanted it")
DNS = Cause("dns", "root", "network", "same", "high", "a name has no address")


def failed(cause: Cause | None = None, status: int = 1) -> Outcome:
    return Outcome(status, "rank 0 failed", program=True, cause=cause)


@pytest.mark.parametrize(
    ("outcome", "attempt", "stop", "then"),
    [
        (LOST, 1, None, Outcome(75, "worker-1 is lost", again=True)),
        (LOST, 2, None, Outcome(75, "worker-1 is lost", again=True)),
        (LOST, 3, None, LOST),  # two restarts are three attempts
        (LOST, 1, STOP, STOP),
        (LOST, 3, STOP, LOST),  # known before the stop came
        # A program's own 75, and all that another attempt would meet as well.
        (Outcome(75, "rank 0 exited with 75", program=True), 1, None, Outcome(75, "rank 0 exited with 75", True)),
        (Outcome(0, "done"), 1, None, Outcome(0, "done")),
        (Outcome(0, "done"), 1, STOP, Outcome(0, "done")),
        (Outcome(69, "nobody came"), 1, None, Outcome(69, "nobody came")),
        (STOP, 1, STOP, STOP),
    ],
)  # fmt: skip
def test_what_follows_an_attempt(
    outcome: Outcome, attempt: int, stop: Outcome | None, then: Outcome
) -> None:
    assert follow(outcome, History(attempt + 1), RestartsSpec(2), stop) == then


MISTAKE = replace(ECC, slug="user-code", blame="program", retry="no")
GUESS = replace(ECC, certainty="low")
SIGTERM = Outcome(143, "EP611 the job was ended by SIGTERM")


@pytest.mark.promise(
    "a user's mistake boots no job again unless the user wants that",
    control="`on: any`, in the same rows",
)
@pytest.mark.parametrize(
    ("outcome", "infrastructure", "lost_nodes", "anything"),
    [
        (LOST, True, True, True),
        (failed(ECC), True, False, True),
        (failed(DNS), True, False, True),
        (failed(MISTAKE), False, False, True),
        (failed(GUESS), False, False, True),
        (failed(None), False, False, True),
        (failed(None, 75), False, False, True),  # a program's own
        (failed(None, 0), False, False, False),
        (Outcome(78, "EP301 no secret"), False, False, False),
        (SIGTERM, False, False, False),
    ],
)
def test_what_the_job_boots_again_after(
    outcome: Outcome, infrastructure: bool, lost_nodes: bool, anything: bool
) -> None:
    settings = {"infrastructure": infrastructure, "lost-nodes": lost_nodes, "any": anything}
    for on, expected in settings.items():
        once, second = RestartsSpec(1, on=on), History(2)
        assert follow(outcome, second, once, None).again == expected, on
        assert not follow(outcome, second, RestartsSpec(0, on=on), None).again
        assert follow(outcome, second, once, STOP) == (STOP if expected else outcome)


@pytest.mark.promise(
    "`failures.status: class` changes only the status of certain infrastructure",
    control="the rows whose status changes",
)
@pytest.mark.parametrize(
    ("outcome", "status"),
    [
        (failed(ECC), 71),
        (failed(DNS), 75),
        (failed(MISTAKE), 1),
        (failed(GUESS), 1),
        (failed(None), 1),
        (LOST, 75),
        (lost("worker-1", "its session ended"), 75),
        (failed(None, 0), 0),
    ],
)
def test_the_status_of_a_failure_s_class(outcome: Outcome, status: int) -> None:
    changed = by_class(outcome)
    assert changed.status == status
    assert changed.program == (outcome.program and status == outcome.status)
    assert (changed.reason, changed.cause) == (outcome.reason, outcome.cause)


@pytest.mark.parametrize(
    ("placed", "words"),
    [
        ({0: "a", 1: "a", 2: "b", 3: "b"}, "4 ranks on 2 nodes: a 0-1, b 2-3"),
        ({3: "b", 1: "b", 2: "a", 0: "a"}, "4 ranks on 2 nodes: a 0,2, b 1,3"),  # --map-by node
        ({0: "a", 1: "a", 2: "a", 5: "a"}, "4 ranks on 1 node: a 0-2,5"),
        ({0: "b"}, "1 rank on 1 node: b 0"),
    ],
)
def test_placement(placed: dict[int, str], words: str) -> None:
    assert placement(placed) == words


@pytest.mark.promise("never 0 when a rank has not ended with 0", control="its own cases")
@pytest.mark.parametrize(
    ("placed", "ended", "well", "words"),
    [
        ({}, {}, False, "0 of 2 ranks | none ran"),
        ({0: "a"}, {0: 0}, False, "1 of 2 ranks | 1 rank on 1 node: a 0"),
        ({0: "a", 1: "b"}, {0: 0}, False, "2 of 2 ranks | 2 ranks on 2 nodes: a 0, b 1"),
        ({0: "a", 1: "b"}, {0: 0, 1: 7}, False, "2 of 2 ranks | 2 ranks on 2 nodes: a 0, b 1"),
        ({0: "a", 1: "b"}, {0: 0, 1: 0}, True, "2 of 2 ranks | 2 ranks on 2 nodes: a 0, b 1"),
    ],
)
def test_only_a_job_whose_every_rank_ended_with_0_is_well(
    placed: dict[int, str], ended: dict[int, int], well: bool, words: str
) -> None:
    heard = RankReports(2, placed)
    for rank, status in ended.items():
        heard.end(rank, status)
    assert heard.all_well() == well
    assert heard.words() == words


def test_the_last_end_of_a_rank_counts() -> None:
    heard = RankReports(1, {0: "a"})
    for status in (7, 9, 0):
        heard.end(0, status)
        assert heard.all_well() == (status == 0)


def test_the_rank_whose_end_was_not_heard_is_named() -> None:
    assert RankReports(3, {0: "a", 2: "b", 1: "b"}, {0: 0}).not_heard() == "rank 1 on b"


def test_where_a_job_did_well() -> None:
    nodes = [Node(0, "a", 1), Node(1, "b", 1, index=1), Node(2, "c", 1, task="ps")]
    assert everywhere(nodes, None) == "all 3 nodes"
    assert everywhere(nodes, (0, 1)) == "all 2 workers"
    assert everywhere(nodes, (1,)) == "worker-1"


def test_long_lists_of_hosts_are_cut_and_their_difference_is_named() -> None:
    ours = tuple(f"node-{rank}.training.svc" for rank in range(1000))
    theirs = (*ours[:700], "NODE-700.training.svc", *ours[701:])
    words = difference(ours, "b", theirs, "a")
    assert words.endswith(
        "...; they first differ in entry 700: node-700.training.svc, NODE-700.training.svc"
    )
    assert len(words) < 300
    assert difference(ours[:2], "b", ours[:1], "a") == (
        "b has node-0.training.svc, node-1.training.svc; a has node-0.training.svc; "
        "they first differ in entry 1: node-1.training.svc, none"
    )
    assert difference("plain", "b", "mpirun", "a") == "b has plain; a has mpirun"
