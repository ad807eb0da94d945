"""Decisions that `make mutants` found to be held by no fast test: stalls, calls of a second leader,
limits at their edges, options of the supervisor, and what a plan shows."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from entrypoint import __version__
from entrypoint.errors import SpecError
from entrypoint.job import actions, events, messages
from entrypoint.job.failure import ProgramExit, of_program
from entrypoint.job.history import History
from entrypoint.job.leader import Leader
from entrypoint.job.outbox import Outbox
from entrypoint.job.rollcall import two_leaders
from entrypoint.job.stall.detector import StallDetector
from entrypoint.job.stall.stacks import ProcessStack
from entrypoint.job.waits import SURE
from entrypoint.model import Device, Node, NodeReport, Outcome, Program, Topology
from entrypoint.plan import limits, settle, show
from entrypoint.spec import load
from entrypoint.spec.logs import LogsSpec, options
from entrypoint.values import replace
from tests.unit import test_speakers as speakers
from tests.unit.test_elastic import SECRET
from tests.unit.test_plan import build, facts


def topology(me: int = 0, hosts: tuple[str, ...] = ("a", "b", "c")) -> Topology:
    nodes = tuple(Node(rank, host, 1) for rank, host in enumerate(hosts))
    device = Device("cpu", 0, "")
    return Topology("job", nodes, me, "local", device, run_dir="/r", user="u", log_dir="/logs")


class Recorded:
    """Notes each call of any method, as a part that others talk to."""

    def __init__(self, **values: Any) -> None:
        self.calls: list[tuple[Any, ...]] = []
        vars(self).update(values)

    def __getattr__(self, name: str) -> Any:
        return lambda *words, **named: self.calls.append((name, *words, *named.values()))

    def named(self, name: str) -> list[tuple[Any, ...]]:
        return [call[1:] for call in self.calls if call[0] == name]


class Outgoing(Recorded):
    """An outbox: all nodes have nothing more to say, and `expects` is asked for their answers."""

    def ask_all_they_know(self, then: Any) -> None:
        then()

    def is_open(self, answer: object) -> bool:
        return True


class Stalls:
    """A detector of 2 minutes on node 0 of two."""

    def __init__(self, action: str = "stop", minutes: float = 2, line: str | None = None) -> None:
        self.clock, self.outbox, self.ends = Recorded(now=0.0), Outgoing(), list[Outcome]()
        stall = SimpleNamespace(minutes=minutes, action=action, line=line)
        spec = SimpleNamespace(stall=stall, restarts=SimpleNamespace(progress=None))
        topology = SimpleNamespace(name=lambda node: f"worker-{node}", spares=0)
        peers = SimpleNamespace(alive=lambda: [1])
        self.state: Any = SimpleNamespace(
            scheduler=self.clock, me=0, spec=spec, outcome=None, topology=topology, peers=peers
        )
        outbox: Any = self.outbox
        self.detector = StallDetector(self.state, outbox, self.ends.append)

    def shown(self, *what: str) -> None:
        """All nodes have shown their stacks: each process's kind, those of one process a node."""
        for node, state in enumerate(what):
            stack = ProcessStack(node, f"rank {node}", 0, False, state, "", f"exited with {state}")
            self.detector.take(node, messages.RankStacks((stack,)))
        self.outbox.named("expect")[-1][2]()

    def hear(self, *idle: float) -> None:
        """What each node reports, the leader's own last, since its report decides."""
        for node, seconds in reversed(list(enumerate(idle))):
            self.detector.heard(node, seconds)

    @property
    def shows(self) -> int:
        """How often all stacks were asked for."""
        return self.outbox.named("tell_all").count((messages.Stacks(),))


