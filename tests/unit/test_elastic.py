"""Elastic jobs, `nodes: 2:4`: how the spec says it, what torchrun is told, what is refused, and
whose end counts."""

from __future__ import annotations

from typing import Any

import pytest

from entrypoint import __version__, spec
from entrypoint.base.errors import ConfigError, SpecError
from entrypoint.base.model import Facts, NodeReport, Outcome, Plan
from entrypoint.job import actions, events, messages
from entrypoint.plan import settle
from tests.unit.machine import Node

FACTS = Facts({}, "a", "/work", 1000, "me", "/home/me", programs={"sshd": "/usr/sbin/sshd"})
SECRET = {"ENTRYPOINT_SECRET": "8f2c" * 9 + "0a1b3d5e"}


def plan(text: str, launcher: str = "torchrun", hosts: str = "[a, b, c, d]", **env: str) -> Plan:
    given = f"launcher: {launcher}\nhosts: {hosts}\nnode_rank: 0\ncommand: [train.py]\n{text}\n"
    return settle(spec.load(given, "job.yaml", {**SECRET, **env}, {}), FACTS)


@pytest.mark.parametrize("text", ["nodes: 2:4", 'nodes: "2:4"', ""])
def test_two_of_four(text: str) -> None:
    env = {} if text else {"ENTRYPOINT_NODES": "2:4"}
    made = plan(text, **env)
    (program,) = made.launch.programs
    told = {var.name: var.value for var in program.env}
    assert made.launch.min_nodes == 2
    assert {"--nnodes=2:4", "--max_restarts=3", "--rdzv_backend=c10d"} <= {*program.argv}
    conf = next(word for word in program.argv if word.startswith("--rdzv_conf="))
    assert conf.endswith(",last_call_timeout=10")
    assert told["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] == "1"
    assert "EXIT_BARRIER" not in told
    assert any("the launcher numbers the ranks" in words for words in made.later)
    (program,) = plan(f"{text}\ntorch: {{max_restarts: 0}}", **env).launch.programs
    assert "--max_restarts=0" in program.argv, "the user's own"


def test_without_nodes_all_are_needed() -> None:
    """The control."""
    made = plan("")
    (program,) = made.launch.programs
    told = {var.name for var in program.env}
    assert made.launch.min_nodes is None
    assert "--nnodes=4" in program.argv
    assert "TORCH_DISABLE_SHARE_RDZV_TCP_STORE" not in told
    assert "EXIT_BARRIER" in told
    assert made.later == tuple(words for words in made.later if "nodes:" not in words)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("nodes: 2:3", "nodes: EP120 the maximum must equal the number of hosts | 3, with 4 hosts"),
        ("nodes: 5:4", "nodes: EP120 the minimum is greater than the maximum | 5:4 | write 4:5"),
        ("nodes: 2:4\ntorch: {rdzv_backend: static}", "nodes: EP120 a static rendezvous has a fixed number of nodes"),
        ("nodes: 4", "nodes: EP100 a pair of numbers such as 2:4, or 1 for this node alone, is needed"),
        (
            "nodes: two",
            (
                'nodes: EP100 a pair of numbers such as 2:4, or 1 for this node alone, is needed'
                ' | "two" | write for example 2:4'
            ),
        ),
        ("nodes: [2, 4]", "nodes: EP100 a pair of numbers such as 2:4 is needed"),
    ],
)  # fmt: skip
def test_what_is_refused(text: str, says: str) -> None:
    with pytest.raises(SpecError) as error:
        plan(text)
    assert says in str(error.value)


@pytest.mark.parametrize("launcher", ["mpirun", "plain", "torchlaunch"])
def test_no_other_launcher_has_it(launcher: str) -> None:
    with pytest.raises(
        ConfigError,
        match=r"EP120 only torchrun has elastic jobs .* nodes: 2:4 \| set launcher: torchrun",
    ):
        plan("nodes: 2:4", launcher)


# -- whose end counts

WELL = Outcome(0, "torchrun exited with 0 on all 2 nodes", program=True)


class Job(Node):
    """The leader of an elastic job of two to three nodes, of which worker-1 is there from the
    start."""

    def __init__(self) -> None:
        super().__init__(launcher="elastic")
        self.answers(1)
        self.waits(31)  # timeouts.join
        self.told(events.Prepared(0, None))

    def comes(self) -> None:
        """Worker-2 answers, too."""
        self.told(events.Answered(2, NodeReport(2, 2, __version__), "10.0.0.3"))

    def says(self, message: Any, *nodes: int) -> None:
        for node in nodes:
            self.hears(message, sender=node)

    def meet(self, *nodes: int) -> None:
        self.says(messages.Met(), *nodes)

    def ends(self, status: int, *nodes: int) -> None:
        reason = f"torchrun exited with {status}"
        self.says(messages.Ended(status, "torchrun", reason, (), True), *nodes)

    def all_answer(self) -> None:
        """Every node says all that it knows, twice."""
        for number in (1, 2):
            self.says(messages.Pong(0.0, number), 0, *self.machine._peers)


