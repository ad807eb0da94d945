"""The layout of the package, by reading its source: who may import whom, where effects are, what
readers can expect.

Every rule has a control beside it: a made-up module that breaks it, which the same checker must
name.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import TREE, layout
from tests.layout import LARGE, RULES, Sources

pytestmark = pytest.mark.textual


@pytest.fixture(scope="module")
def sources() -> Sources:
    return {
        path: text
        for path, text in read(layout.PACKAGE).items()
        if "templates" not in path.split("/")
    }


def read(folder: Path) -> Sources:
    return {
        path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted(folder.rglob("*.py"))
    }


@pytest.mark.promise("import rules, effects and lengths hold")
@pytest.mark.parametrize("rule", RULES)
def test_the_rule_holds(rule: str, sources: Sources) -> None:
    assert len(sources) > 20
    assert RULES[rule](sources) == []


def test_every_package_is_on_a_floor(sources: Sources) -> None:
    assert {layout.module_of(path)[0] for path in sources if layout.module_of(path)} == {
        *layout.ORDER
    }


def test_the_packages_at_the_top_have_few_imports(sources: Sources) -> None:
    """Of one package by another; a reader has to hold all of them at once."""
    found = {
        (layout.module_of(path)[0], name.split(".")[1])
        for path, _, name in layout.imports(sources)
        if layout.module_of(path) and name.startswith("entrypoint.")
    }
    between = {
        (mine, theirs) for mine, theirs in found if mine != theirs and theirs in layout.ORDER
    }
    assert len(between) <= layout.MOST_IMPORTS, sorted(between)


def test_no_exception_for_a_large_class_is_larger_than_the_class(sources: Sources) -> None:
    """The figures may only fall: a class that has shrunk by a twentieth gets its lower figures."""
    lower = {
        name: {kind: round(figure * 0.95) for kind, figure in figures.items()}
        for name, figures in LARGE.items()
    }
    assert len(layout.classes(sources, lower)) == sum(map(len, LARGE.values()))
    figures = [item for exception in LARGE.values() for item in exception.items()]
    assert all(figure > layout.MOST_OF_A_CLASS[kind] for kind, figure in figures)


OF_TESTS = {rule.__name__: rule for rule in (layout.imported_tests, layout.short_deadlines)}
ALL = {**RULES, **OF_TESTS}


@pytest.mark.parametrize("rule", OF_TESTS)
def test_the_rule_for_tests_holds(rule: str) -> None:
    assert OF_TESTS[rule](read(TREE / "tests")) == []


FUNCTION = "def f():\n    "
INIT = "class Spec:\n    def __init__(self, a, b, c, d, e, f{}): ..."
BREACHES = [
    ("import_order", "base/model.py", "from entrypoint.spec import load", "1: base may not use spec"),
    ("import_order", "base/errors.py", "import entrypoint.plan", "1: base may not use plan"),
    ("import_order", "spec.py", "from entrypoint import cli", "1: spec may not use cli"),
    ("import_order", "plan/a.py", f"{FUNCTION}from entrypoint import node", "2: plan may not use node"),
    ("import_order", "node.py", "from entrypoint.features.record import x", "1: node may not use features"),
    ("import_order", "plan/a.py", "from entrypoint.tools import local", "1: plan may not use tools"),
    ("import_order", "features/a/b.py", "from entrypoint.features.c import x", "1: a feature may not use c"),
    ("import_order", "launchers/a.py", "from entrypoint.launchers.b import x", "1: an adapter may not use launchers.b"),
    ("import_order", "launchers/a.py", "from entrypoint.devices import _gpu", "1: an adapter may not use devices._gpu"),
    ("import_order", "tools/deploy/a.py", "from entrypoint.tools.deploy.b import x", "1: an adapter may not use tools.deploy"),
    ("import_order", "spec.py", "from entrypoint.unlisted import x", "1: unlisted is on no floor"),
    ("import_order", "unlisted.py", "from entrypoint.base.model import Facts", "1: unlisted is on no floor"),
    ("import_order", "spec.py", "from . import run", "1: ..run: write imports in full"),
    ("one_way", "plan/members.py", "from entrypoint.plan.env import x", "1: members may not use env"),
    ("one_way", "plan/env.py", "from entrypoint.plan import settle", "1: env may not use settle"),
    ("one_way", "plan/unlisted.py", "from entrypoint.plan.limits import x", "1: unlisted may not use limits"),
    ("effects", "spec.py", "import subprocess", "1: subprocess"),
    ("effects", "platforms/local.py", "from os.path import join", "1: os"),
    ("effects", "plan/__init__.py", f"{FUNCTION}import time as clock", "2: time"),
    ("sleeps", "run/node.py", "import time\ntime.sleep(1)", "2: time.sleep"),
    ("sleeps", "run/node.py", "from time import sleep as rest", "1: time.sleep"),
    ("lengths", "spec.py", "x = 1\n" * 601, " 601 lines"),
    ("divided", "spec.py", "def load():\n" + "    x = 1\n" * 45, "1: load has 46 lines"),
    ("divided", "spec.py", INIT.format(", g"), "2: a constructor with 7 arguments"),
    ("divided", "spec.py", "self.a, b, self.c = 1, 2, 3", "1: 2 attributes on one line"),
    ("launchers_by_name", "spec.py", 'if launcher == "mpirun": ...', "1: mpirun"),
    ("launchers_by_name", "spec.py", 'if launcher in ("x", "hydra"): ...', "1: hydra"),
    ("inquiries_by_name", "cli/a.py", "self.plan.inquiry.name == 'x'", "1: self.plan.inquiry.name == 'x'"),
    ("rank_kinds", "job/a.py", "x = rankkind.UNDER_DAEMONS", "1: UNDER_DAEMONS"),
    ("rank_kinds", "plan/a.py", "from entrypoint.base.rankkind import AS_PROGRAMS", "1: AS_PROGRAMS"),
    ("rank_kinds", "ranks/a.py", "kind = RankKind(in_programs=True)", "1: RankKind"),
    ("rank_kinds", "job/a.py", "if launch.ranks.kind is kind: ...", "1: launch.ranks.kind is kind"),
    ("rank_kinds", "job/a.py", 'launch.ranks.reports in ("a", "b")', "1: launch.ranks.reports in ('a', 'b')"),
    ("membership_elsewhere", "job/leader.py", "if topology.spares: ...", "1: spares"),
    ("membership_elsewhere", "job/state.py", "least = x\nmin_nodes = 2", "2: min_nodes"),
    ("membership_elsewhere", "job/a.py", "make(gate=1)", "1: gate"),
    ("membership_acts", "job/membership/a.py", "state.scheduler.now", "1: scheduler"),
    ("membership_written", "job/ends.py", "self._membership.participants.failed = True", "1: self._membership.participants.failed"),
    ("membership_written", "job/a.py", "self._quorum.has_name |= True", "1: self._quorum.has_name"),
    ("membership_written", "job/a.py", "self._roster.awaited.discard(0)", "1: self._roster.awaited.discard"),
    ("membership_written", "job/a.py", "del self.membership.roster.losses[0]", "1: self.membership.roster.losses[0]"),
    ("membership_written", "job/a.py", "x, it = 1, self._participants\nit.awaited.add(1)", "2: it.awaited.add"),
    ("membership_written", "node.py", "machine.membership.roster.team = x", "1: machine.membership.roster.team"),
    ("imported_tests", "tests/unit/a.py", "from tests.unit.test_b import x", "1: tests.unit.test_b.x"),
    ("imported_tests", "tests/a.py", f"{FUNCTION}from tests.unit import test_b", "2: tests.unit.test_b"),
    ("short_deadlines", "tests/a.py", "process.wait(60)", "1: wait has 60 seconds"),
    ("short_deadlines", "tests/a.py", "captured(words, timeout=30)", "1: captured has 30 seconds"),
    ("short_deadlines", "tests/a.py", 'until(ready, "it", 5)', "1: until has 5 seconds"),
    ("hosts_in_texts", "a.py", 'x = 1\nf"{self._nodes[0].host} is lost"', "2: {self._nodes[0].host}"),
    ("classes", "node.py", "class Loop:\n" + "    def f(self): ...\n" * 28, "1: Loop has 28 methods"),
    ("classes", "node.py", "class A:\n" + "    async def f(self): ...\n" * 26, "1: A has 26 methods"),
    ("classes", "job/a.py", "class A:\n" + "    x = 1\n" * 300, "1: A has 301 lines"),
    ("classes", "job/a.py", "class A:\n" + "    def f(self): ...\n" * 26, "1: A has 26 methods"),
    ("classes", "job/a.py", "class A:\n" + "".join(f"    x{n} = 1\n" for n in range(21)), "1: A has 21 attributes"),
    ("docstrings", "spec.py", '"""What this is."""', "1: What"),
    ("docstrings", "plan/a.py", 'def f():\n    """\n    Whether it ends."""', "2: Whether"),
    ("docstrings", "job/a.py", 'class A:\n    """Who it is, once."""', "2: Who"),
    ("docstrings", "job/a.py", 'x = 1\n"""How often."""', "2: How"),
]  # fmt: skip


@pytest.mark.control("import rules, effects and lengths hold")
@pytest.mark.parametrize(("rule", "path", "text", "breach"), BREACHES)
def test_a_breach_is_named(rule: str, path: str, text: str, breach: str) -> None:
    assert ALL[rule]({path: text}) == [f"{path}:{breach}"]


CIRCLES = [
    ({"a/b.py": "from entrypoint.a.c import x", "a/c.py": f"{FUNCTION}import entrypoint.a.b"}, ["a/b", "a/c"]),
    ({"a/__init__.py": "from entrypoint.a import b", "a/b.py": "import entrypoint.a"}, ["a/__init__", "a/b"]),
    # between no two modules, but between a folder and a module beside it
    ({"a/b.py": "import entrypoint.a.c.d", "a/c/d.py": "", "a/c/e.py": "import entrypoint.a.b"}, ["a/b", "a/c"]),
    (
        {"a.py": "from entrypoint import b", "b.py": "import entrypoint.c", "c.py": "import entrypoint.a.x"},
        ["a", "b", "c"],
    ),
]  # fmt: skip


@pytest.mark.control("import rules, effects and lengths hold")
@pytest.mark.parametrize(("wrong", "parts"), CIRCLES)
def test_a_circle_is_named(wrong: Sources, parts: list[str]) -> None:
    # what needs it, and is in none
    line = {"d.py": "import entrypoint.a", "e.py": "import entrypoint.d"}
    assert [breach.partition(":")[0] for breach in layout.circles({**wrong, **line})] == parts


@pytest.mark.parametrize(
    ("rule", "path", "text"),
    [
        ("import_order", "launchers/a.py", "from entrypoint.launchers._torch import common"),
        ("import_order", "launchers/a.py", "from entrypoint import __version__"),
        ("import_order", "tools/deploy/a.py", "from entrypoint.tools.deploy._kinds import x"),
        ("import_order", "features/a/b.py", "from entrypoint.features.a.c import x"),
        ("import_order", "plan/topology.py", "from entrypoint.spec import check_host"),
        ("one_way", "plan/env.py", "from entrypoint.plan.cpus import share"),
        ("one_way", "plan/env.py", "from entrypoint.plan import cpus"),
        ("one_way", "plan/__init__.py", "from entrypoint.plan.notes import later"),
        ("one_way", "ranks/hooks.py", "from entrypoint.plan import settle"),
        ("effects", "system/keys.py", "import os, time"),
        ("effects", "spec.py", "import osmosis"),
        ("lengths", "spec.py", "x = 1\n" * 600),
        ("divided", "spec.py", "def load():\n" + "    x = 1\n" * 44),
        ("divided", "spec.py", INIT.format("")),
        ("launchers_by_name", "launchers/a.py", 'if launcher == "mpirun": ...'),
        ("launchers_by_name", "spec.py", 'default = "mpirun"'),
        ("rank_kinds", "base/model.py", "kind: RankKind = AS_PROGRAMS"),
        ("rank_kinds", "launchers/_mpi.py", "LaunchRanks(kind=UNDER_DAEMONS)"),
        (
            "rank_kinds",
            "job/a.py",
            "if launch.ranks.kind.by_daemons or launch.ranks.count == 2: ...",
        ),
        ("membership_elsewhere", "job/membership/__init__.py", "topology.spares"),
        ("membership_elsewhere", "plan/team.py", "topology.spares"),
        ("membership_acts", "job/rollcall.py", "state.scheduler.now"),
        ("membership_written", "job/a.py", "self._quorum = membership.quorum"),
        ("membership_written", "job/a.py", "self._participants.ended(1)\nrows.pop(roster.here)"),
        ("membership_written", "job/membership/a.py", "self._roster.team = x"),
        ("classes", "node.py", "class Loop:\n" + "    def f(self): ...\n" * 27),
        ("docstrings", "spec.py", '"""Whatever it is: what it does."""\nx = "What"'),
        ("imported_tests", "tests/unit/test_a.py", "from tests.unit.machine import tested"),
        ("hosts_in_texts", "a.py", 'f"{node.name} is lost"'),
        ("short_deadlines", "a.py", "with pytest.raises(TimeoutExpired):\n    process.wait(3)"),
        ("short_deadlines", "a.py", "process.wait()\nuntil(lambda: x, 'it')\nnever.wait(0.02)"),
        ("membership_elsewhere", "job/messages.py", 'x = "spares"  # of a gate'),
    ],
)
def test_what_is_allowed_is_not_named(rule: str, path: str, text: str) -> None:
    assert ALL[rule]({path: text}) == []
