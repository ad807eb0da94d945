"""Mutations: wrong changes of the package that the simulation must find, or it proves nothing.

mutations.yaml lists them. Each is tried in a process of its own that imports a changed copy of the
package.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
MOST = 5000  # schedules within which each must be found


@dataclass(frozen=True)
class Mutation:
    """One change of one file: see the top of mutations.yaml."""

    name: str
    file: str
    old: str
    new: str
    shows: str
    seed: str = "0"

    def problem(self) -> str:
        """Return why the change cannot be made; "" if it can."""
        path = ROOT / self.file
        number = path.read_text(encoding="utf-8").count(self.old) if path.exists() else 0
        if number == 1:
            return ""
        return f"mutation {self.name!r} does not apply: {number} times in {self.file}: {self.old}"

    def apply(self, tree: Path) -> None:
        """Make the change in this copy of the tree. Raise ValueError if that cannot be done."""
        if problem := self.problem():
            raise ValueError(problem)
        path = tree / self.file
        text = path.read_text(encoding="utf-8")
        path.write_text(text.replace(self.old, self.new), encoding="utf-8")


_LIST = Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8")
MUTATIONS = {  # BaseLoader: every value is a text
    name: Mutation(name, **change) for name, change in yaml.load(_LIST, yaml.BaseLoader).items()
}


def simulate(mutation: Mutation, *arguments: str) -> tuple[int, str]:
    """Run `python -m tests.simulation ARGUMENTS` with the mutation. Return its status and
    output."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        shutil.copytree(
            ROOT / "entrypoint", copy / "entrypoint", ignore=shutil.ignore_patterns("__pycache__")
        )
        (copy / "templates").symlink_to(ROOT / "templates")  # which the package looks for beside it
        mutation.apply(copy)
        ran = subprocess.run(
            [sys.executable, "-m", "tests.simulation", *arguments],
            cwd=copy,
            env={**os.environ, "PYTHONPATH": f"{copy}{os.pathsep}{ROOT}"},
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
    return ran.returncode, ran.stdout


def find(mutation: Mutation, most: int = MOST) -> tuple[bool, str]:
    """Return whether one of so many schedules shows this mutation, and the first that does."""
    first = ("--seed", mutation.seed, "--schedules", str(most))
    status, output = simulate(mutation, "--find", mutation.shows, *first)
    return status == 0, output.strip() or "NOT FOUND: the simulation does not run"
