"""How often the job boots again, and what makes it stop: one rule for all nodes."""

from __future__ import annotations

import pytest

from entrypoint import spec
from entrypoint.base.cause import Saved
from entrypoint.base.errors import RETRIED, NoProgressError
from entrypoint.base.history import FIRST, History
from entrypoint.base.model import NodeReport, Outcome
from entrypoint.base.values import replace
from entrypoint.job import actions, events, messages
from entrypoint.job.history import described, follow, latest, no_progress, pays_off
from entrypoint.job.state import JobState
from entrypoint.plan import form_of, locate, settle
from entrypoint.spec.jobspec import RestartsSpec
from tests.unit.machine import ECC, FACTS, Node, logged, sent

LOST = Outcome(75, "worker-1 is lost")
THREE = RestartsSpec(most=50, without_progress=3)
JOB = replace(spec.JobSpec(), restarts=THREE)


def concluded(outcome: Outcome, then: History, restarts: RestartsSpec) -> Outcome:
    """What a leader makes of an attempt that has ended so."""
    followed = follow(outcome, then, restarts, None)
    if followed.again and not pays_off(then, restarts):
        return no_progress(outcome, then, replace(JOB, restarts=restarts))
    return followed


def at_end(node: Node) -> Outcome:
    """The outcome with which a node has ended a minute later."""
    node.waits(60)
    return next(each.outcome for each in node.done if isinstance(each, actions.EndNode))


def ended(node: Node) -> Outcome:
    """The outcome of an attempt that has lost a node."""
    node.machine._lose(1, "killed")
    return at_end(node)


@pytest.mark.promise("restarts without progress end the job with 79, which nobody retries")
def test_the_third_attempt_without_progress_is_the_last() -> None:
    history, attempts = FIRST, 0
    outcome = replace(LOST, again=True)
    while outcome.again:
        attempts += 1
        history = history.next(True, False, -1)
        outcome = concluded(LOST, history, THREE)
    assert attempts == 3
    assert (outcome.status, outcome.again, outcome.program) == (79, False, False)
    assert outcome.reason == (
        "EP640 no progress in the last 3 attempts | none ran for 10 min | the last one:"
        " worker-1 is lost"
    )
    assert NoProgressError.status not in RETRIED


@pytest.mark.control("restarts without progress end the job with 79, which nobody retries")
@pytest.mark.parametrize("restarts", [THREE, RestartsSpec(most=50)], ids=["progress", "no limit"])
def test_with_progress_it_goes_on_up_to_the_most(restarts: RestartsSpec) -> None:
    history, attempts = FIRST, 0
    outcome = replace(LOST, again=True)
    while outcome.again:
        attempts += 1
        history = history.next(True, bool(restarts.without_progress and attempts % 2), -1)
        outcome = concluded(LOST, history, restarts)
    assert attempts == 51
    assert outcome == LOST


def test_an_attempt_that_started_nothing_does_not_count() -> None:
    once = FIRST.next(True, False, -1)
    assert once == History(2, 1)
    assert once.next(False, False, -1) == History(3, 1)
    assert once.next(True, True, 40) == History(3, 0, 40)
    assert History(3, 0, 40).next(True, False, 30) == History(4, 1, 40)


def test_a_stop_and_other_ends_come_first() -> None:
    stop, then = Outcome(143, "stopped"), History(4, 3)
    assert follow(LOST, then, THREE, stop) == stop
    assert follow(Outcome(78, "no secret"), then, THREE, None).status == 78
    assert follow(LOST, then, replace(THREE, most=2), None) == LOST


def test_the_last_reason_is_cut_and_its_cause_stays() -> None:
    outcome = no_progress(replace(LOST, reason="x" * 4000, cause=ECC), History(4, 3), JOB)
    assert len(outcome.reason) < 2200
    assert outcome.cause == ECC


@pytest.mark.parametrize(
    ("own", "told", "taken"),
    [
        (FIRST, [FIRST, FIRST], FIRST),
        (FIRST, [History(3, 2, 7), FIRST], History(3, 2, 7)),  # this leader is new
        (History(3, 1), [History(3, 2), History(2, 1)], History(3, 1)),  # the leader's own counts
        (FIRST, [History(3, 2, 5), History(3, 1, 9)], History(3, 1, 9)),  # one has heard more
        (FIRST, [History(99, 98)], History(51, 50)),  # no more than can be
        (FIRST, [History(2, 90)], History(2, 1)),
        (History(2), [History(99, 98), History(99, 98)], History(2)),
        (FIRST, [History(99, 98), FIRST, FIRST], FIRST),  # one alone is not believed
        (FIRST, [History(99), History(3, 1), History(3)], History(3)),
        (FIRST, [], FIRST),
    ],
)
def test_which_history_counts(own: History, told: list[History], taken: History) -> None:
    assert latest(own, told, THREE) == taken


