"""CONTRIBUTING.md's "Add an engine", done as it stands there: the tests take it, and two nodes run under it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.cluster import Cluster

TREE = Path(__file__).resolve().parents[2]
STEP = re.compile(r"^\d+\. `(\S+)`.*?\n\n   ```\w+\n(.*?)\n   ```$", re.M | re.S)


def do_as_it_says(tree: Path) -> list[str]:
    """The files of the section, written into a copy of this tree."""
    for name in ("entrypoint", "templates", "tests", "docs", "examples"):
        shutil.copytree(TREE / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "CONTRIBUTING.md"):
        shutil.copy(TREE / name, tree)
    text = (TREE / "CONTRIBUTING.md").read_text()
    section = text[text.index("## Add an engine") :].split("\n## ")[0]
    written = []
    for path, block in STEP.findall(section):
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).write_text(re.sub(r"^   ", "", block, flags=re.M) + "\n")
        written.append(path)
    for node in ("node-0", "node-1"):
        (tree / "tests/launchers/beacon/two" / node).mkdir()
    return written


def test_an_engine_is_one_file_one_template_and_one_case_folder(
    tmp_path: Path, cluster: Callable[..., Cluster]
) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    assert [path.rpartition("/")[2] for path in do_as_it_says(tree)] == [
        "beacon.py",
        "beacon.sh.j2",
        "facts.yaml",
        "job.yaml",
    ]
    env = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    page = tree / "docs/reference/spec.md"
    for words, out in (("tests.golden", os.devnull), ("entrypoint.spec.reference", page)):  # as `make golden`
        with open(out, "w") as file:
            subprocess.run([sys.executable, "-m", words], cwd=tree, env=env, check=True, stdout=file)
    made = (tree / "tests/launchers/beacon/two/node-1/beacon.sh").read_text()
    assert "export BEACON_AT=node-0 BEACON_NODE=1 BEACON_NODES=2\n" in made
    wanted = ["tests/unit/test_golden.py", "tests/unit/test_registry.py", "tests/unit/test_rooms.py"]
    tested = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *wanted],
        cwd=tree, env=env, capture_output=True, text=True,
    )  # fmt: skip
    assert tested.returncode == 0, tested.stdout
    assert "beacon/two/node-0" in subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--collect-only", wanted[0]],
        cwd=tree, env=env, capture_output=True, text=True,
    ).stdout  # fmt: skip

    job = cluster(2)
    fails = "{ until [ -s out-0 ]; do sleep 0.05; done; exit 7; }"
    program = f'echo "$BEACON_AT $BEACON_NODE $BEACON_NODES"; [ $BEACON_NODE = 0 ] || {fails}; exec sleep 600'
    argv = (sys.executable, "-m", "entrypoint", "run", "--launcher", "beacon", "--", "sh", "-c", program)
    for rank in range(2):
        job.start(rank, argv=argv, env={"PYTHONPATH": str(tree)})
    assert job.ends() == {0: 7, 1: 7}, job.both()
    assert [job.out(rank) for rank in range(2)] == ["node-0 0 2\n", "node-0 1 2\n"]
