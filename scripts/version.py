#!/usr/bin/env python3
"""version.py - print the version of what is built from this tree, by its git tag.

    v1.2.3 on this commit, nothing changed    1.2.3
    v1.2.3 on an earlier one                  1.2.4.dev5+g0123456789, five commits later
    no tag                                    0.1.0.dev0+g0123456789
    uncommitted changes                       .dirty after that
    a source archive, by scripts/wheel        the version that it was made as
    no git                                    0.0.0.dev0

hatchling asks this file for the version and writes it into the wheel as `__version__`, so that a
start of the command reads no file for it. An image's build has no git: ENTRYPOINT_VERSION is its
version.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

TREE = Path(__file__).resolve().parent.parent
DESCRIBED = re.compile(
    r"(?:v(?P<tag>\d+\.\d+\.\d+)-(?P<commits>\d+)-)?g?(?P<commit>[0-9a-f]+)(?P<dirty>\.dirty)?"
)


def version(tree: Path = TREE) -> str:
    """Return the version of the tree, as PEP 440 writes it."""
    if given := os.environ.get("ENTRYPOINT_VERSION"):
        return given
    made = tree / "PKG-INFO"
    if made.exists():
        lines = made.read_text().splitlines()
        return next(line[9:] for line in lines if line.startswith("Version: "))
    # its own repository, not one that it lies in
    if not (tree / ".git").exists() or not shutil.which("git"):
        return named("")
    words = "git describe --tags --match v[0-9]* --long --always --abbrev=10 --dirty=.dirty"
    told = subprocess.run(words.split(), cwd=tree, capture_output=True, text=True, check=False)
    return named(told.stdout.strip())


def named(described: str) -> str:
    """Return the version for what `git describe --long` says, "" where git says nothing."""
    found = DESCRIBED.fullmatch(described)
    if not found:
        return "0.0.0.dev0"
    tag, commits, commit, dirty = found.group("tag", "commits", "commit", "dirty")
    if tag and commits == "0" and not dirty:
        return tag
    local = f"+g{commit}{dirty or ''}"
    if not tag:
        return f"0.1.0.dev0{local}"
    major, minor, patch = tag.split(".")
    return f"{major}.{minor}.{int(patch) + 1}.dev{commits}{local}"


if __name__ == "__main__":
    print(version())
