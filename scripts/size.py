#!/usr/bin/env python3
"""size.py [TREE] - how large the toolkit is, by what a reader or a running job has of it.

    TREE    another checkout, such as one of an earlier commit (default: this one)

Tokens are names, numbers, texts and operators, so comments and the way of breaking lines do not
count. `loads` are the lines of entrypoint/ that a process of a job of two nodes has imported when
it ends well; it is measured by such a job under mpirun on this machine.
"""

import argparse
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
COUNTED = {tokenize.OP, tokenize.NAME, tokenize.STRING, tokenize.NUMBER}
# Writes what is loaded when the command ends, which is by os._exit.
TRACED = """
import os, sys
leave = os._exit
def traced(status):
    files = {getattr(module, "__file__", None) or "" for module in sys.modules.values()}
    with open(os.environ["LOADED"], "w") as file:
        file.write("\\n".join(files))
    leave(status)
os._exit = traced
from entrypoint.cli import script
script()
"""
COUNTS = """
import argparse, json
from entrypoint.cli.parser import parser
from entrypoint.spec import table
try:
    from entrypoint.features import explain
except ImportError:  # of an earlier tree
    from entrypoint import explain
made = parser()
subparsers = next(each for each in made._actions if isinstance(each, argparse._SubParsersAction))
commands = {id(command) for command in subparsers.choices.values()}
print(json.dumps({"settings": len(table.fields()), "message ids": len(explain.messages()),
                  "commands": len(commands)}))
"""


def files(tree: Path, *places: str) -> list[Path]:
    """Return the tree's own files below these places."""
    words = ["git", "ls-files", "--", *places]
    listed = subprocess.run(words, cwd=tree, capture_output=True, text=True, check=True).stdout
    return [tree / name for name in listed.splitlines() if (tree / name).is_file()]


def lines(paths: Iterable[Path]) -> int:
    """Return the number of lines of all these files."""
    return sum(len(path.read_text(errors="replace").splitlines()) for path in paths)


def tokens(path: Path) -> int:
    """Return the number of names, numbers, texts and operators of a module."""
    found = tokenize.generate_tokens(io.StringIO(path.read_text()).readline)
    return sum(token.type in COUNTED for token in found)


def packages(tree: Path) -> Iterator[tuple[str, int, int, int]]:
    """Yield modules, lines and tokens of each package of entrypoint/, then of all."""
    modules = [path for path in files(tree, "entrypoint") if path.suffix == ".py"]
    of_package: dict[str, list[Path]] = {}
    for path in modules:
        parts = path.relative_to(tree).parts
        depth = 3 if parts[1] in ("features", "tools") else 2
        name = "/".join(parts[1:depth])
        of_package.setdefault(f"{name}/" if len(parts) > 2 else "(top)", []).append(path)
    by_size = sorted(of_package.items(), key=lambda item: -lines(item[1]))
    for name, paths in [*by_size, ("entrypoint/", modules)]:
        yield name, len(paths), lines(paths), sum(map(tokens, paths))


def loads(tree: Path) -> list[int]:
    """Return the lines of entrypoint/ that the leader and a worker load."""
    sys.path.insert(0, str(HERE))
    from tests.cluster import Cluster

    with tempfile.TemporaryDirectory() as name:
        job = Cluster(Path(name), 2)
        command = (sys.executable, "-c", TRACED, "run", "--launcher", "mpirun", "--", "true")
        for rank in (1, 0):
            env = {"PYTHONPATH": str(tree), "LOADED": str(job.folder / f"loaded-{rank}")}
            job.start(rank, argv=command, env=env)
        ended = job.ends()
        assert ended == {0: 0, 1: 0}, job.both()
        loaded = [(job.folder / f"loaded-{rank}").read_text().splitlines() for rank in (0, 1)]
        job.close()
    own = f"{tree}/entrypoint/"
    return [lines(Path(file) for file in files if file.startswith(own)) for files in loaded]


def counts(tree: Path) -> dict[str, int]:
    """Return the numbers that may only fall: settings, message ids, commands, make targets."""
    env = {**os.environ, "PYTHONPATH": str(tree)}
    command = [sys.executable, "-c", COUNTS]
    found = subprocess.run(command, env=env, cwd="/", capture_output=True, check=True).stdout
    targets = re.findall(r"^\.PHONY: (.+)$", (tree / "Makefile").read_text(), re.MULTILINE)
    tests = [path for path in files(tree, "tests") if path.suffix == ".py"]
    return {
        **json.loads(found),
        "make targets": len(" ".join(targets).split()),
        "lines of tests/*.py": lines(tests),
        "lines of scripts/": lines(
            path for path in files(tree, "scripts") if path.suffix != ".lock"
        ),
        "examples": len({path.relative_to(tree).parts[1] for path in files(tree, "examples")}),
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="make size", description="Show how large all of it is.")
    parser.add_argument("tree", nargs="?", type=Path, default=HERE)
    tree = parser.parse_args().tree.resolve()
    print(f"{'package':<18} {'modules':>8} {'lines':>8} {'tokens':>9}")
    for name, number, length, size in packages(tree):
        print(f"{name:<18} {number:>8} {length:>8,} {size:>9,}")
    print()
    leader, worker = loads(tree)
    for what, value in {"a leader loads": leader, "a worker loads": worker, **counts(tree)}.items():
        print(f"{what:<24} {value:>8,}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
