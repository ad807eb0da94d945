"""What a node observes of a boot: events and actions in; status, metrics and phases out. Prometheus'
own parser reads the metrics."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from entrypoint import __version__, spec
from entrypoint.base.history import History
from entrypoint.base.model import Outcome
from entrypoint.base.phases import STATUSES, Phase, Span
from entrypoint.base.values import replace
from entrypoint.base.wire import read as read_json
from entrypoint.base.wire import to_json
from entrypoint.extensions import LoopView
from entrypoint.features.record import metrics
from entrypoint.features.record.content import Record
from entrypoint.features.record.observer import JobObserver
from entrypoint.job import actions, events, messages
from entrypoint.job.leader import Leader
from entrypoint.plan import settle
from tests.unit.seen import ENDED, FACTS, PRINTED, STARTED, Seen, ready, report, settled, started

pytestmark = pytest.mark.see
ROOT = Path(__file__).parents[2]
DONE = Outcome(7, "rank 1 on b exited with 7")


def called(nodes: int = 2) -> Seen:
    """Worker-1 that has answered the roll call."""
    seen = Seen(1, nodes=nodes).open(1)
    hosts = tuple("abcdefgh"[:nodes])
    return seen.says(
        0, messages.Hello(__version__, hosts, 1, "mpirun", {}, 15.0, "x", "10.0.0.2", "token")
    )


def test_a_leader_says_who_is_missing_and_why() -> None:
    seen = Seen(0, nodes=3).step(events.Started())
    assert seen.phases() == ["starting", "missing", "missing"]
    seen.step(events.KeysReady(), events.EndpointReady(report(0)), events.Unreachable(2, "no DNS"))
    assert seen.phases() == ["roll call", "missing", "missing"]
    assert seen.details() == ["", "not reached yet", "no DNS"]
    seen.step(events.Answered(1, report(1)))
    assert seen.phases() == ["roll call", "joined", "missing"]
    seen.step(events.SessionLost(1))
    assert (seen.phases()[1], seen.details()[1]) == ("missing", "answered, then went away")
    seen.step(events.Rejected(2, "the nodes disagree on launcher", "plain here", "do"))
    assert (seen.phases()[2], seen.details()[2]) == (
        "missing",
        "the nodes disagree on launcher: plain here",
    )


def test_a_name_without_an_address() -> None:
    seen = Seen(0).open().step(events.NameState("a", "no DNS"))
    assert (seen.phases()[0], seen.details()[0]) == ("names", "a: no DNS")
    seen.step(events.NameState("a", ""))
    assert (seen.phases()[0], seen.details()[0]) == ("roll call", "")


def test_the_way_of_a_job_on_worker_0() -> None:
    seen = ready()
    assert seen.phases() == ["files", "joined"]
    seen.step(events.Prepared(4, None))
    assert seen.phases() == ["launching", "launching"]
    seen.says(1, messages.RankStart(2, 77))
    assert seen.phases() == ["launching", "running"]
    seen.step(STARTED).says(0, messages.RankStart(0, 77), messages.RankStart(1, 78))
    assert seen.phases() == ["running", "running"]
    seen.step(PRINTED).says(1, messages.RankStart(3, 77), messages.Pong(41.5, 0))
    seen.now += 2
    here, there = seen.shown(idle=3.0)["nodes"]
    assert (here["ranks"], here["ranks_ended"], here["idle_seconds"]) == (2, 0, 3.0)
    assert (there["ranks"], there["heartbeat_seconds"], there["idle_seconds"]) == (2, 2.0, 43.5)
    assert here["heartbeat_seconds"] is None, "nobody sends itself a heartbeat"
    seen.says(1, messages.RankEnd(3, 7, (), ""))
    assert seen.shown()["nodes"][1]["ranks_ended"] == 1
    seen.step(events.TimerFired(), events.TimerFired())
    assert seen.phases() == ["ending", "ending"]
    seen.says(1, messages.RankStart(3, 78))
    assert seen.phases() == ["ending", "ending"], "a rank that starts late runs no job"
    seen.says(0, messages.Stopped()).says(1, messages.Stopped()).step(events.LaunchersGone())
    assert seen.phases() == ["released", "released"]
    seen.says(1, messages.Goodbye())
    assert (seen.phases(), seen.details()[0]) == (
        ["ended", "ended"],
        "EP600 rank 3 on worker-1 (b) exited with 7; exit 7",
    )
    assert seen.shown(DONE)["outcome"] == {"status": 7, "reason": "rank 1 on b exited with 7"}


def test_a_phase_has_its_own_time_and_a_detail_does_not_change_it() -> None:
    seen = Seen(0).open()
    for _ in range(5):
        seen.step(events.Unreachable(1, "nothing listens there yet"))
    assert [each["since_seconds"] for each in seen.shown()["nodes"]] == [5.0, 8.0]


def test_programs_that_report_no_rank_run_once_they_have_started() -> None:
    seen = started("torchrun").step(STARTED)
    assert seen.phases() == ["running", "running"]
    here, there = seen.shown()["nodes"]
    assert (here["ranks"], there["ranks"]) == (1, None), (
        "how many another node starts is its own matter"
    )


def test_a_node_to_which_mpirun_gives_no_rank_does_not_launch_for_ever() -> None:
    seen = started(more="mpi: {np: 1}\n", asked=1)
    assert seen.phases() == ["launching", "launching"]
    seen.step(STARTED).says(0, messages.RankStart(0, 77))
    assert seen.phases() == ["running", "running"]


def test_a_lost_node_stays_lost_until_it_comes_back() -> None:
    seen = started("torchrun", nodes=3, more="nodes: 1:3\n").step(STARTED, events.SessionLost(1))
    seen.says(2, messages.Met())
    assert seen.phases()[1] == "lost"
    assert seen.details()[1].startswith("EP602 worker-1 (b) is lost: its session ended")
    seen.says(1, messages.Goodbye())
    assert seen.phases() == ["running", "lost", "running"], "worker-0 does not wait for it"
    seen.step(events.Answered(1, report(1)))
    assert seen.phases() == ["running", "running", "running"]
    seen.step(events.SessionLost(1), events.Faulted(DONE))
    assert seen.phases() == ["ending", "lost", "ending"]


def test_the_way_of_a_job_on_a_worker() -> None:
    seen = Seen(1, nodes=3)
    assert [each["node"] for each in seen.shown()["nodes"]] == ["worker-0", "worker-1"], (
        "it knows of no other"
    )
    seen.open(1).step(events.NameState("a", "no DNS"))
    assert (seen.phases(), seen.details()) == (["missing", "names"], ["", "a: no DNS"])
    seen.step(events.Unreachable(0, "someone called, not with this job's keys: another secret?"))
    assert seen.details()[0].startswith("someone called")
    seen = called()
    assert seen.phases() == ["roll call", "joined"]
    seen.step(events.SessionLost(0, ""))
    assert (seen.phases(), seen.details()[0]) == (["missing", "roll call"], "its session ended")
    seen = called().says(0, messages.Start())
    assert seen.phases() == ["running", "launching"]
    seen.step(STARTED).says(1, messages.RankStart(2, 77))
    assert (seen.phases(), seen.shown()["nodes"][1]["ranks"]) == (["running", "running"], 1)
    seen.now += 4
    assert seen.shown()["nodes"][0]["heartbeat_seconds"] == 6.0
    seen.says(0, messages.Stop(30))
    assert seen.phases() == ["ending", "ending"]
    seen.says(0, messages.Release(7, "", False, False))
    assert seen.phases() == ["ending", "released"]


@pytest.mark.parametrize("silent", [False, True], ids=["session", "silence"])
def test_a_worker_shows_a_lost_leader(silent: bool) -> None:
    seen = called().says(0, messages.Start())
    for _ in range(40 if silent else 0):
        seen.step(events.TimerFired())
    seen.step(events.TimerFired() if silent else events.SessionLost(0, ""))
    assert seen.phases() == ["lost", "ending"]
    assert seen.details()[0]


def test_a_state_is_read_as_it_was_written_and_grows_older() -> None:
    status = started().step(STARTED).says(1, messages.Pong(1.5, 0)).status(DONE, idle=3.0)
    record = Record(version=1, toolkit=__version__, status=status)
    copy = read_json(Record, json.loads(to_json(record)))
    assert copy == record
    later = status.later(2.5)
    for before, after in zip(status.nodes, later.nodes, strict=True):
        for name in ("since_seconds", "heartbeat_seconds", "idle_seconds"):
            seconds = getattr(before, name)
            assert getattr(after, name) == (None if seconds is None else seconds + 2.5), name
    assert later.up_seconds == status.up_seconds + 2.5


def test_one_node_is_alone() -> None:
    read = spec.load("launcher: mpirun\nslots: 2\ncommand: [train]", "job.yaml", {}, {})
    alone = settle(read, FACTS)
    observer, machine = JobObserver((), 5.0), Leader(read, FACTS, alone, History())
    observer.begin(alone, 5.0)
    for event in (events.Started(), events.Prepared(2, None)):
        for what in machine.handle(event, 6.0):
            observer.saw(what, 6.0)
    nodes = observer.status(8.0, LoopView(1, None, 0.0, "")).nodes
    assert [node.phase for node in nodes] == ["launching"]


# --------------------------------------------------------------------------------------------------
# The timeline, from made-up events and actions

HELLO = messages.Hello("1", (), 1, "plain", {}, 15.0, "a", "", "token")
NODE_INFO = messages.NodeInfo(1, "", "1", 0.0, History(), None, None, ())
RELEASE = messages.Release(0, "", False, False)


def observer_of(me: int, nodes: int = 2) -> JobObserver:
    """Of a node whose entrypoint was started at 98, and whose hooks ran from 99 to 100."""
    made = JobObserver([Span("facts", 98.0, 99.0)], 99.0)
    made.begin(settled(me, nodes=nodes)[1], 100.0)
    return made


def play(seen: JobObserver, *steps: tuple[float, Any]) -> JobObserver:
    """Show it what happens: the time, and an event or an action."""
    for now, what in steps:
        seen.saw(what, now)
    return seen


def own(seen: JobObserver, now: float) -> list[tuple[str, float]]:
    """Its own phases and their seconds; they have no gap."""
    phases = [each for each in (Span(*row) for row in seen.rows(now)) if not each.about]
    assert all(before.end == after.start for before, after in pairwise(phases))
    assert (phases[0].start, phases[-1].end) == (98.0, now)
    return [(each.name, each.seconds) for each in phases]


def enters(phase: Phase, node: int = 1) -> actions.Entered:
    return actions.Entered(node, phase)


def boot(me: int) -> tuple[tuple[float, Any], ...]:
    return (
        (101.0, events.Started()),
        (101.0, enters(Phase.KEYS, me)),
        (103.0, enters(Phase.ROLL_CALL, me)),
    )


WORKER = (
    *boot(1),
    (106.0, events.MessageReceived(0, HELLO)),
    (106.0, enters(Phase.FILES)),
    (107.0, actions.Answer(NODE_INFO)),
    (107.0, enters(Phase.WAITING)),
    (111.0, events.MessageReceived(0, messages.Start())),
    (111.0, enters(Phase.LAUNCHING)),
    (112.0, STARTED),
    (112.0, enters(Phase.OUTPUT)),
    (114.0, PRINTED),
    (114.0, enters(Phase.RUNNING)),
    (120.0, ENDED),
    (121.0, enters(Phase.ENDING)),
    (122.0, enters(Phase.STOPPED)),
    (124.0, events.MessageReceived(0, RELEASE)),
    (124.0, enters(Phase.RELEASED)),
)


@pytest.mark.promise("a node's phases have no gap and add up; the late node is the last")
def test_a_worker() -> None:
    seen = play(observer_of(1), *WORKER)
    assert own(seen, 125.0) == [
        ("facts", 1), ("hooks", 1), ("checks", 1), ("keys", 2), ("roll call", 3), ("files", 1), ("others", 4),
        ("launch", 1), ("first output", 2), ("run", 7), ("end", 1), ("release", 3),
    ]  # fmt: skip
    told = seen.phases(125.0)
    assert (told.answered, told.started, told.released, told.reported) == (
        107.0,
        111.0,
        124.0,
        125.0,
    )
    assert told.phases[-2:] == (
        ("first output", 112.0, 114.0, "rank 0"),
        ("run", 114.0, 120.0, "rank 0"),
    )


def test_a_leader_and_what_it_knows_of_others() -> None:
    part = messages.Phases((("run", 5.0, 6.0, ""),), 1.0, 2.0, 3.0, 4.0)
    seen = play(
        observer_of(0, 3),
        *boot(0),
        (103.0, actions.Call(1)),
        (103.0, actions.Call(2)),
        (103.5, events.Unreachable(1, "no DNS")),
        (104.0, events.Unreachable(2, "refused", named=103.2)),
        (106.0, events.Answered(1, report(1), named=105.5)),
        (107.0, enters(Phase.FILES, 0)),
        (108.0, enters(Phase.LAUNCHING, 0)),
        (108.0, actions.Send(1, messages.Start())),
        (109.0, events.SessionLost(2, "")),
        (110.0, actions.Send(1, RELEASE)),
        (110.0, enters(Phase.RELEASED, 0)),
        (111.0, events.MessageReceived(1, part)),
        (111.5, events.SessionLost(1, "")),
    )
    expected = [("keys", 2), ("roll call", 4), ("files", 1), ("launch", 2), ("release", 2)]
    assert own(seen, 112.0)[3:] == expected
    assert sorted(row for row in seen.rows(112.0) if row[3]) == [
        ("DNS", 103.0, 103.2, "worker-2 (c)"), ("DNS", 103.0, 105.5, "worker-1 (b)"),
        ("roll call", 103.2, 112.0, "worker-2 (c)"), ("roll call", 105.5, 106.0, "worker-1 (b)"),
    ]  # fmt: skip
    one, two = seen.peers[1], seen.peers[2]
    expected = (part, 106.0, 108.0, 110.0, 111.0)
    assert (one.part, one.answered, one.started, one.released, one.reported) == expected
    assert (two.part, two.answered, two.why) == (None, 0.0, "its session ended")


def test_a_program_that_prints_nothing_has_run() -> None:
    seen = play(observer_of(1), *WORKER[:11], (120.0, enters(Phase.ENDING)))
    assert own(seen, 121.0)[-3:] == [("launch", 1), ("run", 8), ("end", 1)]


def test_what_comes_twice_changes_nothing() -> None:
    once, twice = play(observer_of(1), *WORKER), observer_of(1)
    start = events.MessageReceived(0, messages.Start())
    play(twice, *WORKER[:13], (114.5, PRINTED), (114.6, start), *WORKER[13:])
    assert once.phases(125.0) == twice.phases(125.0)


def test_a_leader_that_calls_again_and_a_rank_that_starts_again_have_an_end() -> None:
    seen = play(observer_of(1), *boot(1))
    step = (
        events.MessageReceived(0, HELLO),
        enters(Phase.FILES),
        actions.Answer(NODE_INFO),
        enters(Phase.WAITING),
        events.SessionLost(0),
        enters(Phase.ROLL_CALL),
        STARTED,
        ENDED,
    )
    for number in range(20_000):
        play(seen, *((104.0 + number / 1000, each) for each in step))
    own(seen, 200.0)
    assert len(seen.phases(200.0).phases) < messages.PHASES
    packed = {
        "phases": [("first output", 1e8 / 3, 1e8 / 3, "x" * messages.LABEL)] * messages.PHASES
    }
    assert len(repr(packed)) < 1024 * 1024, "the longest that a worker may say"


def test_attempts_before_the_last_are_one_phase() -> None:
    seen = play(observer_of(1), *WORKER)
    assert "earlier attempts" not in dict(own(seen, 130.0))
    for begins in (130.0, 140.0):
        seen.begin(settled(1)[1], begins)
        play(seen, (begins + 1, enters(Phase.KEYS)))
        earlier = ("earlier attempts", begins - 99)
        assert own(seen, begins + 2) == [("facts", 1), ("hooks", 1), earlier, ("keys", 1)]
        assert seen.phases(begins + 2).started == 0.0


# --------------------------------------------------------------------------------------------------
# As Prometheus reads it

Samples = dict[str, list[tuple[dict[str, str], float]]]


def read(text: str) -> Samples:
    """What Prometheus' own parser makes of it."""
    found: Samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def one(samples: Samples, name: str, **labels: str) -> float:
    (value,) = [value for own, value in samples[name] if labels.items() <= own.items()]
    return value