def test_a_new_leader_says_that_it_is_new() -> None:
    node = Node(restarts=50)
    for rank in (1, 2):
        node.answers(rank, attempt=3)
    assert "this worker-0 is new: the other nodes are at attempt 3" in logged(node.done)
    assert node.machine.state.history.attempt == 3


def test_what_is_said_between_two_attempts() -> None:
    assert described(History(3, 2), THREE) == " (no progress in 2 of 3 attempts)"
    assert described(History(3, 0), THREE) == ""
    assert described(History(3, 2), RestartsSpec(most=50)) == ""


# -- the machines

SETTING = "{most: 50, without_progress: 1}"
LINE = "{minutes: 5, line: 'step {step}/'}"
WATCHED = "{most: 50, without_progress: 1, progress: /ckpt}"


@pytest.mark.promise("restarts without progress end the job with 79, which nobody retries")
def test_time_is_progress_if_nothing_else_is_declared() -> None:
    node = Node(launcher="plain", restarts=SETTING).start()
    node.waits(599)
    assert not node.machine.state.has_progressed
    assert ended(Node(restarts=SETTING).start()).status == 79
    node.waits(2)
    assert ended(node).again
    assert actions.Send(2, messages.Progressed()) in node.done


@pytest.mark.parametrize(
    "settings",
    [{"restarts": WATCHED}, {"restarts": "{most: 50}"}, {"restarts": SETTING, "stall": LINE}],
)
def test_time_is_no_progress_if_another_kind_or_none_is_declared(settings: dict[str, str]) -> None:
    node = Node(launcher="plain", **settings).start()
    node.waits(700)
    assert not node.machine.state.has_progressed


@pytest.mark.parametrize("sender", [0, 1])
def test_progress_of_any_node_counts_and_is_told_once(sender: int) -> None:
    node = Node(restarts=WATCHED).start()
    node.hears(messages.Progressed(), sender=sender)
    node.hears(messages.Progressed(), sender=2)
    assert [each.node for each in sent(node.done, messages.Progressed)] == [1, 2]
    assert ended(node).again


def test_progress_that_comes_while_the_attempt_ends_counts() -> None:
    """A node looks for the last time before it says that it has stopped."""
    node = Node(restarts=WATCHED).start()
    node.machine._lose(1, "killed")
    node.hears(messages.Progressed(), messages.Stopped(), sender=2)
    node.hears(messages.Stopped(), sender=0)
    assert at_end(node).again


def stepping(step: int) -> Node:
    """A leader whose job was at this step before."""
    node = Node(launcher="plain", restarts=SETTING, stall=LINE).start()
    node.machine.state.history = History(2, 0, step)
    return node


def told_steps(node: Node, *steps: int) -> JobState:
    """The state of a leader once each node has reported the step of its rank."""
    for rank, step in enumerate(steps):
        node.hears(messages.Steps(((rank, step, 0.0),)), sender=rank)
    return node.machine.state


def test_a_higher_step_than_any_before_is_progress() -> None:
    """The workers are told once."""
    node = stepping(step=40)
    for step in (0, 31, 40):
        assert not told_steps(node, step, step, step).has_progressed
    assert told_steps(node, 32, 41, 42).has_progressed
    assert told_steps(node, 55, 56, 57).next_history() == History(3, 0, 56)
    told = sent(node.done, messages.Progressed)
    assert told == [actions.Send(rank, messages.Progressed(41)) for rank in (1, 2)]


@pytest.mark.promise("one rank that prints a wrong step does not count as the job's progress")
@pytest.mark.parametrize("wrong", [0, 1, 2])
def test_one_rank_that_prints_a_huge_step_ends_no_job_that_advances(wrong: int) -> None:
    """Three attempts, of which each comes further; in the first one a rank is wrong."""
    history = FIRST
    for attempt in range(3):
        node = stepping(step=history.step)
        steps = [10 * attempt + 9] * 3
        steps[wrong] = 10**14 if not attempt else steps[wrong]
        history = told_steps(node, *steps).next_history()
        assert (history.without_progress, history.step) == (0, 10 * attempt + 9)


