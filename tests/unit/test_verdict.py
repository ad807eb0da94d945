"""Why the job failed: the causes that nodes report, and what the leader makes of them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest

from entrypoint.base.cause import Cause
from entrypoint.base.model import Outcome
from entrypoint.base.values import replace
from entrypoint.job import messages
from tests.unit.machine import Node, logged, sent

ECC = Cause(
    "gpu-ecc", "root", "device", "elsewhere", "high",
    "{device} reported an uncorrectable ECC error", device="GPU 2", rank="rank 4",
)  # fmt: skip
LOST_PEER = Cause(
    "peer-lost", "cascade", "peer", "unknown", "high", "a peer was lost", rank="rank 0"
)
MISTAKE = Cause(
    "user-code", "root", "program", "no", "low", "the program failed", lines=("KeyError",)
)


class FailedJob(Node):
    """A job of three nodes whose program has failed with 1, from the point of view of worker-0."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"launcher": "plain", **settings})
        self.start()

    def fails(self, *causes: tuple[int, Cause], ended: Collection[int] | None = None) -> Outcome:
        """Each node reports these causes, its program's failure, and stops; return what the leader
        tells all nodes. The programs of these nodes have ended; None: worker-1's and those of the
        nodes that report a cause."""
        for node, cause in causes:
            self.hears(messages.Diagnosis(cause), sender=node)
        failed = {1, *(node for node, _ in causes)} if ended is None else ended
        failure = {"status": 1, "what": "plain", "reason": "plain exited with 1", "tail": ()}
        for node in failed:
            self.hears(messages.Ended(**failure, last=True), sender=node)
        self.waits(3)
        for node in range(3):
            self.hears(messages.Stopped(), sender=node)
        self.waits(5)
        releases = [each.message for each in sent(self.done, messages.Release)]
        assert len({str(release) for release in releases}) == 1, "all nodes hear the same"
        return Outcome(**vars(releases[0]))


@pytest.mark.promise("the cause of a failure is the first root cause that a node reports")
@pytest.mark.parametrize(
    "causes", [[(2, ECC)], [(0, LOST_PEER), (2, ECC)], [(2, ECC), (0, LOST_PEER), (1, LOST_PEER)]]
)
def test_the_root_cause_is_the_job_s(causes: list[tuple[int, Cause]]) -> None:
    outcome = FailedJob().fails(*causes)
    assert (outcome.status, outcome.program) == (1, True)
    assert outcome.cause == replace(ECC, node="worker-2 (c)")


@pytest.mark.control("the cause of a failure is the first root cause that a node reports")
def test_without_a_root_the_cause_is_a_consequence() -> None:
    outcome = FailedJob().fails((0, LOST_PEER))
    assert outcome.cause == replace(LOST_PEER, node="worker-0 (a)")
    assert FailedJob().fails().cause is None


@pytest.mark.parametrize(
    ("reporter", "address", "name"),
    [
        (0, "10.0.0.2", "worker-1 (b)"),
        (0, "10.9.9.9", "worker-0 (a)"),
        (2, "10.0.0.2", "worker-2 (c)"),
    ],
)
def test_the_leader_s_program_alone_may_name_another_node(
    reporter: int, address: str, name: str
) -> None:
    """As Ray's does, which runs on all nodes."""
    outcome = FailedJob().fails((reporter, replace(ECC, node=address)))
    assert outcome.cause.node == name


NO_GPU = replace(ECC, slug="gpu-init", blame="program", retry="unknown", certainty="low")


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ((2,), ("node", "elsewhere", "high")),
        ((0, 1, 2), ("program", "unknown", "low")),
        ((1, 2), ("program", "unknown", "low")),
    ],
)
def test_a_node_without_gpus_among_others_is_to_blame(
    nodes: tuple[int, ...], expected: tuple[str, str, str]
) -> None:
    cause = FailedJob().fails(*((node, NO_GPU) for node in nodes)).cause
    assert (cause.blame, cause.retry, cause.certainty) == expected


def test_a_job_of_one_node_and_spares_has_no_node_to_compare_it_with() -> None:
    job = FailedJob(spares=2, restarts=1)
    job.hears(messages.Diagnosis(NO_GPU), sender=0)
    job.machine._attempt._monitor.verdict.failed(0)
    cause = job.machine._attempt._monitor.verdict._cause()
    assert (cause.blame, cause.retry, cause.certainty) == ("program", "unknown", "low")