def text_of(seen: Seen, outcome: Outcome | None = None) -> str:
    return metrics.text(seen.status(outcome, idle=3.0), 5)


def test_metrics_say_what_the_status_does() -> None:
    seen = started().step(STARTED)
    for rank in range(4):
        seen.says(rank // 2, messages.RankStart(rank, 77))
    seen.says(1, messages.RankEnd(3, 0, (), "")).step(events.TimerFired())
    found = read(text_of(seen, DONE))
    assert one(found, "entrypoint_node_up", node="worker-1", job="job") == 1
    assert one(found, "entrypoint_phase", node="worker-0", phase="running") == 1
    assert sum(value for _, value in found["entrypoint_phase"]) == 1
    assert one(found, "entrypoint_heartbeat_age_seconds", node="worker-1") == 1
    assert one(found, "entrypoint_ranks", node="worker-1", state="running") == 1
    assert one(found, "entrypoint_ranks", node="worker-1", state="ended") == 1
    assert one(found, "entrypoint_idle_seconds", node="worker-0") == 3
    assert one(found, "entrypoint_boot_seconds") == 7
    assert one(found, "entrypoint_log_lines_lost_total") == 5
    assert one(found, "entrypoint_exit_status") == 7
    assert one(found, "entrypoint_job_seconds", part="training") == 6
    assert one(found, "entrypoint_effective_ratio") == pytest.approx(6 / 13)
    assert one(found, "entrypoint_info", launcher="mpirun") == 1
    seen.step(events.SessionLost(1, "b is lost"))
    assert one(read(text_of(seen)), "entrypoint_node_up", node="worker-1") == 0
    assert "entrypoint_exit_status" not in read(text_of(seen)), (
        "an exit status is there once it is known"
    )


def test_every_metric_has_help_a_type_and_a_line_in_the_documents() -> None:
    families = {
        family.name: family for family in text_string_to_metric_families(text_of(started(), DONE))
    }
    for name, words in metrics.METRICS.items():
        assert name.startswith("entrypoint_")
        if family := families.get(name.removesuffix("_total")):  # as the parser names a counter
            assert (family.type, family.documentation) == (metrics.kind_of(name), words)
    page = (ROOT / "docs/how-to/metrics.md").read_text()
    rows = re.findall(r"^\| `(entrypoint_\w+)` \| (\w+) \|", page, re.M)
    assert dict(rows) == {name: metrics.kind_of(name) for name in metrics.METRICS}
    status = (ROOT / "docs/how-to/status.md").read_text().partition("\n## ")[0]
    assert re.findall(r"^\| `([a-z ]+)` \| \w.*\w \|$", status, re.M) == list(STATUSES)


@pytest.mark.promise(
    "files of several nodes' metrics in one folder have no sample twice",
    control="without one label they have, in the same test",
)
def test_no_two_nodes_have_a_sample_in_common() -> None:
    """Two sources of one sample would contradict each other at Prometheus."""

    def told(me: int, *without: str) -> set[tuple[str, frozenset[tuple[str, str]]]]:
        found = read(metrics.text(Seen(me).status(), 0))
        return {
            (
                name,
                frozenset(
                    (label, value) for label, value in labels.items() if label not in without
                ),
            )
            for name, samples in found.items()
            for labels, _ in samples
        }

    assert not told(0) & told(1)
    assert told(0, "seen_from") & told(1, "seen_from"), "the control: they tell of each other"


def test_odd_words_break_no_line() -> None:
    status = replace(Seen(0).status(), job='a"b\\c\nd', launcher="\u00e9")
    found = read(metrics.text(status, 0))
    assert one(found, "entrypoint_info", job='a"b\\c\nd', launcher="\u00e9") == 1


@pytest.mark.promise("metrics are off until asked for, and tell no secret")
def test_nothing_of_a_command_or_a_reason_is_told() -> None:
    seen = started().step(events.SessionLost(1, "a long reason"))
    text = text_of(seen, DONE)
    assert not re.search(r"\btrain\b|reason|exited", text)
    assert "a long reason" in json.dumps(seen.shown()), "the control: the state has it"