@pytest.mark.parametrize(("minutes", "seconds"), [(0.4, 6.0), (2, 10.0)])
def test_a_job_that_may_stall_is_asked_at_a_quarter_of_the_limit(
    minutes: float, seconds: float
) -> None:
    """And at least each ten seconds, as long as it has not ended."""
    job = Stalls(minutes=minutes)
    job.detector.begin()
    ((after, look),) = job.clock.named("after")
    assert after == seconds
    look()
    assert job.outbox.named("tell") == [(0, messages.Ping(0))]
    assert len(job.clock.named("after")) == 2, "and again"
    job.state.outcome = Outcome(0, "")
    look()
    assert len(job.clock.named("after")) == 2


def test_without_a_limit_nobody_is_asked() -> None:
    job = Stalls(minutes=0)
    job.detector.begin()
    job.hear(9e9, 9e9)
    assert (job.clock.calls, job.shows) == ([], 0)


def test_a_stall_is_shown_once_until_a_rank_prints_again() -> None:
    job = Stalls("warn")
    job.hear(119.0, 500.0)
    assert job.shows == 0, "node 0 has printed"
    job.hear(120.0, 500.0)
    assert job.shows == 1
    assert job.outbox.named("forget") == [(messages.RankStacks,)]
    job.outbox.named("expect")[0][2]()  # all have shown them
    job.hear(500.0, 900.0)
    job.hear(60.0, 900.0)  # half of the limit is no new life
    job.hear(500.0, 900.0)
    assert job.shows == 1
    job.hear(59.0, 900.0)
    job.hear(500.0, 900.0)
    assert job.shows == 2


def test_another_node_s_report_alone_decides_nothing() -> None:
    job = Stalls()
    job.detector.heard(1, 900.0)
    assert job.shows == 0


def test_a_lost_node_s_last_report_counts_no_longer() -> None:
    job = Stalls()
    job.hear(900.0, 1.0)
    assert job.shows == 0
    job.detector.lose(1)
    job.detector.heard(0, 900.0)
    assert job.shows == 1


def test_a_job_that_has_ended_does_not_stall() -> None:
    job = Stalls()
    job.state.outcome = Outcome(0, "")
    job.hear(900.0, 900.0)
    assert job.shows == 0


def test_one_reading_of_stacks_serves_all_who_ask() -> None:
    """A user asks twice, and the job stalls meanwhile: each has the answer, once."""
    job = Stalls("stop")
    job.state.has_started = True
    job.detector.demand()
    job.detector.demand()
    job.hear(150.0, 150.0)
    assert job.shows == 1
    ((_, _, then),) = job.outbox.named("expect")
    then()
    answers = [act for (act,) in job.clock.named("act") if isinstance(act, actions.ShowStacks)]
    assert [answer.lines for answer in answers] == [
        ("no rank runs", "no stacks from worker-0, worker-1")
    ] * 2
    assert [outcome.status for outcome in job.ends] == []
    job.detector.demand()
    assert job.shows == 2, "and they are read again for who asks later"


@pytest.mark.parametrize(
    ("has_started", "outcome", "why"),
    [(False, None, "no rank runs yet"), (True, Outcome(0, ""), "the job ends")],
)
def test_who_asks_for_stacks_that_are_not_there_is_told_why(
    has_started: bool, outcome: Outcome | None, why: str
) -> None:
    job = Stalls()
    job.state.has_started, job.state.outcome = has_started, outcome
    job.detector.demand()
    assert job.clock.named("act") == [(actions.ShowStacks((), why),)]
    assert job.shows == 0


def test_a_rank_without_a_step_stalls_though_others_print() -> None:
    """By the line, no output of any rank counts."""
    job = Stalls("stop", line="step {step}")
    job.clock.now = 1000.0
    job.detector.begin()
    job.detector.take(0, messages.Steps(((0, 9, 1.0),)))
    job.detector.take(1, messages.Steps(((1, 5, 119.0),)))
    job.hear(0.0, 0.0)
    assert job.shows == 0
    job.detector.take(1, messages.Steps(((1, 5, 120.0),)))
    job.hear(0.0, 0.0)
    assert job.shows == 1
    ((_, _, then),) = job.outbox.named("expect")
    then()
    assert "rank 1 on worker-1 is at 5; the others are at 9" in job.ends[0].reason


