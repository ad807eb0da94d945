"""The rules for the layout of the package: each reads sources and gives one line for each breach."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from shlex import split

from entrypoint.base import rankkind
from entrypoint.base.rankkind import RankKind
from tests import TREE

PACKAGE = TREE / "entrypoint"

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
    "forms limits numbering callin topology members cpus launch env files notes ports"
)
# Words that begin a question, and no docstring.
QUESTION = re.compile(r"\s*(What|Whether|Who|Whose|Why|How|Where|When|Which)\b")
# Names that only job/membership/ knows of those in job/.
MEMBERSHIP = {"spares", "min_nodes", "gate"}
# The objects that it has, and the methods that change a collection in place.
MEMBERSHIP_OBJECTS = {"membership", "roster", "quorum", "participants", "earlier"}
CHANGES = set(split("add append clear discard extend insert pop popitem remove setdefault update"))
MOST_OF_A_CLASS = {"lines": 300, "methods": 25, "attributes": 20}
# The classes that are larger, with their figures, which may only fall.
LARGE: Mapping[str, Mapping[str, int]] = {
    "base/model.py Topology": {"attributes": 21},
    "base/phases.py Phase": {"attributes": 24},  # one for each phase
    "job/worker.py Worker": {"lines": 355, "methods": 35},
    "node.py Loop": {"methods": 26, "attributes": 22},
    "output/log.py Logger": {"attributes": 21},
    "ranks/keeper.py Keeper": {"lines": 413, "methods": 28},
    "spec/jobspec.py JobSpec": {"attributes": 41},  # one for each field
}
# Where a host name is meant as such: what DNS was asked for, or an entry of a launcher's file; in
# cli/run.py the prefix `job`, whose form is documented.
WITH_HOSTS = {
    "cli/run.py", "features/health/probes/network.py", "job/rollcall.py", "job/worker.py",
    "launchers/hydra.py", "plan/topology.py", "system/keys.py",
}  # fmt: skip
# What waits in tests -> the position of its seconds; how many a look may take, and a hang has.
DEADLINES = {"captured": 9, "run": 9, "communicate": 1, "wait": 0, "wait_for": 1, "until": 2}
POLL, HANG = 0.5, 120
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)

Sources = Mapping[str, str]  # path in the package, such as system/keys.py -> its text
Rule = Callable[[Sources], list[str]]


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
            if isinstance(node, FUNCTIONS):
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


def short_deadlines(sources: Sources) -> list[str]:
    """A test ends by a deadline only if something hangs, unless it expects just that."""
    wrong = []
    for path, text in sources.items():
        expected: set[ast.AST] = set()
        for node in ast.walk(parse(text)):
            if isinstance(node, ast.With) and "pytest.raises" in ast.unparse(node.items[0]):
                expected |= {*ast.walk(node)}
        for call in {*ast.walk(parse(text))} - expected:
            if not isinstance(call, ast.Call):
                continue
            name = ast.unparse(call.func).rpartition(".")[2]
            given = [each.value for each in call.keywords if each.arg in ("timeout", "seconds")]
            given += call.args[DEADLINES.get(name, 9) :]
            for each in given if name in DEADLINES else ():
                value = getattr(each, "value", None)
                if isinstance(value, (int, float)) and POLL < value < HANG:
                    wrong.append(f"{path}:{call.lineno}: {name} has {value} seconds")
    return wrong


def sizes(node: ast.ClassDef) -> dict[str, int]:
    """Return the lines, methods and attributes of a class; its attributes are those that its own
    methods and body assign."""
    assigned = [each for each in ast.walk(node) if isinstance(each, ast.Attribute)]
    attributes = {
        each.attr
        for each in assigned
        if isinstance(each.ctx, ast.Store) and ast.unparse(each.value) == "self"
    } | {
        ast.unparse(target)
        for each in node.body
        if isinstance(each, (ast.Assign, ast.AnnAssign))
        for target in (each.targets if isinstance(each, ast.Assign) else [each.target])
    }
    methods = [each for each in node.body if isinstance(each, FUNCTIONS)]
    lines = (node.end_lineno or 0) - node.lineno + 1
    return {"lines": lines, "methods": len(methods), "attributes": len(attributes)}


def imported_tests(sources: Sources) -> list[str]:
    """A file with tests imports no other one: what both need is in a module of its own."""
    return [
        f"{path}:{line}: {name}"
        for path, line, name in imports(sources)
        if re.match(r"tests\..*\btest_", name)
    ]


def classes(sources: Sources, large: Mapping[str, Mapping[str, int]] = LARGE) -> list[str]:
    """No class is large, nor is one of the exceptions larger than its figures."""
    return [
        f"{path}:{node.lineno}: {node.name} has {number} {kind}"
        for path, text in sources.items()
        for node in ast.walk(parse(text))
        if isinstance(node, ast.ClassDef)
        for kind, number in sizes(node).items()
        if number > large.get(f"{path} {node.name}", {}).get(kind, MOST_OF_A_CLASS[kind])
    ]


def docstrings(sources: Sources) -> list[str]:
    """A docstring begins with what the thing does or is, not with the word of a question."""
    return [
        f"{path}:{node.lineno}: {found[1]}"
        for path, text in sources.items()
        for node in ast.walk(parse(text))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if (found := QUESTION.match(str(node.value.value)))
    ]


def hosts_in_texts(sources: Sources) -> list[str]:
    """A message names a node by its name, not by its host."""
    return [
        f"{path}:{number}: {host[0]}"
        for path, text in sources.items()
        for number, line in enumerate(text.splitlines(), 1)
        if path not in WITH_HOSTS and (host := re.search(r"\{[\w.\[\]]*\.host\}", line))
    ]


_RULES = [import_order, circles, one_way, effects, sleeps, lengths, divided, launchers_by_name]
_RULES += [inquiries_by_name, rank_kinds, membership_elsewhere, membership_acts, membership_written]
RULES: Mapping[str, Rule] = {
    rule.__name__: rule for rule in [*_RULES, classes, docstrings, hosts_in_texts]
}