@pytest.mark.promise("one rank that prints a wrong step does not count as the job's progress")
def test_a_wrong_step_of_the_only_rank_counts_until_its_next_line() -> None:
    node = stepping(step=40)
    for step in (10**14, 31, 32):
        node.hears(messages.Steps(((0, step, 0.0),)), sender=0)
    assert node.machine.state.next_history() == History(3, 1, 40)
    node.hears(messages.Steps(((0, 41, 0.0),)), sender=0)
    node.hears(messages.Steps(()), sender=0)  # it has ended, and another one runs
    assert node.machine.state.next_history() == History(3, 0, 41)


@pytest.mark.control("one rank that prints a wrong step does not count as the job's progress")
def test_most_ranks_at_the_same_step_are_no_progress() -> None:
    assert not told_steps(stepping(step=40), 10**14, 40, 40).has_progressed


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "none ran for 10 min"),
        ("stall: {line: 'step {step}'}", "most ranks printed no later step (stall.line)"),
        (
            "stall: {line: 'step {step}'}\nrestarts: {without_progress: 3, progress: /c}",
            "nothing new was finished in /c, and most ranks printed no later step (stall.line)",
        ),
    ],
)
def test_what_would_have_been_progress(text: str, words: str) -> None:
    job = spec.load(text, "job.yaml", {}, {})
    assert f" | {words} | the last one: " in no_progress(LOST, History(4, 3), job).reason


def test_a_worker_alone_leaves_the_end_to_the_next_leader() -> None:
    """It does not know what progress the others have seen, which a new leader hears from them."""
    worker = Node(me=1, restarts=WATCHED)
    worker.hears(worker.hello, messages.Start(), sender=0)
    worker.told(events.SessionLost(0))
    worker.hears(messages.Stopped(), sender=1)
    assert at_end(worker).again
    assert worker.machine.state.next_history() == History(2, 1)
    for others, attempt in (((1, 0), 2), ((1, 1), None)):
        leader = Node(restarts=WATCHED)
        leader.told(events.NameState("a", ""))
        for node, without in zip((1, 2), others, strict=True):
            report = NodeReport(node, 2, "", "4.1.4", history=History(2, without))
            leader.told(events.Answered(node, report, "10.0.0.1"))
        leader.told(events.Prepared(6, None))
        starts = [each.message.history.attempt for each in sent(leader.done, messages.Start)]
        assert starts == [attempt] * 3 if attempt else starts == []
        assert (leader.outcome is None) == bool(attempt)
    assert leader.outcome.status == 79


def test_a_worker_counts_as_its_leader_does() -> None:
    node = Node(me=1, restarts="{most: 50, without_progress: 3}")
    node.hears(node.hello, messages.Start(History(5, 2, 9)), sender=0)
    assert node.machine.state.history == History(5, 2, 9)
    assert node.machine.state.next_history() == History(6, 3, 9)
    node.hears(messages.Progressed(12), sender=0)
    assert node.machine.state.next_history() == History(6, 0, 12)
    own = node.hears(messages.Progressed(), sender=1)
    assert actions.Send(0, messages.Progressed()) in own, "what its own programs say"