@pytest.mark.promise("a node of an elastic job counts once its launcher has met the others")
def test_a_node_that_comes_while_the_others_end() -> None:
    job = Job()
    job.meet(0, 1)
    job.comes()
    job.ends(0, 0, 1)
    assert job.outcome is None, "its word that it has met them may be on its way"
    job.all_answer()
    assert job.outcome == WELL
    assert actions.Send(2, messages.Stop(30.0)) in job.done, "it still runs"


def test_a_node_of_another_version_that_comes_late_cannot_join() -> None:
    """The others go on without it, and say why: docs/how-to/upgrade.md."""
    job = Job()
    job.meet(0, 1)
    job.told(events.Rejected(2, "EP504 the nodes disagree on toolkit", "c has 9", "one image"))
    said = "worker-2 (c) cannot join: EP504 the nodes disagree on toolkit | c has 9 | one image"
    assert actions.Log(said) in job.done
    assert job.outcome is None
    job.ends(0, 0, 1)
    assert job.outcome == WELL


def test_a_node_that_comes_late_and_cannot_work_is_told_to_leave() -> None:
    job = Job()
    full = Outcome(73, "a full disk")
    job.told(events.Answered(2, NodeReport(2, 1, __version__, not_ready=full), "10.0.0.1"))
    assert actions.Log("worker-2 (c) cannot join: a full disk") in job.done
    assert actions.Send(2, messages.Release(**vars(full))) in job.done
    assert job.outcome is None


def test_a_job_names_the_nodes_that_it_starts_without() -> None:
    missing = "worker-2 (c, not reached yet)"
    said = actions.Log(f"EP507 the job starts without {missing}; each may join later")
    assert said in Job().done


def test_a_node_whose_launcher_fails_since_the_others_end() -> None:
    job = Job()
    job.meet(0, 1)
    job.comes()
    job.ends(1, 2)
    said = actions.Log(
        "EP621 worker-2 (c) has not joined the others, which continue without it: torchrun exited with 1"
    )
    assert said in job.done
    job.ends(0, 0, 1)
    assert job.outcome == WELL


@pytest.mark.control("a node of an elastic job counts once its launcher has met the others")
def test_a_node_that_has_met_the_others_counts() -> None:
    """The control: its end is awaited, also where its word comes last, and its failure is the
    job's."""
    job = Job()
    job.meet(0, 1)
    job.comes()
    job.ends(0, 0, 1)
    job.meet(2)
    job.all_answer()
    assert job.outcome is None
    job.ends(7, 2)
    assert job.outcome.reason == "EP600 torchrun on worker-2 (c) exited with 7"


def test_worker_0_counts_always() -> None:
    """The others meet there: they do not go on without it."""
    job = Job()
    job.comes()
    job.meet(1, 2)
    job.ends(7, 0)
    assert job.outcome.status == 7


def test_a_failure_before_enough_nodes_have_met_is_the_job_s() -> None:
    job = Job()
    job.ends(2, 1)
    assert job.outcome.status == 2


def test_a_launcher_that_never_says_that_it_has_met_the_others_is_awaited() -> None:
    job = Job()
    job.ends(0, 0)
    assert job.outcome is None
    job.ends(0, 1)
    assert job.outcome == WELL


@pytest.mark.parametrize("how", ["lost", "fails"])
def test_a_node_that_goes_before_it_counts_takes_nobody_with_it(how: str) -> None:
    job = Job()
    job.meet(0, 1)
    job.comes()
    job.ends(0, 0)
    if how == "lost":
        job.told(events.SessionLost(2))
    else:
        job.says(messages.Failed(71, "its sshd ended", False, False), 2)
    assert job.outcome is None
    job.ends(0, 1)
    assert job.outcome == WELL


def test_the_end_of_worker_0_is_no_success_if_too_few_others_that_met_it_are_left() -> None:
    job = Job()
    job.meet(0, 1)
    job.comes()
    job.told(events.SessionLost(1, "killed"))
    job.ends(0, 0)
    job.all_answer()
    said = "worker-1 (b) is lost: worker-0 has ended, and too few others have met it"
    assert job.reason == f"EP602 {said}"


def test_a_job_says_of_how_many_nodes_it_is_when_one_comes_or_goes() -> None:
    job = Job()
    job.comes()
    assert actions.Log("worker-2 (c) joins: 3 nodes") in job.done
    job.meet(0, 1, 2)
    job.told(events.SessionLost(2))
    assert actions.Log("the job continues with 2 nodes") in job.done
    assert job.outcome is None


def test_a_node_that_answers_when_the_others_have_been_released_has_their_status() -> None:
    job = Job()
    job.meet(0, 1)
    job.ends(0, 1, 0)
    assert job.outcome == WELL
    job.comes()
    assert actions.Send(2, messages.Release(**vars(WELL))) in job.done
