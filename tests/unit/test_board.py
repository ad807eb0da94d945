"""The state of a boot as others see it: events and actions in, phases out; and Prometheus' own parser reads it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from entrypoint import spec
from entrypoint.job import actions, events, messages, metrics
from entrypoint.job.board import PHASES, NodeTable
from entrypoint.model import Facts, NodeReport, Outcome, Plan
from entrypoint.plan import settle

pytestmark = pytest.mark.see
ROOT = Path(__file__).parents[2]
FACTS = Facts(
    env={}, hostname="node", cwd="/job", uid=1000, user="u", home="/home/u", mpi="4.1.4",
    programs={name: f"/usr/bin/{name}" for name in ("sshd", "ssh", "mpirun", "orted", "python3")},
)  # fmt: skip
DONE = Outcome(7, "rank 1 on b exited with 7")


def plan(me: int, launcher: str = "mpirun", nodes: int = 2) -> Plan:
    hosts = ", ".join(f"{'abcdefgh'[rank]}=10.0.0.{rank + 1}" for rank in range(nodes))
    text = f"hosts: [{hosts}]\nslots: 2\nlauncher: {launcher}\ncommand: [train]\nsecret_file: /none\n"
    return settle(spec.load(text, "job.yaml", {"ENTRYPOINT_NODE_RANK": str(me)}, {}), FACTS)


class Seen:
    """A board, and a clock that goes on by a second with each step."""

    def __init__(self, me: int, launcher: str = "mpirun", nodes: int = 2) -> None:
        self.now = 1000.0
        self.board = NodeTable(plan(me, launcher, nodes), self.now)

    def step(self, event: Any, *wanted: Any) -> Seen:
        self.now += 1
        self.board.saw(event, wanted, self.now)
        return self

    def shown(self, outcome: Outcome | None = None, idle: float | None = None) -> dict[str, Any]:
        return self.board.snapshot(self.now, 1, outcome, idle)

    def phases(self) -> list[str]:
        return [each["phase"] for each in self.shown()["nodes"]]

    def details(self) -> list[str]:
        return [each["detail"] for each in self.shown()["nodes"]]


def of_leader(launcher: str = "mpirun", nodes: int = 2) -> Seen:
    """Worker-0 whose roll call is complete."""
    seen = (
        Seen(0, launcher, nodes)
        .step(events.Started(), actions.OpenEndpoint())
        .step(events.EndpointReady(NodeReport(0, 2, "")))
    )
    for rank in range(1, nodes):
        seen.step(events.Answered(rank, NodeReport(rank, 2, "")))
    return seen


def started(launcher: str = "mpirun", nodes: int = 2) -> Seen:
    seen = of_leader(launcher, nodes)
    starts = [actions.Send(rank, messages.Start(1)) for rank in range(nodes)]
    return seen.step(events.Prepared(2 * nodes if launcher == "mpirun" else 0, None), *starts)


def test_a_leader_says_who_is_missing_and_why() -> None:
    seen = Seen(0, nodes=3).step(events.Started(), actions.OpenEndpoint())
    assert seen.phases() == ["starting", "missing", "missing"]
    seen.step(
        events.EndpointReady(NodeReport(0, 2, "")),
        actions.ShowWaiting("b", "not reached yet"),
        actions.ShowWaiting("c", "no DNS"),
    )
    assert seen.phases() == ["roll call", "missing", "missing"]
    assert seen.details() == ["", "not reached yet", "no DNS"]
    seen.step(events.Answered(1, NodeReport(1, 2, "")), actions.ShowWaiting("b", ""))
    assert seen.phases() == ["roll call", "joined", "missing"]
    seen.step(events.SessionLost(1), actions.ShowWaiting("b", "answered, then went away"), actions.Call(1))
    assert (seen.phases()[1], seen.details()[1]) == ("missing", "answered, then went away")
    seen.step(events.Rejected(2, "the nodes disagree on launcher", "plain here", "do"), actions.ShowWaiting("c", ""))
    assert (seen.phases()[2], seen.details()[2]) == ("missing", "the nodes disagree on launcher: plain here")


def test_a_name_without_an_address() -> None:
    seen = Seen(0).step(events.EndpointReady(NodeReport(0, 2, ""))).step(events.NameState("a", "no DNS"))
    assert (seen.phases()[0], seen.details()[0]) == ("names", "a: no DNS")
    seen.step(events.NameState("a", ""))
    assert (seen.phases()[0], seen.details()[0]) == ("roll call", "")


def test_the_way_of_a_job_on_worker_0() -> None:
    seen = of_leader()
    assert seen.phases() == ["roll call", "joined"]
    seen.step(events.TimerFired(), actions.Prepare(seen.board._draft.members))
    assert seen.phases() == ["files", "joined"]
    starts = [actions.Send(rank, messages.Start(1)) for rank in (0, 1)]
    seen.step(events.Prepared(4, None), *starts)
    assert seen.phases() == ["launching", "launching"]
    seen.step(events.MessageReceived(1, messages.RankStart(2, 77)))
    assert seen.phases() == ["launching", "running"]
    for rank in (0, 1, 3):
        seen.step(events.MessageReceived(0 if rank < 2 else 1, messages.RankStart(rank, 77)))
    seen.step(events.MessageReceived(1, messages.Pong(41.5, 0)))
    seen.now += 2
    here, there = seen.shown(idle=3.0)["nodes"]
    assert (here["ranks"], here["ranks_ended"], here["idle_seconds"]) == (2, 0, 3.0)
    assert (there["ranks"], there["heartbeat_seconds"], there["idle_seconds"]) == (2, 2.0, 43.5)
    assert here["heartbeat_seconds"] is None, "nobody sends itself a heartbeat"
    seen.step(events.MessageReceived(1, messages.RankEnd(3, 7, (), "")))
    assert seen.shown()["nodes"][1]["ranks_ended"] == 1
    seen.step(events.TimerFired(), *(actions.Send(rank, messages.Stop(30)) for rank in (0, 1)))
    assert seen.phases() == ["ending", "ending"]
    seen.step(events.MessageReceived(1, messages.RankStart(3, 78)))
    assert seen.phases() == ["ending", "ending"], "a rank that starts late runs no job"
    seen.step(events.TimerFired(), actions.Send(1, messages.Release(7, "", False, False)))
    assert seen.phases() == ["ending", "released"]
    seen.step(events.MessageReceived(1, messages.Goodbye()), actions.CloseSession(1))
    assert seen.phases() == ["ending", "ended"]
    seen.step(events.TimerFired(), actions.EndNode(DONE))
    assert (seen.phases()[0], seen.details()[0]) == ("ended", "rank 1 on b exited with 7; exit 7")
    assert seen.shown(DONE)["outcome"] == {"status": 7, "reason": "rank 1 on b exited with 7"}


def test_a_phase_has_its_own_time_and_a_detail_does_not_change_it() -> None:
    seen = Seen(0).step(events.Started(), actions.ShowWaiting("b", "no DNS"))
    for _ in range(5):
        seen.step(events.TimerFired(), actions.ShowWaiting("b", "refused"))
    assert [each["since_seconds"] for each in seen.shown()["nodes"]] == [6.0, 6.0]
    changed = seen.board.changed
    seen.step(events.TimerFired(), actions.ShowWaiting("b", "refused")).step(events.Alive(1))
    assert seen.board.changed == changed, "nothing new is no reason to write a file"


def test_programs_that_report_no_rank_run_once_they_are_told_to() -> None:
    seen = started("torchrun")
    assert seen.phases() == ["running", "running"]
    here, there = seen.shown()["nodes"]
    assert (here["ranks"], there["ranks"]) == (1, None), "how many another node starts is its own matter"


def test_a_node_to_which_mpirun_gives_no_rank_does_not_launch_for_ever() -> None:
    seen = of_leader()
    seen.step(events.Prepared(1, None), *(actions.Send(rank, messages.Start(1)) for rank in (0, 1)))
    seen.step(events.MessageReceived(0, messages.RankStart(0, 77)))
    assert seen.phases() == ["running", "running"]


@pytest.mark.parametrize("last", [messages.Stop(30), messages.Release(75, "", False, False)])
def test_a_lost_node_stays_lost_until_it_comes_back(last: Any) -> None:
    seen = started().step(events.SessionLost(1), actions.NodeLost(1, "b is lost: its session ended"))
    seen.step(events.TimerFired(), actions.Send(0, last), actions.Send(1, last))
    assert (seen.phases()[1], seen.details()[1]) == ("lost", "b is lost: its session ended")
    assert seen.phases()[0] != "lost"
    seen.step(events.MessageReceived(1, messages.Goodbye()))
    assert seen.phases()[1] == "lost", "worker-0 does not wait for it"
    seen.step(events.Answered(1, NodeReport(1, 2, "")), actions.Send(1, messages.Start(1)))
    assert seen.phases()[1] == "launching"


def test_the_way_of_a_job_on_a_worker() -> None:
    seen = Seen(1, nodes=3)
    assert [each["node"] for each in seen.shown()["nodes"]] == ["worker-0", "worker-1"], "it knows of no other"
    seen.step(events.EndpointReady(NodeReport(1, 2, ""))).step(events.NameState("a", "no DNS"))
    assert (seen.phases(), seen.details()) == (["missing", "names"], ["", "a: no DNS"])
    seen.step(events.Unreachable(0, "someone called, not with this job's keys: another secret?"))
    assert seen.details()[0].startswith("someone called")
    hello = messages.Hello("", ("a",), 1, "mpirun", {}, 15.0, "x", "10.0.0.2")
    seen.step(events.MessageReceived(0, hello), actions.AnswerRollCall({}, "10.0.0.2"))
    assert seen.phases() == ["roll call", "joined"]
    seen.step(events.SessionLost(0, ""))
    assert (seen.phases(), seen.details()[0]) == (["missing", "roll call"], "its session ended")
    seen.step(events.MessageReceived(0, hello), actions.AnswerRollCall({}, "10.0.0.2"))
    seen.step(events.MessageReceived(0, messages.Start(1)), actions.Send(1, messages.Start(1)))
    assert seen.phases() == ["running", "launching"]
    seen.step(events.MessageReceived(1, messages.RankStart(2, 77)))
    assert seen.phases() == ["running", "running"]
    seen.now += 4
    assert seen.shown()["nodes"][0]["heartbeat_seconds"] == 5.0
    seen.step(events.MessageReceived(0, messages.Stop(30)), actions.Send(1, messages.Stop(30)))
    assert seen.phases() == ["ending", "ending"]
    seen.step(events.MessageReceived(0, messages.Release(7, "", False, False)))
    assert seen.phases() == ["ending", "released"]


@pytest.mark.parametrize(
    ("event", "wanted"),
    [
        (events.SessionLost(0, ""), ()),
        (events.TimerFired(), (actions.NodeLost(0, "a is lost: nothing heard of it for 19s"),)),
    ],
)
def test_a_worker_shows_a_lost_leader(event: Any, wanted: tuple[Any, ...]) -> None:
    seen = (
        Seen(1)
        .step(events.MessageReceived(0, messages.Start(1)), actions.Send(1, messages.Start(1)))
        .step(event, *wanted)
    )
    assert seen.phases() == ["lost", "launching"]
    assert seen.details()[0]


def test_one_node_is_alone() -> None:
    alone = settle(spec.load("launcher: mpirun\nslots: 2\ncommand: [train]", "job.yaml", {}, {}), FACTS)
    board = NodeTable(alone, 5.0)
    board.saw(events.Started(), [actions.Prepare(alone.members)], 6.0)
    board.saw(events.Prepared(2, None), [actions.Send(0, messages.Start(1))], 7.0)
    assert [each["phase"] for each in board.snapshot(8.0, 1, None)["nodes"]] == ["launching"]


# ---------------------------------------------------------------------------------------------------------------
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
    return metrics.text(seen.shown(outcome, idle=3.0), 2, 5)


def test_metrics_say_what_the_status_does() -> None:
    seen = started()
    for rank in range(4):
        seen.step(events.MessageReceived(rank // 2, messages.RankStart(rank, 77)))
    seen.step(events.MessageReceived(1, messages.RankEnd(3, 0, (), ""))).step(events.TimerFired())
    found = read(text_of(seen, DONE))
    assert one(found, "entrypoint_node_up", node="worker-1", job="job") == 1
    assert one(found, "entrypoint_phase", node="worker-0", phase="running") == 1
    assert sum(value for _, value in found["entrypoint_phase"]) == 1
    assert one(found, "entrypoint_heartbeat_age_seconds", node="worker-1") == 1
    assert one(found, "entrypoint_ranks", node="worker-1", state="running") == 1
    assert one(found, "entrypoint_ranks", node="worker-1", state="ended") == 1
    assert one(found, "entrypoint_idle_seconds", node="worker-0") == 3
    assert one(found, "entrypoint_boot_seconds") == 5
    assert one(found, "entrypoint_log_lines_lost_total") == 5
    assert one(found, "entrypoint_exit_status") == 7
    assert one(found, "entrypoint_info", launcher="mpirun") == 1
    seen.step(events.SessionLost(1), actions.NodeLost(1, "b is lost"))
    assert one(read(text_of(seen)), "entrypoint_node_up", node="worker-1") == 0
    assert "entrypoint_exit_status" not in read(text_of(seen)), "an exit status is there once it is known"


def test_every_metric_has_help_a_type_and_a_line_in_the_documents() -> None:
    families = {family.name: family for family in text_string_to_metric_families(text_of(started(), DONE))}
    for name, (kind, words) in metrics.METRICS.items():
        assert name.startswith("entrypoint_")
        assert (kind == "counter") == name.endswith("_total")
        if family := families.get(name.removesuffix("_total") if kind == "counter" else name):
            assert (family.type, family.documentation) == (kind, words)
    page = (ROOT / "docs/reference/status.md").read_text()
    rows = re.findall(r"^\| `(entrypoint_\w+)` \| (\w+) \|", page, re.M)
    assert dict(rows) == {name: kind for name, (kind, _) in metrics.METRICS.items()}
    assert re.findall(r"^\| `([a-z ]+)` \| \w.*\w \|$", page, re.M) == list(PHASES)


def test_no_two_nodes_have_a_sample_in_common() -> None:
    """As node_exporter asks of the files in its folder."""

    def told(me: int, *without: str) -> set[tuple[str, frozenset[tuple[str, str]]]]:
        found = read(metrics.text(Seen(me).shown(), 2, 0))
        return {
            (name, frozenset((label, value) for label, value in labels.items() if label not in without))
            for name, samples in found.items()
            for labels, _ in samples
        }

    assert not told(0) & told(1)
    assert told(0, "seen_from") & told(1, "seen_from"), "the control: they tell of each other"


def test_odd_words_break_no_line() -> None:
    seen = Seen(0)
    shown = seen.shown() | {"job": 'a"b\\c\nd', "launcher": "\u00e9"}
    found = read(metrics.text(shown, 2, 0))
    assert one(found, "entrypoint_info", job='a"b\\c\nd', launcher="\u00e9") == 1


def test_nothing_of_a_command_or_a_reason_is_told() -> None:
    seen = started().step(events.SessionLost(1), actions.NodeLost(1, "a long reason"))
    text = text_of(seen, DONE)
    assert not re.search("train|reason|exited", text)
    assert "a long reason" in json.dumps(seen.shown()), "the control: the state has it"
