"""The layout of the package, by reading its source: who may import whom, where effects are, what
readers can expect.

Every rule has a control beside it: a made-up module that breaks it, which the same checker must
name.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from shlex import split

import pytest

from entrypoint.base import rankkind
from entrypoint.base.rankkind import RankKind

pytestmark = pytest.mark.textual

PACKAGE = Path(__file__).parents[2] / "entrypoint"

# Floors, from low to high: a package may use itself, what is on lower floors, and what stands before
# it on its own. The core is all below `features`, which `cli` hands to it.
_FLOORS = """
    base
    spec causes ranktable platforms devices launchers
    plan job system
    output
    session ranks
    extensions node
    features tools
    cli __main__
"""
FLOORS = [line.split() for line in _FLOORS.strip().splitlines()]
ORDER = [name for names in FLOORS for name in names]
ADAPTERS = {"platforms", "devices", "launchers", "deploy"}
EFFECTS = {"os", "subprocess", "socket", "time", "signal", "threading", "asyncio", "paramiko"}
# Who may have effects.
WITH_EFFECTS = {*split("system output ranks session node.py cli")}
# Limits for readers: of a file, of a function, and arguments of a constructor besides self. ruff
# holds columns and docstrings.
MOST_LINES = 600
MOST_LINES_OF_A_FUNCTION = 45
MOST_ARGUMENTS = 6
MOST_IMPORTS = 80  # between packages at the top
# One of them, ascend, is also the name of a device.
LAUNCHERS = {path.stem for path in (PACKAGE / "launchers").glob("[a-z]*.py")} - {"ascend"} | {
    "mpiexec.hydra",
    "prterun",
}
# The kinds of ranks, of which each launcher chooses one.
RANK_KINDS = {name for name in vars(rankkind) if isinstance(getattr(rankkind, name), RankKind)}
# The way of a value through plan/: a module uses those before it, and never the package, its door.
WAY_OF_PLAN = split(
    "forms limits numbering topology members cpus launch env files notes ports recognition show"
)
# Words that begin a question, and no docstring.
QUESTION = re.compile(r"\s*(What|Whether|Who|Whose|Why|How|Where|When|Which)\b")
# Names that only job/membership/ knows of those in job/.
MEMBERSHIP = {"spares", "min_nodes", "gate"}
# The objects that it has, and the methods that change a collection in place.
MEMBERSHIP_OBJECTS = {"membership", "roster", "quorum", "participants", "earlier"}
CHANGES = set(split("add append clear discard extend insert pop popitem remove setdefault update"))
MOST_OF_A_CLASS = {"lines": 300, "methods": 25, "attributes": 20}
LARGE = {"Worker"}  # 40 methods, 22 attributes, 405 lines

Sources = Mapping[str, str]  # path in the package, such as system/keys.py -> its text
Rule = Callable[[Sources], list[str]]


@pytest.fixture(scope="module")
def sources() -> Sources:
    return {
        path.relative_to(PACKAGE).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted(PACKAGE.rglob("*.py"))
        if "templates" not in path.relative_to(PACKAGE).parts
    }


# --------------------------------------------------------------------------------------------------
# The checkers: each gives one line for each breach


@functools.cache
def parse(text: str) -> ast.Module:
    """Return the tree of a source, which several rules look at and none changes."""
    return ast.parse(text)


def module_of(path: str) -> tuple[str, ...]:
    parts = path.removesuffix(".py").split("/")
    return tuple(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(sources: Sources) -> Iterator[tuple[str, int, str]]:
    """Every import, wherever it stands: path, line, dotted name; `from a import b` gives a.b."""
    for path, text in sources.items():
        for node in ast.walk(parse(text)):
            if isinstance(node, ast.Import):
                yield from ((path, node.lineno, name.name) for name in node.names)
            elif isinstance(node, ast.ImportFrom):
                base = "." * node.level + (node.module or "")
                yield from ((path, node.lineno, f"{base}.{name.name}") for name in node.names)


def kind_of(parts: Sequence[str]) -> str:
    """Return the package of an adapter or feature; of others the top one."""
    return parts[1] if parts[0] in ("features", "tools") and len(parts) > 1 else parts[0]


def import_order(sources: Sources) -> list[str]:
    wrong = []
    modules = {module_of(path)[0] for path in sources if module_of(path)}
    for path, line, name in imports(sources):
        mine, parts = module_of(path), name.split(".")
        if name.startswith("."):
            wrong.append(f"{path}:{line}: {name}: write imports in full")
            continue
        if parts[0] != "entrypoint" or not mine:
            continue
        theirs = parts[1:]
        if len(theirs) == 1 and theirs[0] not in {*modules, *ORDER}:
            continue  # a name of the package itself, such as __version__
        unknown = [each for each in (mine[0], theirs[0]) if each not in ORDER]
        here, there = kind_of(mine), kind_of(theirs)
        if unknown:
            wrong.append(f"{path}:{line}: {unknown[0]} is on no floor")
        elif ORDER.index(theirs[0]) > ORDER.index(mine[0]):
            wrong.append(f"{path}:{line}: {mine[0]} may not use {theirs[0]}")
        elif mine[0] == theirs[0] == "features" and here != there:
            wrong.append(f"{path}:{line}: a feature may not use {there}")
        elif {here, there} <= ADAPTERS:
            module = theirs[theirs.index(there) + 1 :]
            if here != there or not (module and module[0].startswith("_")):
                wrong.append(f"{path}:{line}: an adapter may not use {'.'.join(theirs[:2])}")
    return wrong


def circles(sources: Sources) -> list[str]:
    """No two parts of a folder, which are its modules and its subfolders, need each other, even
    through others."""
    needs: dict[str, set[str]] = {}
    paths = {module_of(path): path.removesuffix(".py").split("/") for path in sources}
    for path, _, name in imports(sources):
        here, there = paths[module_of(path)], tuple(name.split(".")[1:])
        while there and there not in paths:
            there = there[:-1]  # what follows is a name of the module
        if name.startswith("entrypoint.") and there in paths:
            theirs = paths[there]
            if here == theirs:
                continue  # of a package, all of whose modules are not given
            pairs = enumerate(zip(here, theirs, strict=False))
            at = next((at for at, (one, other) in pairs if one != other), -1) + 1
            part, needed = "/".join(here[:at]), "/".join(theirs[:at])
            needs.setdefault(part, set()).add(needed)
    return [
        f"{part}: needs {needed}, and is needed by it"
        for part in sorted(needs)
        for needed in sorted(needs[part])
        if part in reached(needs, needed)
    ]


def reached(needs: Mapping[str, set[str]], part: str) -> set[str]:
    """Return what this part needs, itself or through others."""
    found: set[str] = set()
    left = {part}
    while left:
        more = needs.get(left.pop(), set()) - found
        found |= more
        left |= more
    return found


def effects(sources: Sources) -> list[str]:
    return [
        f"{path}:{line}: {name.split('.')[0]}"
        for path, line, name in imports(sources)
        if name.split(".")[0] in EFFECTS
        and path.split("/")[0] not in WITH_EFFECTS
        and path not in listed(sources)
    ]


def listed(sources: Sources) -> set[str]:
    """Return the modules that the packages of features list as those with effects."""
    found = set()
    for path, text in sources.items():
        for node in parse(text).body if path.endswith("/__init__.py") else ():
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "EFFECTS":
                found |= {path.replace("__init__", name) for name in ast.literal_eval(node.value)}
    return found


def one_way(sources: Sources) -> list[str]:
    """A value goes through plan/ in one direction."""
    wrong = []
    for path, line, name in imports(sources):
        mine, theirs = module_of(path), name.split(".")[1:]
        if path.startswith("plan/") and len(mine) > 1 and theirs[:1] == ["plan"]:
            here, there = mine[1], theirs[1]
            if here not in WAY_OF_PLAN or there not in WAY_OF_PLAN[: WAY_OF_PLAN.index(here)]:
                wrong.append(f"{path}:{line}: {here} may not use {there}")
    return wrong


def sleeps(sources: Sources) -> list[str]:
    wrong = [
        f"{path}:{line}: {name}" for path, line, name in imports(sources) if name.endswith(".sleep")
    ]
    for path, text in sources.items():
        for node in ast.walk(parse(text)):
            if isinstance(node, ast.Attribute) and node.attr == "sleep":
                wrong.append(f"{path}:{node.lineno}: {ast.unparse(node)}")
    return wrong


def lengths(sources: Sources) -> list[str]:
    lines = {path: len(text.splitlines()) for path, text in sources.items()}
    return [f"{path}: {number} lines" for path, number in lines.items() if number > MOST_LINES]


def divided(sources: Sources) -> list[str]:
    """Long functions, constructors with many arguments and joint assignments are to be divided."""
    wrong = []
    for path, text in sources.items():
        for node in ast.walk(parse(text)):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                lines = (node.end_lineno or 0) - node.lineno + 1
                arguments = len([*node.args.args, *node.args.kwonlyargs]) - 1
                if lines > MOST_LINES_OF_A_FUNCTION:
                    wrong.append(f"{path}:{node.lineno}: {node.name} has {lines} lines")
                if node.name == "__init__" and arguments > MOST_ARGUMENTS:
                    wrong.append(f"{path}:{node.lineno}: a constructor with {arguments} arguments")
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple):
                attributes = [
                    each
                    for each in node.targets[0].elts
                    if re.fullmatch(r"self\.\w+", ast.unparse(each))
                ]
                if len(attributes) > 1:
                    wrong.append(f"{path}:{node.lineno}: {len(attributes)} attributes on one line")
    return wrong


def launchers_by_name(sources: Sources) -> list[str]:
    """Launchers differ by values in `Launch`: the name of one is compared nowhere else."""
    wrong = []
    for path, text in sources.items():
        for node in ast.walk(parse(text)) if not path.startswith("launchers/") else ():
            if isinstance(node, ast.Compare):
                names = {
                    each.value for each in ast.walk(node) if isinstance(each, ast.Constant)
                } & LAUNCHERS
                wrong += [f"{path}:{node.lineno}: {name}" for name in sorted(names)]
    return wrong


def inquiries_by_name(sources: Sources) -> list[str]:
    """An inquiry has all that differs between features: its name is for people and is compared
    nowhere."""
    return [
        f"{path}:{node.lineno}: {ast.unparse(node)}"
        for path, text in sources.items()
        for node in ast.walk(parse(text))
        if isinstance(node, ast.Compare)
        and any(
            ast.unparse(each).endswith("inquiry.name") for each in [node.left, *node.comparators]
        )
    ]


def rank_kinds(sources: Sources) -> list[str]:
    """Code asks a kind's attributes how ranks start and report: only launchers name a kind, and
    nobody compares it, or another field of `LaunchRanks` with a text."""
    wrong = []
    for path, text in sources.items():
        for node in () if path.startswith(("launchers/", "base/")) else ast.walk(parse(text)):
            if isinstance(node, ast.Name | ast.Attribute | ast.alias):
                name = getattr(node, "attr", getattr(node, "id", getattr(node, "name", "")))
                if name in RANK_KINDS | {"RankKind"}:
                    wrong.append(f"{path}:{node.lineno}: {name}")
            elif isinstance(node, ast.Compare):
                sides = " ".join(map(ast.unparse, [node.left, *node.comparators]))
                if re.search(r"\branks\.kind\b(?!\.)", sides) or (
                    re.search(r"\branks\.\w", sides) and re.search("['\"]", sides)
                ):
                    wrong.append(f"{path}:{node.lineno}: {ast.unparse(node)}")
    return wrong


def membership_elsewhere(sources: Sources) -> list[str]:
    """With whom a job starts and goes on is known in job/membership/ alone."""
    wrong = []
    for path, text in sources.items():
        is_elsewhere = path.startswith("job/") and not path.startswith("job/membership/")
        for node in ast.walk(parse(text)) if is_elsewhere else ():
            name = getattr(node, "attr", getattr(node, "id", getattr(node, "arg", None)))
            if name in MEMBERSHIP:
                wrong.append(f"{path}:{getattr(node, 'lineno', 0)}: {name}")
    return wrong


def membership_acts(sources: Sources) -> list[str]:
    """job/membership/ answers with values; what follows from them is done elsewhere."""
    return [
        f"{path}:{node.lineno}: {node.attr}"
        for path, text in sources.items()
        for node in (ast.walk(parse(text)) if path.startswith("job/membership/") else ())
        if isinstance(node, ast.Attribute) and node.attr in {"scheduler", "act", "log"}
    ]


def membership_written(sources: Sources) -> list[str]:
    """The state of the membership is changed by its own verbs alone: elsewhere, no attribute below
    one of its objects is assigned, deleted or changed in place."""
    wrong = []
    for path, text in sources.items():
        if path.startswith("job/membership/"):
            continue
        tree = parse(text)
        owners = MEMBERSHIP_OBJECTS | {
            target.id
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign)
            for target, value in pairs_of(node)
            if isinstance(target, ast.Name)
            and getattr(value, "attr", "").strip("_") in MEMBERSHIP_OBJECTS
        }
        for node in ast.walk(tree):
            is_written = isinstance(getattr(node, "ctx", None), (ast.Store, ast.Del))
            is_changed = isinstance(node, ast.Attribute) and node.attr in CHANGES
            if not (is_written or is_changed) or isinstance(node, ast.Name):
                continue
            # `self._roster = ...` is a reference; `self._roster.team = ...` is a write.
            below = getattr(node, "value", None)
            if is_changed or isinstance(node, ast.Subscript):
                below = getattr(below, "value", None)
            names = {getattr(each, "attr", getattr(each, "id", "")) for each in chain(below)}
            if {name.strip("_") for name in names} & owners:
                wrong.append(f"{path}:{node.lineno}: {ast.unparse(node)}")  # type: ignore[attr-defined]
    return wrong


def pairs_of(node: ast.Assign) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Each target of an assignment with its value."""
    for target in node.targets:
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            yield from zip(target.elts, node.value.elts, strict=True)
        else:
            yield target, node.value


