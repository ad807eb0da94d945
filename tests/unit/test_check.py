"""How `check` judges: made-up observations in, findings out. Nothing here looks at this machine."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from entrypoint import plan as planning
from entrypoint import spec as specs
from entrypoint.base.model import Facts, Finding, NodeReport, Outcome, Plan
from entrypoint.base.values import replace
from entrypoint.base.wire import read
from entrypoint.features.health import judge, nodes
from entrypoint.features.health.findings import texts
from entrypoint.features.health.observation import (
    InstalledProgram,
    Name,
    Named,
    Observation,
    Refusal,
)
from entrypoint.features.health.report import (
    CheckDialogue,
    CheckOptions,
    sort,
    status,
    summary,
    text,
    together,
)
from tests import TREE

pytestmark = pytest.mark.see

FACTS = Facts(env={}, hostname="a", cwd="/", uid=1000, user="ma-user", home="/home/ma-user")
FACTS = replace(FACTS, programs={"sshd": "/usr/sbin/sshd"})
MIB, GIB = 2**20, 2**30


def plan(hosts: str = "[a, b, c]", slots: int = 2, launcher: str = "mpirun") -> Plan:
    text = (
        f"hosts: {hosts}\nslots: {slots}\nlauncher: {launcher}\ncommand: [x]\nsecret_file:"
        " /none\nnode_rank: 0\n"
    )
    return planning.settle(specs.load(text, "job.yaml", {}, {}), FACTS)


PLAN = plan()


CASES = yaml.safe_load((TREE / "tests/tables/check.yaml").read_text("utf-8"))


def observed(like: str, changes: dict[str, Any]) -> Observation:
    """The probe result of one of `nodes` with these changes."""
    given = {**CASES["nodes"][like], **changes}
    libraries = {**CASES["nodes"][like].get("libraries", {}), **changes.get("libraries", {})}
    given["libraries"] = [{"name": name, "value": value} for name, value in libraries.items()]
    return read(Observation, given)


GOOD = observed("good", {})


@pytest.mark.promise(
    "nodes and differences between nodes are judged by their probe results",
    control="their cases that are well",
)
@pytest.mark.parametrize("case", CASES["one node"].values(), ids=CASES["one node"])
def test_one_node(case: list[Any]) -> None:
    like, changes, *expected = case
    found = [each for each in judge.judge(observed(like, changes), PLAN, 1) if each.level != "ok"]
    rows = [row.split(" ", 2) for row in expected]
    assert [[each.level, each.id] for each in found] == [row[:2] for row in rows], found
    for each, (_, _, words) in zip(found, rows, strict=True):
        assert words in each.seen
        assert each.nodes == ("worker-1",)
        assert each.fix


def test_one_rank_needs_no_shared_memory_and_one_node_no_name() -> None:
    alone = plan("[a]", slots=1, launcher="plain")
    seen = replace(GOOD, shm_free=0, own=Name("a", (), "unknown"), no_link=True, links=())
    assert [each for each in judge.judge(seen, alone, 0) if each.level != "ok"] == []
    memory = [each for each in judge.judge(seen, alone, 0) if each.id.endswith("-memory")]
    assert [each.needed for each in memory] == ["", ""], "nor locked memory, without RDMA"


def test_what_is_shown_after_a_failed_boot() -> None:
    seen = replace(GOOD, shm_free=MIB, cpu_limit=0.5, unseen=(Named("disks", "no end within 2s"),))
    assert [each.id for each in judge.cheap(seen, PLAN, 0)] == ["shared-memory"]


def test_every_row_of_the_texts_is_used() -> None:
    sources = "".join(
        file.read_text() for file in (TREE / "entrypoint/features/health").glob("*.py")
    )
    keys = {key.removeprefix("differs-") for key in texts()} - {"torch/problem", "horovod/problem"}
    assert [key for key in keys if f'"{key}"' not in sources] == []
    assert '"no-such-row"' not in sources


# --------------------------------------------------------------------------------------------------
# Between nodes


def reports(*clocks: float) -> dict[int, NodeReport]:
    return {rank: NodeReport(rank, 2, "0", clock=clock) for rank, clock in enumerate(clocks)}


@pytest.mark.promise("nodes and differences between nodes are judged by their probe results")
@pytest.mark.parametrize("case", CASES["differences"].values(), ids=CASES["differences"])
def test_differences(case: list[Any]) -> None:
    given, *expected = case
    seen = [Observation() if each is None else observed("cuda", each) for each in given]
    wide = plan("[a, b, c, d]") if len(seen) > 3 else PLAN
    found = nodes.differences(dict(enumerate(seen)), reports(*[0.0] * len(seen)), wide)
    rows = [f"{each.level} {each.id} {' '.join(each.nodes)} {each.seen}" for each in found]
    assert rows == expected


@pytest.mark.parametrize(
    ("clocks", "named"),
    [
        ((0.0, 9.0, -9.0), []),
        ((0.0, 600.0, 0.1), ["worker-1: 600s ahead of the others"]),
        ((0.0,), []),
    ],
    ids=["well", "one", "alone"],
)
def test_clocks(clocks: tuple[float, ...], named: list[str]) -> None:
    found = nodes.differences({}, reports(*clocks), PLAN)
    assert [f"{each.nodes[0]}: {each.seen}" for each in found] == named


@pytest.mark.promise(
    "`check --all` names late packets by what the kernel measured at the roll call"
)
@pytest.mark.parametrize(
    ("trips", "named"),
    [
        ((0.0, 0.0099, 0.0001), []),
        ((0.0, 0.0001, 0.2004), ["worker-2: 200 ms to worker-0 and back"]),
        (
            (0.0, 0.0, 0.05),
            ["worker-0 worker-2: 50 ms to worker-0 and back"],
        ),  # of one nothing is known
        ((0.0, 0.2, 0.21), ["worker-0: 205 ms to the others and back"]),
        ((0.0, 0.0, 0.0), []),
    ],
    ids=["well", "one", "one of two", "the leader's own", "not known"],
)
def test_round_trips(trips: tuple[float, ...], named: list[str]) -> None:
    given = {rank: NodeReport(rank, 2, "0", round_trip=trip) for rank, trip in enumerate(trips)}
    found = nodes.differences({}, given, PLAN)
    assert [f"{' '.join(each.nodes)}: {each.seen}" for each in found] == named


# --------------------------------------------------------------------------------------------------
# What travels, and what is printed


WELL = Finding("ok", "a", "A", "1")
ODD = Finding("warning", "b", "B", "2")
BAD = Finding("error", "c", "C", "3")


def test_worst_first_and_the_same_once() -> None:
    x, y = (replace(WELL, nodes=(name,)) for name in "xy")
    expected = [("error", ()), ("warning", ()), ("ok", ("x", "y"))]
    assert [(each.level, each.nodes) for each in sort([x, ODD, BAD, y, x])] == expected


@pytest.mark.parametrize(
    ("found", "plain_status", "strict", "words"),
    [
        ([WELL], 0, 0, "nothing is wrong"),
        ([WELL, ODD], 0, 78, "1 warning"),
        ([ODD, BAD, replace(BAD, id="d")], 78, 78, "2 errors, 1 warning"),
    ],
)
def test_status(found: list[Finding], plain_status: int, strict: int, words: str) -> None:
    expected = (plain_status, strict, words)
    assert (status(found), status(found, strict=True), summary(found)) == expected


def test_what_is_well_is_one_line_for_all() -> None:
    lines = together(
        sort([replace(WELL, seen=str(number), nodes=(f"n{number}",)) for number in range(1000)])
    )
    (line,) = text(lines, 1000, 100, "job").splitlines()[3:-2]
    assert line == "ok  all   A     0, and others like it (999)"


def test_of_many_lines_on_one_matter_the_first_are_shown() -> None:
    lines = together(
        sort([replace(ODD, seen=str(number), nodes=(f"n{number}",)) for number in range(20)])
    )
    assert [each.seen for each in lines] == [
        *map(str, range(8)),
        "and 12 more like these; --json has them all",
    ]
    assert lines[-1].nodes[0] == "n8"


TABLE = """\
job: 2 nodes

       node      what        seen    needed  fix
