#!/usr/bin/env python3
"""mutants.py [--sample N] [--seed N] - the mutation score of entrypoint/spec, plan and job, and
which changes no test noticed.

mutmut changes one place at a time, such as `<` into `<=`, and runs the unit tests and simulations
that reach it (`[tool.mutmut]` in pyproject.toml). It works on a copy, in build/mutants. Only
changes of what the program does are drawn, by a seed: a text that reads differently is held by the
golden files and by test_explain.py.

    --sample N   so many (default: 600); 0: all, which takes hours
    --seed N     other ones (default: 27)

tests/survivors.yaml has the survivors that are known. The status is 1 if there is another one.
"""

import argparse
import ast
import hashlib
import json
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import yaml

TREE = Path(__file__).resolve().parent.parent
COPY = TREE / "build/mutants"
EXPLAINED = TREE / "tests/survivors.yaml"
PACKAGES = ("spec", "plan", "job")
_KINDS: dict[int | None, str] = {0: "survived", 33: "untested"}
MUTMUT = (sys.executable, "-m", "mutmut")


def say(text: str) -> None:
    print(f"[mutants] {text}", file=sys.stderr, flush=True)


def copy() -> None:
    """Make the copy anew, without what git and other programs keep in the tree."""
    shutil.rmtree(COPY, ignore_errors=True)
    others = shutil.ignore_patterns(".git", "build", "__pycache__", ".*_cache", ".hypothesis")
    shutil.copytree(TREE, COPY, ignore=others)


def mutmut(*words: str) -> str:
    """Run mutmut in the copy, and return what it prints. Its status does not tell a survivor from a
    failure of its own: `verdicts` has all that were tried."""
    done = subprocess.run([*MUTMUT, *words], cwd=COPY, capture_output=True, text=True, check=False)
    (COPY / "mutmut.log").write_text(done.stdout + done.stderr)
    return done.stdout


def functions(file: Path) -> dict[str, str]:
    """Return the code of each function that mutmut wrote, without its name and texts, by the name
    that mutmut gives it."""
    module = ".".join(file.relative_to(COPY / "mutants").with_suffix("").parts)
    found = {}
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and "__mutmut_" in node.name:
            name, node.name = f"{module.removesuffix('.__init__')}.{node.name}", ""
            for each in ast.walk(node):
                if isinstance(each, ast.Constant) and isinstance(each.value, str):
                    each.value = ""
            found[name] = ast.dump(node)
    return found


def drawn(sample: int, seed: int) -> list[str]:
    """Return the names of so many mutants that change more than a text; of all, if 0.

    Each has its own lot, so that an edit of one function leaves the draw of all others as it is.
    """
    lots: dict[str, str] = {}
    for package in PACKAGES:
        for file in (COPY / "mutants/entrypoint" / package).rglob("*.py"):
            found = functions(file)
            for name, code in found.items():
                stem, _, number = name.rpartition("__mutmut_")
                if number.isdecimal() and code != found[f"{stem}__mutmut_orig"]:
                    function = stem.rpartition(".")[2]
                    lot = hashlib.sha256(f"{seed} {function} {code}".encode())
                    lots[name] = lot.hexdigest()
    say(f"{len(lots)} changes of what the program does")
    return sorted(sorted(lots, key=lots.__getitem__)[: sample or None])


def verdicts() -> dict[str, int | None]:
    """Return the exit status of the tests for each mutant: 0 is a survivor, 33 was reached by no
    test, None was not tried; all others are killed, those that ran out of time too."""
    found: dict[str, int | None] = {}
    for file in (COPY / "mutants/entrypoint").rglob("*.meta"):
        found |= json.loads(file.read_text())["exit_code_by_key"]
    return found


def change(name: str) -> dict[str, str]:
    """Return a mutant as tests/survivors.yaml names it: the function, the lines before and
    after."""
    lines = mutmut("show", name).splitlines()
    module, _, function = name.rpartition("__mutmut_")[0].rpartition(".")
    parts = function.removeprefix("x_").removeprefix("xǁ").replace("ǁ", ".")
    old, new = (
        " ".join(line[1:].strip() for line in lines if line[:1] == mark and line[1:3] != mark * 2)
        for mark in "-+"
    )
    return {"in": f"{module.removeprefix('entrypoint.')}: {parts}", "old": old, "new": new}


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/test mutants", description="Score the tests.")
    parser.add_argument("--sample", type=int, default=600)
    parser.add_argument("--seed", type=int, default=27)
    parser.add_argument("--children", type=int, default=1, help="mutants at the same time")
    options = parser.parse_args()
    copy()
    say("writing the mutants, and looking which test reaches which")
    mutmut("run", "--max-children", "1", "entrypoint.job.state.none*")
    names = drawn(options.sample, options.seed)
    say(f"trying {len(names)} of them, seed {options.seed}")
    mutmut("run", "--max-children", str(options.children), *names)
    found = verdicts()
    if untried := [name for name in names if found.get(name) is None]:
        log = COPY / "mutmut.log"
        say(f"not all were tried | {len(untried)} of {len(names)} | see the end of {log}")
        return 1
    rows: list[dict[str, str]] = yaml.safe_load(EXPLAINED.read_text()) or []
    known = {tuple(row[key] for key in ("in", "old", "new")) for row in rows}
    left = [change(name) for name in names if found[name] in (0, 33)]
    unknown = [row for row in left if tuple(row.values()) not in known]
    kinds = Counter(_KINDS.get(found[name], "killed") for name in names)
    score = kinds["killed"] / max(1, len(names))
    print(f"score {score:.1%}: {dict(kinds)}; {len(unknown)} are new")
    if unknown:
        print(yaml.safe_dump(unknown, sort_keys=False, width=200, allow_unicode=True))
    return 1 if unknown else 0


if __name__ == "__main__":
    sys.exit(main())
