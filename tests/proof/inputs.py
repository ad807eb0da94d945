"""What the outcome of a test file depends on, found in its text: the modules that it imports or
starts, the adapters and commands that it names, and the folders and pages that it names.

Where the text is not clear, more is taken than needed: a word that happens to be a launcher's name
costs a run, and never hides one. An adapter that nothing names can still spoil a boot by what the
registry asks of all of them (`ALSO`, `MARKS`, `matches`); tests/unit/test_registry.py and
tests/unit/test_detection.py, which depend on all adapters, show that it does not.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import re
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

from entrypoint.base.registry import PACKAGES
from tests import TREE

# kinds of adapters -> the folder of their modules
KINDS = {kind: f"{package.replace('.', '/')}/" for kind, package in PACKAGES.items()}
# What a start of the command imports, whatever it is told to do.
COMMAND = (
    "entrypoint/__main__.py",
    "entrypoint/cli/__init__.py",
    "entrypoint/cli/run.py",
    *(f"{folder}__init__.py" for folder in KINDS.values()),
)
# Folders whose tests cannot start a process: tests/plugin/pure.py, and the simulator.
PURE = ("tests/unit/", "tests/simulation/", "tests/failures/")
# What images are made of, besides the toolkit.
RECIPES = ("Dockerfile", "scripts/image/", "scripts/build-image", "scripts/dev/base-image", ".dockerignore")  # fmt: skip
ALWAYS = ("pyproject.toml", "tests/conftest.py")
QUOTED = re.compile(r"""["'](\w+)["'/]""")  # a word, or the first part of a path
# A place in the tree, as far as it is written out.
PLACES = re.compile(r"(?<![\w.-])(?:docs|scripts|examples|templates|tests|\.github|\.ci)/[\w./-]*")
IMAGE = re.compile(r"entrypoint-\w+:\w+")  # its name may be a launcher's
_FIXTURE_CALLS = (".usefixtures", ".getfixturevalue")
FOLDERS = ("docs", "scripts", "examples", "templates", ".github", ".ci")


def _arguments(function: ast.FunctionDef) -> list[str]:
    """Return the names of what pytest would give to a test or fixture."""
    return [argument.arg for argument in (*function.args.args, *function.args.kwonlyargs)]


def _fixture_names(module: ast.Module) -> Iterator[str]:
    """Yield what may be a fixture's name: arguments of tests and fixtures, and names in calls of
    usefixtures and getfixturevalue."""
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef):
            is_fixture = "fixture" in "".join(map(ast.unparse, node.decorator_list))
            if is_fixture or node.name.startswith("test_"):
                yield from _arguments(node)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(_FIXTURE_CALLS):
            constants = (each for each in node.args if isinstance(each, ast.Constant))
            yield from (str(each.value) for each in constants)


