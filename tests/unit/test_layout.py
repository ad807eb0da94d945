"""The layout of the package, by reading its source: who may import whom, where effects are, what
readers can expect.

Every rule has a control beside it: a made-up module that breaks it, which the same checker must
name.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import TREE, layout, table
from tests.layout import LARGE, RULES, Sources

TABLE = table("tests/tables/layout.yaml")

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
BREACHES = [
    *TABLE["breaches"],
    ("lengths", "spec.py", "x = 1\n" * 601, " 601 lines"),
    ("divided", "spec.py", "def load():\n" + "    x = 1\n" * 45, "1: load has 46 lines"),
    ("classes", "node.py", "class Loop:\n" + "    def f(self): ...\n" * 28, "1: Loop has 28 methods"),
    ("classes", "node.py", "class A:\n" + "    async def f(self): ...\n" * 26, "1: A has 26 methods"),
    ("classes", "job/a.py", "class A:\n" + "    x = 1\n" * 300, "1: A has 301 lines"),
    ("classes", "job/a.py", "class A:\n" + "    def f(self): ...\n" * 26, "1: A has 26 methods"),
    ("classes", "job/a.py", "class A:\n" + "".join(f"    x{n} = 1\n" for n in range(21)), "1: A has 21 attributes"),
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
        *TABLE["allowed"],
        ("lengths", "spec.py", "x = 1\n" * 600),
        ("divided", "spec.py", "def load():\n" + "    x = 1\n" * 44),
        ("classes", "node.py", "class Loop:\n" + "    def f(self): ...\n" * 26),
    ],
)
def test_what_is_allowed_is_not_named(rule: str, path: str, text: str) -> None:
    assert ALL[rule]({path: text}) == []