@pytest.mark.parametrize("launcher", ["mpirun", "torchrun"])
def test_the_time_counts_from_when_the_ranks_run(launcher: str) -> None:
    """A launcher that starts none makes no progress, however long it takes."""
    restarts, timeouts = "{most: 50, without_progress: 3}", "{launch: 900}"
    node = Node(launcher=launcher, restarts=restarts, timeouts=timeouts).start()
    if launcher == "mpirun":
        node.waits(700)
        assert not node.machine.state.has_progressed
        for rank in range(6):
            node.hears(messages.RankStart(rank, 9), sender=rank // 2)
    node.waits(595)
    assert not node.machine.state.has_progressed
    node.waits(10)
    assert node.machine.state.has_progressed


# -- what ranks see


@pytest.mark.promise("the end of an attempt says whether the program has saved after SIGTERM")
@pytest.mark.parametrize(
    ("reports", "says", "result"),
    [
        ({1: Saved("step_70", 4.0), 2: Saved("", -9.0)}, "saved step_70 4s after SIGTERM", "step_70"),
        (
            {1: Saved("", -2460.0), 2: Saved("", None)},
            "warning: EP653 nothing was finished in /ckpt within the grace of 30s | the last"
            " checkpoint was 41m00s old | save more often, on SIGTERM, or raise timeouts.grace",
            "",
        ),
        ({0: Saved("", None)}, "the grace of 30s | there is no checkpoint |", ""),
        ({}, "", None),
    ],
)  # fmt: skip
@pytest.mark.parametrize("status", [0, 75, 143])
def test_the_end_of_an_attempt_says_what_was_saved(
    reports: dict[int, Saved], says: str, result: str | None, status: int
) -> None:
    """A success needs no save: the control."""
    node = Node(launcher="plain", restarts="{most: 3, progress: /ckpt}").start()
    if status == 143:
        node.told(events.Signalled(15))
    node.machine._decide(Outcome(status, "a reason", program=not status))
    for sender, saved in reports.items():
        node.hears(messages.Stopped(saved), sender=sender)
    at_end(node)
    lines = "\n".join(logged(node.done))
    assert ("SIGTERM" in lines or "EP653" in lines) == bool(status and reports)
    assert says in lines or not status
    release = sent(node.done, messages.Release)[0].message
    assert (release.saved and release.saved.name) == (result if status else None)


def test_a_worker_that_decides_alone_says_what_it_has_saved() -> None:
    node = Node(me=1, launcher="plain", restarts="{most: 3, progress: /ckpt}")
    node.hears(node.hello, messages.Start(), sender=0)
    node.told(events.SessionLost(0, "killed"))
    node.hears(messages.Stopped(Saved("step_70", 4.0)), sender=1)
    assert "saved step_70 4s after SIGTERM" in "\n".join(logged(node.done))
    assert at_end(node).saved == Saved("step_70", 4.0)


SLOTS = "slots: 2\nlogs: {files: ranks}\nlog_dir: /logs\ncommand: [train]\n"


@pytest.mark.parametrize(
    ("earlier", "attempt", "count", "end"),
    [(0, 1, "0", ".log"), (0, 3, "2", "-attempt-3.log"), (2, 1, "2", "-attempt-3.log")],
)
@pytest.mark.parametrize("launcher", ["plain", "mpirun", "torchrun"])
def test_ranks_and_their_logs_know_the_attempt(
    launcher: str, earlier: int, attempt: int, count: str, end: str
) -> None:
    """The scheduler's own restarts count, too."""
    job = spec.load(f"launcher: {launcher}\nrestarts: 3\n{SLOTS}", "job.yaml", {}, {})
    topology = locate(job, FACTS)
    topology = replace(topology, history=History(attempt, earlier=earlier))
    made = settle(job, FACTS, topology)
    variables = {var.name: var.value for var in made.env}
    assert variables["ENTRYPOINT_ATTEMPT"] == str(earlier + attempt)
    assert variables["TORCHELASTIC_RESTART_COUNT"] == count
    forms = [form_of(made.launch, 0, job, topology)]
    forms += [made.launch.ranks.form.form] if made.launch.ranks.form else []
    names = {form.output.log for form in forms if form.output.log}
    rank = "" if launcher == "plain" else "-rank-{rank}"
    assert f"/logs/job-worker-0{rank}{end}" in names
    assert all(name.endswith(end) for name in names)


def test_a_job_without_restarts_knows_nothing_of_attempts() -> None:
    """One node then becomes its program; with restarts, somebody has to be there."""
    for text, mode in (("", "exec"), ("restarts: 1\n", "local")):
        job = spec.load(f"launcher: plain\ncommand: [train]\n{text}", "job.yaml", {}, {})
        for count in ("", "2"):
            made = settle(job, replace(FACTS, env={"SLURM_RESTART_COUNT": count}))
            assert made.mode == mode
            known = bool(text or count)
            assert ("ENTRYPOINT_ATTEMPT" in {var.name for var in made.env}) == known


def test_restarts_of_the_scheduler_use_up_none_of_ours() -> None:
    first = History(earlier=9)
    assert follow(LOST, first.next(True, False, -1), RestartsSpec(most=1), None).again
    last = first.next(True, False, -1).next(True, False, -1)
    assert last.number == 12
    assert not follow(LOST, last, RestartsSpec(most=1), None).again


def test_a_variable_of_ours_is_no_unknown_one() -> None:
    """A rank may run `entrypoint status`."""
    assert spec.load(None, "", {"ENTRYPOINT_ATTEMPT": "2"}, {}).restarts.most == 0