def chain(node: ast.AST | None) -> Iterator[ast.AST]:
    """An expression such as a.b[0].c, and what it is a part of: a.b[0], a.b, a."""
    while node is not None:
        yield node
        node = getattr(node, "value", None)


def classes(sources: Sources) -> list[str]:
    """No class of job/ is large: its attributes are those that its own methods and body assign."""
    wrong = []
    for path, text in sources.items():
        for node in ast.walk(parse(text)) if path.startswith("job/") else ():
            if not isinstance(node, ast.ClassDef):
                continue
            methods = [each for each in node.body if isinstance(each, ast.FunctionDef)]
            attributes = {
                each.attr
                for each in ast.walk(node)
                if isinstance(each, ast.Attribute)
                and isinstance(each.ctx, ast.Store)
                and ast.unparse(each.value) == "self"
            } | {
                ast.unparse(target)
                for each in node.body
                if isinstance(each, (ast.Assign, ast.AnnAssign))
                for target in (each.targets if isinstance(each, ast.Assign) else [each.target])
            }
            numbers = {
                "lines": (node.end_lineno or 0) - node.lineno + 1,
                "methods": len(methods),
                "attributes": len(attributes),
            }
            wrong += [
                f"{path}:{node.lineno}: {node.name} has {number} {what}"
                for what, number in numbers.items()
                if number > MOST_OF_A_CLASS[what] and node.name not in LARGE
            ]
    return wrong