error  worker-1  the driver  535.54  550.54  install one
                 differs                     driver on all
                                             hosts
ok     all       CPUs        8

1 error
"""


def test_the_table() -> None:
    fix = "install one driver on all hosts"
    lines = [
        Finding("error", "d", "the driver differs", "535.54", "550.54", fix, ("worker-1",)),
        Finding("ok", "c", "CPUs", "8", nodes=("worker-0", "worker-1")),
    ]
    assert text(lines, 2, 62, "job: 2 nodes") == TABLE


def test_a_node_that_is_missing_or_silent_is_in_the_report() -> None:
    failed = Outcome(69, "1 of 2 peers did not answer | c (refused) | see that they run")
    made = CheckDialogue(
        CheckOptions(30.0, json=True), PLAN, reports(0.0, 0.0), {0: GOOD}
    ).conclude(failed)
    whole = json.loads(made.answer)
    assert made.outcome == failed
    assert (whole["status"], list(whole["observed"])) == (69, ["worker-0"])
    bad = [
        (each["id"], each["seen"], each["nodes"])
        for each in whole["findings"]
        if each["level"] == "error"
    ]
    assert bad == [("roll-call", "c (refused)", []), ("no-answer", "no answer", ["worker-1"])]


@pytest.mark.parametrize(("launcher", "ended"), [("mpirun", 78), ("torchrun", 0)])
def test_another_mpirun_matters_under_mpirun(launcher: str, ended: int) -> None:
    seen = {
        rank: replace(GOOD, programs=(InstalledProgram("mpirun", "/m", f"Open MPI {4 + rank}.0"),))
        for rank in (0, 1)
    }
    made = CheckDialogue(
        CheckOptions(30.0), plan(launcher=launcher), reports(0.0, 0.0), seen
    ).conclude(None)
    assert made.outcome.status == ended, made.answer
    head = f"job job: 3 nodes, 6 ranks, launcher {launcher}; looked at: worker-0, worker-1"
    assert made.answer.startswith(head)


def test_a_node_that_cannot_take_part_is_one_line() -> None:
    reason = "cannot start mpirun: No such file"
    there = {0: replace(reports(0.0)[0], not_ready=Outcome(127, reason))}
    for seen, ids in (
        (replace(GOOD, refused=(Refusal(127, reason),)), ["refused"]),
        (GOOD, ["not-ready"]),
    ):
        made = CheckDialogue(CheckOptions(30.0, json=True), PLAN, there, {0: seen}).conclude(None)
        found = [
            each["id"] for each in json.loads(made.answer)["findings"] if each["level"] == "error"
        ]
        assert (found, made.outcome.status) == (ids, 78)