@pytest.mark.promise("a cause counts only from a node that has reported a failed end")
@pytest.mark.parametrize("says", [1, 2])
def test_a_cause_of_a_node_that_has_not_failed_is_none(says: int) -> None:
    """Neither one that runs, nor one whose program has ended well."""
    other = 3 - says
    assert FailedJob().fails((says, ECC), ended=[other]).cause is None
    job = FailedJob()
    job.hears(messages.Ended(0, "plain", "plain exited with 0", (), True), sender=says)
    assert job.fails((says, ECC), (other, MISTAKE), ended=[other]).cause == replace(
        MISTAKE, node=job.machine.state.topology.name(other)
    )


@pytest.mark.control("a cause counts only from a node that has reported a failed end")
@pytest.mark.parametrize(
    ("launcher", "end"),
    [
        ("plain", messages.Ended(1, "plain", "plain exited with 1", (), True)),
        ("mpirun", messages.RankEnd(4, 1, (), "")),
    ],
)
def test_a_cause_counts_once_the_failed_end_is_known(launcher: str, end: Any) -> None:
    for late in (False, True):
        job = FailedJob(launcher=launcher)
        if launcher == "mpirun":
            job.hears(messages.RankStart(4, 100), sender=2)
        verdict = job.machine._attempt._monitor.verdict
        for message in (end, messages.Diagnosis(ECC)) if late else (messages.Diagnosis(ECC), end):
            assert verdict._cause() is None
            job.hears(message, sender=2)
        assert verdict._cause() == replace(ECC, node="worker-2 (c)")


def test_a_failure_without_a_word_has_no_cause() -> None:
    """A consequence on another node is no better answer."""
    silent = replace(MISTAKE, lines=())
    assert FailedJob().fails((2, silent), (0, LOST_PEER)).cause is None


def test_a_node_speaks_for_itself() -> None:
    """A node that names another one as the place of its failure is not believed."""
    outcome = FailedJob().fails((1, replace(ECC, node="worker-0 (a)")))
    assert outcome.cause.node == "worker-1 (b)"


def test_one_node_cannot_fill_the_leader() -> None:
    job = FailedJob()
    for _ in range(1000):
        job.hears(messages.Diagnosis(LOST_PEER), sender=1)
    assert len(job.machine._attempt._monitor.verdict._causes) == 16
    assert job.fails((2, ECC)).cause == replace(ECC, node="worker-2 (c)")


@pytest.mark.promise("`failures.status: class` changes only the status of certain infrastructure")
@pytest.mark.parametrize(
    ("settings", "cause", "expected"),
    [
        ({}, ECC, (1, True, False)),
        ({"failures": "{status: class}"}, ECC, (71, False, False)),
        ({"failures": "{status: class}"}, replace(ECC, retry="same"), (75, False, False)),
        ({"failures": "{status: class}"}, MISTAKE, (1, True, False)),
        ({"restarts": 1}, ECC, (1, True, True)),
        ({"restarts": 1}, MISTAKE, (1, True, False)),
        ({"restarts": "{most: 1, on: any}"}, MISTAKE, (1, True, True)),
        ({"restarts": "{most: 1, on: lost-nodes}"}, ECC, (1, True, False)),
        ({"restarts": 1, "failures": "{status: class}"}, ECC, (1, True, True)),
    ],
)
def test_what_follows_from_a_cause(
    settings: dict[str, Any], cause: Cause, expected: tuple[int, bool, bool]
) -> None:
    outcome = FailedJob(**settings).fails((2, cause))
    assert (outcome.status, outcome.program, outcome.again) == expected


def test_a_success_has_no_cause() -> None:
    """A rank that failed and was restarted by its launcher is no cause of a success."""
    job = FailedJob()
    job.hears(messages.Diagnosis(ECC), sender=2)
    for node in range(3):
        job.hears(messages.Ended(0, "plain", "plain exited with 0", (), True), sender=node)
    assert (job.outcome.status, job.outcome.cause) == (0, None)


def test_the_last_lines_of_a_failed_program_are_logged() -> None:
    job = FailedJob()
    printed = ("Traceback:", "KeyError")
    done = job.hears(messages.Ended(7, "plain", "plain exited with 7", printed, True), sender=1)
    assert logged(done) == [
        "last 2 lines of plain on worker-1 (b):",
        "  | Traceback:",
        "  | KeyError",
    ]