def docstrings(sources: Sources) -> list[str]:
    """A docstring begins with what the thing does or is, not with the word of a question."""
    return [
        f"{path}:{node.lineno}: {found[1]}"
        for path, text in sources.items()
        for node in ast.walk(parse(text))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if (found := QUESTION.match(str(node.value.value)))
    ]


# --------------------------------------------------------------------------------------------------
# The rules, and their controls


RULES = [
    import_order,
    circles,
    one_way,
    effects,
    sleeps,
    lengths,
    divided,
    launchers_by_name,
    inquiries_by_name,
    rank_kinds,
    membership_elsewhere,
    membership_acts,
    membership_written,
    classes,
    docstrings,
]


@pytest.mark.promise("import rules, effects and lengths hold")
@pytest.mark.parametrize("rule", RULES)
def test_the_rule_holds(rule: Rule, sources: Sources) -> None:
    assert len(sources) > 20
    assert rule(sources) == []


def test_every_package_is_on_a_floor(sources: Sources) -> None:
    assert {module_of(path)[0] for path in sources if module_of(path)} == {*ORDER}


def test_the_packages_at_the_top_have_few_imports(sources: Sources) -> None:
    """Of one package by another; a reader has to hold all of them at once."""
    found = {
        (module_of(path)[0], name.split(".")[1])
        for path, _, name in imports(sources)
        if module_of(path) and name.startswith("entrypoint.")
    }
    between = {(mine, theirs) for mine, theirs in found if mine != theirs and theirs in ORDER}
    assert len(between) <= MOST_IMPORTS, sorted(between)