class Inputs:
    """The files of a tree, and which of them each test file depends on.

    `changes` maps paths to other contents than they have, for tests of this class.
    """

    def __init__(self, tree: Path = TREE, changes: dict[str, bytes] | None = None) -> None:
        listed = subprocess.run(
            [tree / "scripts/dev/files"], stdout=subprocess.PIPE, check=True
        ).stdout.decode()
        self.tree = tree
        self.changes = changes or {}
        self.paths = sorted(path for path in listed.split("\0") if (tree / path).is_file())
        self._known = frozenset(self.paths)
        self._adapters = {kind: self._modules(folder) for kind, folder in KINDS.items()}
        self._commands = self._modules("entrypoint/cli/")

    def test_files(self) -> list[str]:
        """Return all files with tests."""
        return [path for path in self.paths if re.fullmatch(r"tests/.*/test_\w+\.py", path)]

    @functools.cache  # noqa: B019 - one for each run
    def digest(self, path: str) -> str:
        """Return the SHA-256 of a file's contents."""
        return hashlib.sha256(self._bytes(path)).hexdigest()

    def key(self, paths: Iterable[str]) -> str:
        """Return a name for the contents of these files."""
        lines = (f"{path} {self.digest(path)}\n" for path in sorted(paths))
        return hashlib.sha256("".join(lines).encode()).hexdigest()[:16]

    def below(self, *starts: str) -> set[str]:
        """Return the files whose paths start with one of these."""
        return {path for path in self.paths if path.startswith(starts)}

    def of(self, test: str) -> set[str]:
        """Return the paths that a test file, or another module, depends on; itself is one."""
        helpers = self.closure([test, *self._fixtures(test)], "tests/")
        text = "\n".join(self._text(path) for path in sorted(helpers))
        words = set(re.findall(r"\w+", IMAGE.sub("", text)))
        quoted = set(QUOTED.findall(text))
        if "textual" in words:  # it reads the tree as text
            return set(self.paths)
        roots = {path for helper in helpers for path in self._imports(helper)}
        if not test.startswith(PURE):
            roots |= {*COMMAND, *(path for name, path in self._commands.items() if name in words)}
            roots |= {self._adapters["launchers"]["plain"], self._adapters["devices"]["cpu"]}
        roots |= self._named(words, quoted)
        found = helpers | self.closure(roots, "entrypoint/")
        found |= self._data(found, quoted, text)
        folder = test.rpartition("/")[0] + "/"
        found |= {path for path in self.below(folder) if "/test_" not in path}
        if self.runs_images(found) and not test.startswith(PURE):
            found |= self.below(*RECIPES)
        return found | self.below(*ALWAYS)

    @staticmethod
    def runs_images(paths: Iterable[str]) -> bool:
        """Return whether what depends on these files runs containers."""
        return "tests/containers.py" in paths

    def _package(self, path: str) -> str:
        """Return the folder of the package that a file belongs to."""
        folder = path.rpartition("/")[0]
        while f"{folder}/__init__.py" not in self._known and folder:
            folder = folder.rpartition("/")[0]
        return folder

    def _modules(self, folder: str) -> dict[str, str]:
        """Return the public modules of a folder: name -> path."""
        names = re.compile(re.escape(folder) + r"([a-z0-9]\w*)\.py")
        return {match[1]: path for path in self.paths if (match := names.fullmatch(path))}

    def _bytes(self, path: str) -> bytes:
        return self.changes[path] if path in self.changes else (self.tree / path).read_bytes()

    @functools.cache  # noqa: B019 - one for each run
    def _text(self, path: str) -> str:
        return self._bytes(path).decode(errors="replace")

    @functools.cache  # noqa: B019 - one for each run
    def _ast(self, path: str) -> ast.Module:
        return ast.parse(self._text(path))

    def _path(self, module: str) -> str | None:
        """Return the path of a module of this tree, or None."""
        start = module.replace(".", "/")
        return next((p for p in (f"{start}.py", f"{start}/__init__.py") if p in self._known), None)

    @functools.cache  # noqa: B019 - one for each run
    def _imports(self, path: str) -> frozenset[str]:
        """Return the paths of what a module imports, wherever in it, or names in full to start it;
        with their packages."""
        names: set[str] = set()
        for node in ast.walk(self._ast(path)):
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                names |= set(re.findall(r"\b(?:entrypoint|tests)(?:\.\w+)+", node.value))
        every = {".".join(parts[:end]) for parts in (name.split(".") for name in names) for end in range(1, len(parts) + 1)}  # fmt: skip
        return frozenset(filter(None, map(self._path, every)))

    def closure(self, roots: Iterable[str], below: str) -> set[str]:
        """Return these modules and all that they import below a folder."""
        found: set[str] = set()
        waiting = [path for path in roots if path.startswith(below)]
        while waiting:
            path = waiting.pop()
            if path not in found and path.endswith(".py"):
                found.add(path)
                waiting += [each for each in self._imports(path) if each.startswith(below)]
        return found

    def _fixtures(self, test: str) -> Iterator[str]:
        """Yield the modules that the fixtures of a test file use, and those that these ask for, in
        the conftest.py files above it."""
        parts = test.split("/")[:-1]
        above = ["/".join([*parts[:end], "conftest.py"]) for end in range(1, len(parts) + 1)]
        conftests = [path for path in above if path in self._known]
        waiting = [*_fixture_names(self._ast(test))]
        seen: set[str] = set()
        while waiting:
            name = waiting.pop()
            if name in seen:
                continue
            seen.add(name)
            for conftest in conftests:
                for node in self._ast(conftest).body:
                    if isinstance(node, ast.FunctionDef) and node.name == name:
                        waiting += _arguments(node)
                        yield from self._homes(conftest, node)

    def _homes(self, module: str, function: ast.FunctionDef) -> set[str]:
        """Return the paths of the modules of this tree from which a function's names come."""
        homes = {
            alias.name: self._path(node.module)
            for node in ast.walk(self._ast(module))
            if isinstance(node, ast.ImportFrom) and node.module
            for alias in node.names
        }
        used = {each.id for each in ast.walk(function) if isinstance(each, ast.Name)}
        return {home for name in used if (home := homes.get(name))}

    def _named(self, words: set[str], quoted: set[str]) -> set[str]:
        """Return the adapters that these words name: one by one, by a variable that marks a
        platform, or all of a kind."""
        found = set()
        for kind, modules in self._adapters.items():
            found |= {path for name, path in modules.items() if kind in quoted or name in words}
        for name, variables in self._marks().items():
            if variables & words and name in self._adapters["platforms"]:
                found.add(self._adapters["platforms"][name])
        return found

    @functools.cache  # noqa: B019 - one for each run
    def _marks(self) -> dict[str, set[str]]:
        """Return the variables that mark each platform, as entrypoint/platforms/__init__.py has
        them."""
        found: dict[str, set[str]] = {}
        for node in ast.walk(self._ast("entrypoint/platforms/__init__.py")):
            if not isinstance(node, ast.Dict):
                continue
            for name, value in zip(node.keys, node.values, strict=True):
                if isinstance(name, ast.Constant) and isinstance(value, ast.Tuple):
                    words = {each.value for each in ast.walk(value) if isinstance(each, ast.Constant)}  # fmt: skip
                    found.setdefault(str(name.value), set()).update(map(str, words))
        return found

    def _data(self, modules: set[str], quoted: set[str], text: str) -> set[str]:
        """Return what is no module: data of the packages, templates of the adapters, and the
        files and folders that the text names."""
        packages = {path.rpartition("/")[0] for path in modules if path.startswith("entrypoint/")}
        parts = {part for path in modules for part in path.removesuffix(".py").split("/")}
        # Data of a package, also what is in folders that are none, such as another program's modules.
        found = {
            path
            for path in self.below("entrypoint/")
            if (package := self._package(path)) in packages
            and not (path.endswith(".py") and path.rpartition("/")[0] == package)
        }
        for path in self.below("templates/"):
            folder = path.split("/")[1]
            if folder in parts or folder == "ssh":
                found.add(path)
        for folder in FOLDERS:
            if folder in quoted:
                found |= self.below(f"{folder}/")
        for place in PLACES.findall(text):
            if place.strip("/") not in FOLDERS:
                found |= self.below(place.rstrip("./"))
        found |= {path for path in self.paths if "/" not in path and path in text}
        for folder in {path.split("/")[1] for path in self.below("tests/") if path.count("/") > 1}:
            if folder in quoted:
                found |= {path for path in self.below(f"tests/{folder}/") if "/test_" not in path}
        return found
