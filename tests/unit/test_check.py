"""How `check` judges: made-up observations in, findings out. Nothing here looks at this machine."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from entrypoint import spec as specs
from entrypoint.base.model import Facts, Finding, NodeReport, Outcome, Plan
from entrypoint.base.values import replace
from entrypoint.base.wire import Invalid
from entrypoint.features.health import probe, probes
from entrypoint.features.health.probe import NodeView
from entrypoint.features.health.probes import container
from entrypoint.features.health.report import (
    CheckDialogue,
    CheckOptions,
    sort,
    status,
    summary,
    text,
    together,
)
from entrypoint.plan import settle
from tests import TREE, table
from tests.extending import blocks

pytestmark = pytest.mark.see

FACTS = Facts(env={}, hostname="a", cwd="/", uid=1000, user="ma-user", home="/home/ma-user")
FACTS = replace(FACTS, programs={"sshd": "/usr/sbin/sshd"})
MIB, GIB = 2**20, 2**30


def plan(hosts: str = "[a, b, c]", slots: int = 2, launcher: str = "mpirun") -> Plan:
    text = (
        f"hosts: {hosts}\nslots: {slots}\nlauncher: {launcher}\ncommand: [x]\nsecret_file:"
        " /none\nnode_rank: 0\n"
    )
    return settle(specs.load(text, "job.yaml", {}, {}), FACTS)


PLAN = plan()
MPIRUN = {"name": "mpirun", "path": "/m"}


CASES = table("tests/tables/check.yaml")


def observed(like: str, changes: dict[str, Any]) -> dict[str, Any]:
    """The fields that the probes of one of `nodes` have found, with these changes."""
    given = {**CASES["nodes"][like], **changes}
    libraries = {**CASES["nodes"][like].get("libraries", {}), **changes.get("libraries", {})}
    given["libraries"] = [{"name": name, "value": value} for name, value in libraries.items()]
    return given


GOOD = observed("good", {})


def view(fields: dict[str, Any], plan: Plan = PLAN, rank: int = 1) -> NodeView:
    return NodeView(plan, plan.topology.nodes[rank], None, probes.results(fields))


def judged(fields: dict[str, Any], plan: Plan = PLAN, rank: int = 1) -> list[Finding]:
    """The findings on one node."""
    return probes.findings([view(fields, plan, rank)])


@pytest.mark.promise(
    "nodes and differences between nodes are judged by their probe results",
    control="their cases that are well",
)
@pytest.mark.parametrize("case", CASES["one node"].values(), ids=CASES["one node"])
def test_one_node(case: list[Any]) -> None:
    like, changes, *expected = case
    found = [each for each in judged(observed(like, changes)) if each.level != "ok"]
    rows = [row.split(" ", 2) for row in expected]
    assert [[each.level, each.id] for each in found] == [row[:2] for row in rows], found
    for each, (_, _, words) in zip(found, rows, strict=True):
        assert words in each.seen
        assert each.nodes == ("worker-1",)
        assert each.fix


def test_one_rank_needs_no_shared_memory_and_one_node_no_name() -> None:
    alone = plan("[a]", slots=1, launcher="plain")
    own = {"host": "a", "problem": "unknown"}
    seen = {**GOOD, "shm_free": 0, "own": own, "no_link": True, "links": []}
    assert [each for each in judged(seen, alone, 0) if each.level != "ok"] == []
    memory = [each for each in judged(seen, alone, 0) if each.id.endswith("-memory")]
    assert [each.needed for each in memory] == ["", ""], "nor locked memory, without RDMA"


def test_fields_that_are_none_are_refused() -> None:
    with pytest.raises(Invalid, match=r"reply\.body\.cpus: not a number"):
        probes.results({"cpus": "many"})


def test_a_probe_has_all_that_is_known_of_its_findings() -> None:
    """Its texts are those that its own methods use, and no two probes share a field or an id."""
    ids = [key for kind in probes.PROBES for key in probe.rows(kind.texts) if key != "page"]
    assert len(ids) == len(set(ids))
    fields = [name for kind in probes.PROBES for name in vars(kind).get("__annotations__", ())]
    assert len(fields) == len(set(fields))
    folder = TREE / "entrypoint/features/health/probes"
    whole = "".join(file.read_text() for file in folder.glob("*.py"))
    sources = dict(re.findall(r"(?ms)^class (\w+)(.*?)(?=^@|^class |\Z)", whole))
    for kind in probes.PROBES:
        source = sources[kind.__name__].replace(kind.texts, "")
        compared = {f"differs-{key.partition(' ')[0]}" for key in alike(kind)}
        for key in probe.rows(kind.texts).keys() - {"page"} - compared:
            name, _, case = key.partition("/")
            words = ('/problem"', name) if case == "problem" else (f'"{key}"',)
            assert all(word in source for word in words), f"{kind.__name__}: {key} is not used"
        named = set(re.findall(r'finding\([^,]*, "([^"]+)"', source))
        assert compared | named <= probe.rows(kind.texts).keys()


def test_the_probe_of_the_page_on_extending_works() -> None:
    names = {**vars(container), "Path": Path, "Mapping": Mapping}
    exec(blocks("check-finding")[0], names)
    kind = names["Overcommit"]
    assert kind.read(None)["overcommit"] in (0, 1, 2)
    views = [NodeView(PLAN, PLAN.topology.nodes[rank], None, {kind: kind(rank)}) for rank in (1, 2)]
    assert [each.level for view in views for each in kind(view.node.rank).judge(view)] == [
        "ok",
        "warning",
    ]
    (found,) = kind.compare(views)
    assert (found.id, found.seen, found.needed) == ("differs-overcommit", "2", "1, as worker-1")


def alike(kind: type[probe.Probe]) -> Mapping[str, str]:
    """What a node of the table compares."""
    named = {"settings": [{"name": "slots", "value": "2"}], "names": [{"host": "c"}]}
    node = view({**observed("cuda", {}), **named})
    return node.of(kind).alike(node)


# --------------------------------------------------------------------------------------------------
# Between nodes


def differences(views: list[NodeView]) -> list[Finding]:
    return [each for kind in probes.PROBES for each in kind.compare(views)]


def reports(*clocks: float) -> dict[int, NodeReport]:
    return {rank: NodeReport(rank, 2, "0", clock=clock) for rank, clock in enumerate(clocks)}


@pytest.mark.promise("nodes and differences between nodes are judged by their probe results")
@pytest.mark.parametrize("case", CASES["differences"].values(), ids=CASES["differences"])
def test_differences(case: list[Any]) -> None:
    given, *expected = case
    wide = plan("[a, b, c, d]") if len(given) > 3 else PLAN
    seen = [{} if each is None else observed("cuda", each) for each in given]
    found = differences([view(fields, wide, rank) for rank, fields in enumerate(seen)])
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
    found = differences(
        [
            NodeView(PLAN, PLAN.topology.nodes[rank], report, {})
            for rank, report in reports(*clocks).items()
        ]
    )
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
    given = [NodeReport(rank, 2, "0", round_trip=trip) for rank, trip in enumerate(trips)]
    nodes = PLAN.topology.nodes
    found = differences(
        [NodeView(PLAN, nodes[rank], report, {}) for rank, report in enumerate(given)]
    )
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
        CheckOptions(30.0, json=True), PLAN, reports(0.0, 0.0), {0: probes.results(GOOD)}
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
        rank: probes.results(
            {**GOOD, "programs": [{**MPIRUN, "version": f"Open MPI {4 + rank}.0"}]}
        )
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
        ({**GOOD, "refused": [{"status": 127, "reason": reason}]}, ["refused"]),
        (GOOD, ["not-ready"]),
    ):
        results = {0: probes.results(seen)}
        made = CheckDialogue(CheckOptions(30.0, json=True), PLAN, there, results).conclude(None)
        found = [
            each["id"] for each in json.loads(made.answer)["findings"] if each["level"] == "error"
        ]
        assert (found, made.outcome.status) == (ids, 78)