def test_the_node_of_a_rank_that_is_behind_is_the_one_that_reports_its_steps() -> None:
    job = speakers.Node(stall="{minutes: 1, line: 'step {step}', action: stop}").start()
    for rank, step, age in ((0, 9, 0.0), (2, 5, 10.0)):
        job.hears(messages.RankStart(rank, 9), sender=rank // 2)
        job.hears(messages.Steps(((rank, step, age),)), sender=rank // 2)
    job.waits(100)
    assert job.outcome
    assert "rank 2 on worker-1 (b) is at 5; the others are at 9" in job.outcome.reason


def test_stacks_that_nobody_has_asked_for_are_ignored() -> None:
    job = Stalls()
    job.outbox.is_open = lambda answer: False
    job.detector.take(1, messages.RankStacks(()))
    assert job.outbox.named("note") == []


@pytest.mark.parametrize(("action", "ends"), [("stop", [75]), ("warn", [])])
def test_what_follows_the_stacks(action: str, ends: list[int]) -> None:
    """Within 15 s, once every node has shown them."""
    job = Stalls(action)
    job.hear(150.0, 150.0)
    ((answer, seconds, _),) = job.outbox.named("expect")
    assert (answer, seconds) == (messages.RankStacks, 15.0)
    job.shown("S", "T")
    assert [outcome.status for outcome in job.ends] == ends
    assert not ends or "no rank has printed anything for 2m30s" in job.ends[0].reason


@pytest.mark.promise("a job ends by a stall only if a rank differs, or after five times the limit")
@pytest.mark.parametrize(
    ("states", "ends"),
    [(("S", "T"), True), (("S", "S"), False), (("S", "ended"), False), (("S", "left"), True)],
)
def test_a_job_in_which_no_rank_differs_goes_on(states: tuple[str, ...], ends: bool) -> None:
    job = Stalls()
    for multiple in (1, 2, 3, 4):
        job.hear(*[121.0 * multiple] * 2)
        assert job.shows == (1 if ends else multiple), "each two minutes"
        job.shown(*states)
        assert len(job.ends) == ends
        job.state.outcome = job.ends[0] if ends else None
    job.hear(600.0, 600.0)
    job.shown(*states)
    assert [outcome.status for outcome in job.ends][:1] == [75]


@pytest.mark.control("a job ends by a stall only if a rank differs, or after five times the limit")
def test_who_prints_while_stacks_are_read_ends_no_job() -> None:
    job = Stalls()
    job.hear(150.0, 150.0)
    job.hear(1.0, 160.0)
    job.shown("S", "T")
    assert job.ends == []


@pytest.mark.promise("a checkpoint that grows is no stall")
@pytest.mark.parametrize("line", [None, "step {step}"])
def test_a_checkpoint_that_grows_is_no_stall(line: str | None) -> None:
    job = Stalls("stop", line=line)
    job.state.spec.restarts.progress = "/ckpt"
    job.clock.now = 1000.0
    job.detector.take(0, messages.Steps(((0, 9, 900.0), (1, 5, 910.0))))
    job.detector.grew()
    for now, shows in ((1119.0, 0), (1120.0, 1)):
        job.clock.now = now
        job.hear(900.0, 900.0)
        assert job.shows == shows
    said = " ".join(line for (line,) in job.clock.named("log"))
    assert ("and /ckpt has not grown, for 2m" in said) == (line is None)


@pytest.mark.control("a checkpoint that grows is no stall")
def test_a_checkpoint_that_has_grown_before_is_no_sign_of_life() -> None:
    job = Stalls()
    job.detector.grew()
    job.clock.now = 120.0
    job.hear(120.0, 120.0)
    assert job.shows == 1


def test_forgetting_one_answer_or_one_node_keeps_the_others() -> None:
    state: Any = SimpleNamespace(me=0, scheduler=Recorded(), peers=Recorded())
    outbox = Outbox(state)
    for node in (1, 2):
        for answer in ("stacks", "pong"):
            outbox.note(node, answer)
    outbox.forget(answer="stacks")
    assert [outbox.has_said(node, "stacks") for node in (1, 2)] == [False, False]
    assert [outbox.has_said(node, "pong") for node in (1, 2)] == [True, True]
    outbox.forget(node=1)
    assert [outbox.has_said(node, "pong") for node in (1, 2)] == [False, True]


# -- the roll call


def leader() -> tuple[Leader, float]:
    """A leader of three nodes that calls its peers, and the time."""
    text = "launcher: torchrun\nhosts: [a, b, c]\nnode_rank: 0\ncommand: [train.py]\n"
    job, here = load(text, "job.yaml", SECRET, {}), facts()
    made = Leader(job, here, settle(job, here), History())
    for event in (
        events.Started(),
        events.KeysReady(),
        events.EndpointReady(NodeReport(0, 1, __version__)),
        events.NameState("a", ""),
    ):
        made.handle(event, 1000.0)
    return made, 1000.0


def test_a_peer_of_another_job_is_named_with_those_that_are_missing() -> None:
    """After ten seconds of refusals, and with what to do."""
    made, now = leader()
    made.handle(events.Unreachable(2, "no DNS"), now)
    for seconds in (0, SURE, SURE + 0.1):
        assert made.outcome is None
        made.handle(events.Unreachable(1, "another key", refused=True), now + seconds)
    assert made.outcome is not None
    assert made.outcome.status == 77
    assert (
        "EP503 worker-1 (b) is not of this job | another key; also missing: worker-2 (c, no DNS) |"
        " give all nodes" in made.outcome.reason
    )


def test_another_node_of_this_job_calls_it_a_mistake_first() -> None:
    """It allows as many seconds, counted from its own first answer, which may be the later one."""
    made, now = leader()
    for seconds in (0, SURE + 0.1, SURE + 5, SURE + 5.1):
        assert made.outcome is None
        words = "that is worker-2 of this job"
        made.handle(events.Unreachable(1, words, refused=True, ours=True), now + seconds)
    assert made.outcome is not None
    assert made.outcome.status == 77


def test_a_second_leader_is_rejected_and_this_one_ends() -> None:
    """Its list of hosts has another order."""
    made, now = leader()
    call = messages.Hello(
        __version__, ("b", "a", "c"), 1, "torchrun", {}, 15.0, "x", "10.0.0.1", "token"
    )
    did = made.handle(events.LeaderCalled(call), now)
    (answer,) = [each.message for each in did if isinstance(each, actions.Answer)]
    assert isinstance(answer, messages.Reject)
    assert answer.summary == "EP504 two nodes act as worker-0"
    made.handle(events.TimerFired(), now + 30)
    assert made.outcome is not None
    assert made.outcome.status == 78


def test_two_leaders_are_told_apart_by_their_hosts() -> None:
    one = topology()
    same = two_leaders(one, ("a", "b", "c"))
    assert same[1].startswith("both have index 0 of ")
    assert two_leaders(one, ("b", "a", "c"))[1] == (
        "worker-0 (a) has a, b, c; worker-0 (b) has b, a, c; they first differ in entry 0: a, b"
    )
    assert "another node has" in two_leaders(one, ())[1]
    assert same[2].startswith("give all nodes the same hosts")


# -- limits


@pytest.mark.parametrize(
    ("slots", "accelerators", "free", "level", "needed"),
    [
        (1, 8, 0, "ok", ""),
        (2, 0, 8 << 20, "ok", "8 MiB"),
        (2, 0, (8 << 20) - 1, "warning", "8 MiB"),
        (2, 2, (128 << 20) - 1, "warning", "128 MiB"),
    ],
)
def test_shared_memory(slots: int, accelerators: int, free: int, level: str, needed: str) -> None:
    found = limits.shared_memory(slots, accelerators, free, 1 << 30, "")
    assert (found.level, found.needed) == (level, needed)


@pytest.mark.parametrize(
    ("free", "files", "level", "found"),
    [
        (None, None, "error", "0 KiB free at /r"),
        (1 << 40, None, "ok", "1 TiB free at /r"),
        (1 << 40, 1 << 30, "ok", "1 TiB free at /r"),
        (1 << 40, 0, "error", "room for 0 files at /r"),
        (1 << 20, 0, "error", "room for 0 files at /r"),
    ],
)
def test_the_disk_of_the_run_directory(
    free: int | None, files: int | None, level: str, found: str
) -> None:
    judged = limits.disk(limits.RUN_DIR, "/r", free, files, "")
    assert (judged.level, judged.seen) == (level, found)
    assert judged.fix.startswith("make room at /r, or set ENTRYPOINT_RUN_DIR")


@pytest.mark.parametrize(("hosts", "level"), [("[a]", "ok"), ("[a, b]", "warning")])
def test_file_handles_of_a_rank_that_is_connected_to_others(hosts: str, level: str) -> None:
    """The entrypoint has become the program, and needs none itself."""
    plan = build(f"hosts: {hosts}\nnode_rank: 0\nlauncher: plain\nroll_call: none\n", facts())
    assert limits.file_handles(replace(plan, mode="exec"), 0, 65).level == level


@pytest.mark.parametrize(("launcher", "agents"), [("mpirun", 2), ("torchrun", 0)])
def test_file_handles_of_the_leader_count_mpirun_s_agents(launcher: str, agents: int) -> None:
    """One on each other node, next to its session."""
    text = f"hosts: [a, b, c]\nnode_rank: 0\nlauncher: {launcher}\n"
    leader, worker = (limits.open_files(build(text, facts()), rank)[0] for rank in (0, 1))
    assert leader - worker == 2 + agents


def test_no_limit_on_locked_memory_is_said() -> None:
    assert "no limit" in str(limits.locked_memory(1, True, 0))
    assert "no limit" not in str(limits.locked_memory(1 << 20, False, 0))


def test_the_middle_clock_counts() -> None:
    """Of five, three of which agree."""
    apart = limits.clocks_apart({0: 0.0, 1: -400.0, 2: 300.0, 3: 300.5, 4: 301.0}, 60)
    assert apart == {0: "300s behind the others", 1: "700s behind the others"}
    assert limits.clocks_apart({0: 0.0, 1: 60.0, 2: 0.0}, 60) == {}, "as far as they may be"


# -- the supervisor's options


@pytest.mark.parametrize(
    ("logs", "given", "expected"),
    [
        (LogsSpec(), {}, ()),
        (LogsSpec(), {"mixed": True}, ("--lines", "whole")),
        (LogsSpec(), {"mixed": True, "through": "pipe"}, ("--lines", "whole", "--through", "pipe")),
        (LogsSpec(format="json"), {}, ("--lines", "json", "--node", "worker-0", "--job", "job", "--host", "a")),
        (
            LogsSpec(timestamps="utc"),
            {"rank": "3"},
            ("--lines", "text", "--node", "worker-0", "--rank", "3", "--timestamps", "yes"),
        ),
        (
            LogsSpec(prefix="{job} {host} {rank}"),
            {},
            ("--lines", "text", "--node", "worker-0", "--prefix", "job a {rank}"),
        ),
        (
            LogsSpec(files="ranks"),
            {"rank": "3"},
            ("--log-max-size", "10485760", "--log-max-files", "5", "--log", "/logs/job-worker-0-rank-3.log"),
        ),
        (LogsSpec(files="ranks"), {"through": "ranks"}, ()),
    ],
)  # fmt: skip
def test_options_of_a_supervisor(
    logs: LogsSpec, given: dict[str, Any], expected: tuple[str, ...]
) -> None:
    assert options(logs, topology(), **given) == expected


# -- what a plan shows


def test_a_program_is_shown_with_its_label_and_log() -> None:
    plan = build("hosts: [a, b]\nnode_rank: 0\nlauncher: plain\n", facts())
    text = "hosts: [a, b]\nnode_rank: 0\nlauncher: plain\ncommand: [x]\n"
    spec = load(text, "job.yaml", SECRET, {})
    programs = (
        Program(("one", "a b"), label="the head", log="/logs/head"),
        Program(("two",), label="the rest"),
        Program(("three",)),
    )
    text = show.plan_text(spec, replace(plan, launch=replace(plan.launch, programs=programs)))
    assert "  one 'a b'  # the head, also into /logs/head\n  two  # the rest\n  three\n" in text
    assert "every node is assumed to be like this one" in text


def test_a_plan_s_settings_have_value_and_origin_and_its_files_their_text() -> None:
    """A secret file has no text, in JSON neither."""
    text = "hosts: [a, b]\nnode_rank: 0\nlauncher: mpirun\nstall: {minutes: 7}\ncommand: [x]\n"
    spec = load(text, "job.yaml", SECRET, {})
    values = json.loads(show.plan_json(spec, settle(spec, facts())))
    minutes = values["settings"]["stall.minutes"]
    assert minutes["value"] == 7
    assert minutes["origin"] == "spec job.yaml:4:18"
    files = {file["name"]: file for file in values["files"]}
    assert "Port" in files["sshd_config"]["text"]
    assert {name for name, file in files.items() if file["secret"] and "text" in file} == set()


@pytest.mark.parametrize(
    ("status", "reason", "said"),
    [
        (0, "it ended", "it ended"),
        (1, "it ended", "EP600 it ended"),
        (128, "it ended", "EP600 it ended"),
        (129, "it ended", "EP601 it ended"),
        (137, "it was killed", "EP601 it was killed"),
        (192, "it was killed", "EP601 it was killed"),
        (193, "it ended", "EP600 it ended"),
        (78, "EP100 known already", "EP100 known already"),
    ],
)
def test_a_program_s_end_has_the_id_of_its_kind(status: int, reason: str, said: str) -> None:
    """A failure, or a signal; unless its sentence has one."""
    outcome = of_program(ProgramExit(status, "python", reason))
    assert (outcome.status, outcome.reason, outcome.program) == (status, said, True)


@pytest.mark.parametrize("text", ["a,b", "a b", " a, b ", "a,b,", ",a,\tb ,\n", "[a, b]"])
def test_hosts_of_a_variable_may_have_commas_anywhere(text: str) -> None:
    spec = load("command: [x]\n", "job.yaml", {**SECRET, "ENTRYPOINT_HOSTS": text}, {})
    assert spec.hosts == ("a", "b")


@pytest.mark.parametrize(
    ("rival", "line"),
    [
        (None, ""),
        ("ssh.host_key", "  host_key: /r"),
        ("ssh.known_hosts", "  known_hosts: /r"),
        ("secret_file", "secret_file: /r"),
    ],
)
def test_the_keys_of_an_old_image_take_no_second_secret(rival: str | None, line: str) -> None:
    text = f"ssh:\n  compat: baked-keys\n  client_key: /k\n{line}\n"
    if rival is None:
        assert load(text, "job.yaml", {}, {}).ssh.compat == "baked-keys"
        return
    with pytest.raises(SpecError) as caught:
        load(text, "job.yaml", {}, {})
    (said,) = caught.value.lines()
    assert f"{rival} is given too | spec job.yaml:4:" in said
    assert said.endswith(f"remove ssh.compat, or {rival}")