FUNCTION = "def f():\n    "
INIT = "class Spec:\n    def __init__(self, a, b, c, d, e, f{}): ..."
BREACHES = [
    (import_order, "base/model.py", "from entrypoint.spec import load", "1: base may not use spec"),
    (import_order, "base/errors.py", "import entrypoint.plan", "1: base may not use plan"),
    (import_order, "spec.py", "from entrypoint import cli", "1: spec may not use cli"),
    (import_order, "plan/a.py", f"{FUNCTION}from entrypoint import node", "2: plan may not use node"),
    (import_order, "node.py", "from entrypoint.features.record import x", "1: node may not use features"),
    (import_order, "plan/a.py", "from entrypoint.tools import local", "1: plan may not use tools"),
    (import_order, "features/a/b.py", "from entrypoint.features.c import x", "1: a feature may not use c"),
    (import_order, "launchers/a.py", "from entrypoint.launchers.b import x", "1: an adapter may not use launchers.b"),
    (import_order, "launchers/a.py", "from entrypoint.devices import _gpu", "1: an adapter may not use devices._gpu"),
    (import_order, "tools/deploy/a.py", "from entrypoint.tools.deploy.b import x", "1: an adapter may not use tools.deploy"),
    (import_order, "spec.py", "from entrypoint.unlisted import x", "1: unlisted is on no floor"),
    (import_order, "unlisted.py", "from entrypoint.base.model import Facts", "1: unlisted is on no floor"),
    (import_order, "spec.py", "from . import run", "1: ..run: write imports in full"),
    (one_way, "plan/members.py", "from entrypoint.plan.env import x", "1: members may not use env"),
    (one_way, "plan/env.py", "from entrypoint.plan import settle", "1: env may not use settle"),
    (one_way, "plan/unlisted.py", "from entrypoint.plan.limits import x", "1: unlisted may not use limits"),
    (effects, "spec.py", "import subprocess", "1: subprocess"),
    (effects, "platforms/local.py", "from os.path import join", "1: os"),
    (effects, "plan/__init__.py", f"{FUNCTION}import time as clock", "2: time"),
    (sleeps, "run/node.py", "import time\ntime.sleep(1)", "2: time.sleep"),
    (sleeps, "run/node.py", "from time import sleep as rest", "1: time.sleep"),
    (lengths, "spec.py", "x = 1\n" * 601, " 601 lines"),
    (divided, "spec.py", "def load():\n" + "    x = 1\n" * 45, "1: load has 46 lines"),
    (divided, "spec.py", INIT.format(", g"), "2: a constructor with 7 arguments"),
    (divided, "spec.py", "self.a, b, self.c = 1, 2, 3", "1: 2 attributes on one line"),
    (launchers_by_name, "spec.py", 'if launcher == "mpirun": ...', "1: mpirun"),
    (launchers_by_name, "spec.py", 'if launcher in ("x", "hydra"): ...', "1: hydra"),
    (inquiries_by_name, "cli/a.py", "self.plan.inquiry.name == 'x'", "1: self.plan.inquiry.name == 'x'"),
    (rank_kinds, "job/a.py", "x = rankkind.UNDER_DAEMONS", "1: UNDER_DAEMONS"),
    (rank_kinds, "plan/a.py", "from entrypoint.base.rankkind import AS_PROGRAMS", "1: AS_PROGRAMS"),
    (rank_kinds, "ranks/a.py", "kind = RankKind(in_programs=True)", "1: RankKind"),
    (rank_kinds, "job/a.py", "if launch.ranks.kind is kind: ...", "1: launch.ranks.kind is kind"),
    (rank_kinds, "job/a.py", 'launch.ranks.reports in ("a", "b")', "1: launch.ranks.reports in ('a', 'b')"),
    (membership_elsewhere, "job/leader.py", "if topology.spares: ...", "1: spares"),
    (membership_elsewhere, "job/state.py", "least = x\nmin_nodes = 2", "2: min_nodes"),
    (membership_elsewhere, "job/a.py", "make(gate=1)", "1: gate"),
    (membership_acts, "job/membership/a.py", "state.scheduler.now", "1: scheduler"),
    (membership_written, "job/ends.py", "self._membership.participants.failed = True", "1: self._membership.participants.failed"),
    (membership_written, "job/a.py", "self._quorum.has_name |= True", "1: self._quorum.has_name"),
    (membership_written, "job/a.py", "self._roster.awaited.discard(0)", "1: self._roster.awaited.discard"),
    (membership_written, "job/a.py", "del self.membership.roster.losses[0]", "1: self.membership.roster.losses[0]"),
    (membership_written, "job/a.py", "x, it = 1, self._participants\nit.awaited.add(1)", "2: it.awaited.add"),
    (membership_written, "node.py", "machine.membership.roster.team = x", "1: machine.membership.roster.team"),
    (classes, "job/a.py", "class A:\n" + "    x = 1\n" * 300, "1: A has 301 lines"),
    (classes, "job/a.py", "class A:\n" + "    def f(self): ...\n" * 26, "1: A has 26 methods"),
    (classes, "job/a.py", "class A:\n" + "".join(f"    x{n} = 1\n" for n in range(21)), "1: A has 21 attributes"),
    (docstrings, "spec.py", '"""What this is."""', "1: What"),
    (docstrings, "plan/a.py", 'def f():\n    """\n    Whether it ends."""', "2: Whether"),
    (docstrings, "job/a.py", 'class A:\n    """Who it is, once."""', "2: Who"),
    (docstrings, "job/a.py", 'x = 1\n"""How often."""', "2: How"),
]  # fmt: skip


@pytest.mark.control("import rules, effects and lengths hold")
@pytest.mark.parametrize(("rule", "path", "text", "breach"), BREACHES)
def test_a_breach_is_named(rule: Rule, path: str, text: str, breach: str) -> None:
    assert rule({path: text}) == [f"{path}:{breach}"]


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
    line = {
        "d.py": "import entrypoint.a",
        "e.py": "import entrypoint.d",
    }  # needs it, and is in none
    assert [breach.partition(":")[0] for breach in circles({**wrong, **line})] == parts


@pytest.mark.parametrize(
    ("rule", "path", "text"),
    [
        (import_order, "launchers/a.py", "from entrypoint.launchers._torch import common"),
        (import_order, "launchers/a.py", "from entrypoint import __version__"),
        (import_order, "tools/deploy/a.py", "from entrypoint.tools.deploy._kinds import x"),
        (import_order, "features/a/b.py", "from entrypoint.features.a.c import x"),
        (import_order, "plan/topology.py", "from entrypoint.spec import check_host"),
        (one_way, "plan/env.py", "from entrypoint.plan.cpus import share"),
        (one_way, "plan/env.py", "from entrypoint.plan import cpus"),
        (one_way, "plan/__init__.py", "from entrypoint.plan.notes import later"),
        (one_way, "ranks/hooks.py", "from entrypoint.plan import settle"),
        (effects, "system/keys.py", "import os, time"),
        (effects, "spec.py", "import osmosis"),
        (lengths, "spec.py", "x = 1\n" * 600),
        (divided, "spec.py", "def load():\n" + "    x = 1\n" * 44),
        (divided, "spec.py", INIT.format("")),
        (launchers_by_name, "launchers/a.py", 'if launcher == "mpirun": ...'),
        (launchers_by_name, "spec.py", 'default = "mpirun"'),
        (rank_kinds, "base/model.py", "kind: RankKind = AS_PROGRAMS"),
        (rank_kinds, "launchers/_mpi.py", "LaunchRanks(kind=UNDER_DAEMONS)"),
        (rank_kinds, "job/a.py", "if launch.ranks.kind.by_daemons or launch.ranks.count == 2: ..."),
        (membership_elsewhere, "job/membership/__init__.py", "topology.spares"),
        (membership_elsewhere, "plan/team.py", "topology.spares"),
        (membership_acts, "job/rollcall.py", "state.scheduler.now"),
        (membership_written, "job/a.py", "self._quorum = membership.quorum"),
        (membership_written, "job/a.py", "self._participants.ended(1)\nrows.pop(roster.here)"),
        (membership_written, "job/membership/a.py", "self._roster.team = x"),
        (membership_elsewhere, "job/messages.py", 'x = "spares"  # of a gate'),
        (docstrings, "spec.py", '"""Whatever it is: what it does."""\nx = "What"'),
    ],
)
def test_what_is_allowed_is_not_named(rule: Rule, path: str, text: str) -> None:
    assert rule({path: text}) == []
