"""The built wheel in an environment of its own: all that differs between it and the checkout, which
is what is in it, and where that is found. What the command does, the other tests show."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from entrypoint.cli.parser import NAMES
from tests import TREE
from tests.command import captured, run

pytestmark = pytest.mark.timeout(600)  # the first one builds the wheel and its environment
SPECS = sorted(str(path.relative_to(TREE)) for path in TREE.glob("examples/*/*.yaml"))
DEPLOYED = ("compose", "kubernetes", "modelarts", "slurm")
ENV = {"PATH": os.environ["PATH"], "HOME": "/root", "LANG": "C.UTF-8"}


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel of this tree, and a file `command` with the path of `entrypoint` in
    an environment that has it, without extras. All processes of a run share it."""
    own = tmp_path_factory.getbasetemp()
    folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "wheel"
    folder.mkdir(exist_ok=True)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "command").exists():
            built = said("scripts/wheel").split()
            wheel = shutil.copy(next(path for path in built if path.endswith(".whl")), folder)
            venv = said("scripts/dev/venv", WHEEL=wheel).strip()
            (folder / "command").write_text(f"{venv}/bin/entrypoint")
    return folder


@pytest.fixture(scope="session")
def wheel(made: Path) -> Path:
    return next(made.glob("*.whl"))


@pytest.fixture(scope="session")
def command(made: Path) -> Path:
    return Path((made / "command").read_text())


def said(script: str, **env: str) -> str:
    return captured([TREE / script], env={**os.environ, **env}, check=True).stdout


def installed(command: Path, cwd: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return captured([command, *words], cwd=cwd, env=ENV)


def plain(done: subprocess.CompletedProcess[str]) -> tuple[int, str, str]:
    """Status, stdout and stderr, without what has to differ: the version, which is newer than what
    is installed for the checkout, the package's place, and this machine's interfaces: other tests
    make some meanwhile."""
    texts = []
    for text in (done.stdout, done.stderr):
        text = re.sub(r"entrypoint \d\S+", "entrypoint 1", text)
        text = re.sub(r"(network interface: .* of )[^;\n]*", r"\1", text)
        texts.append(re.sub(r"/\S+(?=/entrypoint/)", "", text))
    return done.returncode, texts[0], texts[1]


def same(command: Path, cwd: Path, *words: str) -> str:
    """What both print, which is the same with the same status."""
    there = plain(installed(command, cwd, *words))
    assert there == plain(run(cwd, *words, env=ENV))
    return there[1]


def test_it_has_every_file_of_the_package_and_no_other(wheel: Path) -> None:
    listing = captured([TREE / "scripts/dev/files", "entrypoint", "templates"], check=True)
    listed = listing.stdout.rstrip("\0").split("\0")
    expected = {
        f"entrypoint/{path}" if path.startswith("templates/") else path
        for path in listed
        if (TREE / path).exists()
    }
    with zipfile.ZipFile(wheel) as archive:
        found = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert found == expected


def test_nothing_of_the_checkout_is_imported(command: Path, tmp_path: Path) -> None:
    code = "import entrypoint; print(entrypoint.plan.__globals__['__file__'], entrypoint.__file__)"
    python = command.with_name("python")
    done = captured([python, "-c", code], cwd=tmp_path, env=ENV, check=True)
    assert done.stdout.count(str(command.parents[1])) == 2


def test_its_version_is_the_trees(command: Path, tmp_path: Path) -> None:
    version = captured([sys.executable, TREE / "scripts/version.py"], check=True).stdout
    said = installed(command, tmp_path, "--version").stdout
    assert said.split() == ["entrypoint", *version.split()]


@pytest.mark.parametrize("name", NAMES)
def test_help(name: str, command: Path, tmp_path: Path) -> None:
    assert same(command, tmp_path, name, "--help")


@pytest.mark.parametrize("spec", SPECS)
def test_plan_of_every_example(spec: str, command: Path, tmp_path: Path) -> None:
    """its adapters are found, and so are the templates"""
    same(command, tmp_path, "plan", "--spec", str(TREE / spec))


def test_rendered_files(command: Path, tmp_path: Path) -> None:
    spec = str(TREE / "examples/spec/full.yaml")
    for start, out in ((run, "here"), (None, "there")):
        words = ("render", "--out", out, "--spec", spec)
        done = start(tmp_path, *words, env=ENV) if start else installed(command, tmp_path, *words)
        assert done.returncode == 0, done.stderr
    here, there = (
        {
            path.name: re.sub(r"entrypoint \d\S+", "", path.read_text())
            for path in (tmp_path / out).iterdir()
        }
        for out in ("here", "there")
    )
    assert len(here) >= 4
    assert here == there


@pytest.mark.parametrize("target", DEPLOYED)
def test_deployed_files(target: str, command: Path, tmp_path: Path) -> None:
    words = ("deploy", target, "--spec", str(TREE / "examples/spec/full.yaml"), "--image", "i:1")
    same(command, tmp_path, *words)


@pytest.mark.parametrize("words", ["EP433", "75", "schema", "log"])
def test_data(words: str, command: Path, tmp_path: Path) -> None:
    """messages, statuses, fields and signatures of causes"""
    (tmp_path / "log").write_text("RuntimeError: CUDA error: out of memory\n")
    assert same(command, tmp_path, *([words] if words == "schema" else ["explain", words]))


def test_a_boot_of_two_nodes(command: Path, tmp_path: Path) -> None:
    program = ("sh", "-c", 'echo "rank $OMPI_COMM_WORLD_RANK"; exit $OMPI_COMM_WORLD_RANK')
    words = ("local", "--nodes", "2", "--slots", "1", "--launcher", "mpirun", "--", *program)
    done = installed(command, tmp_path, *words)
    assert done.returncode == 1, done.stdout + done.stderr
    assert {"rank 0", "rank 1"} <= {line.rpartition("] ")[2] for line in done.stdout.splitlines()}


WRONG = """
def test_wrong(job):
    assert job("sh", "-c", "echo seen; exit 3", nodes=1).status == 0

def test_long(job):
    job("sh", "-c", "echo up; exec sleep 600", nodes=1, limit=9)
"""


@pytest.mark.slow
def test_the_fixture_in_a_sample_project(wheel: Path, tmp_path: Path) -> None:
    """The page's project, in an environment with nothing but the extra. Where it would work until
    a node is killed, it waits: this machine may be slow."""
    page = (TREE / "docs/how-to/test-your-script.md").read_text()
    waits = "if step == 50 and os.environ.get('ENTRYPOINT_ATTEMPT') == '1': time.sleep(600)"
    page = page.replace("time.sleep(0.1)", f"time.sleep(0.01)\n    {waits}").replace("@6s", "@40s")
    for code in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        (tmp_path / re.match(r"# (\w+\.py)", code)[1]).write_text(code)
    (tmp_path / "test_wrong.py").write_text(WRONG)
    made = captured([TREE / "scripts/dev/venv", "pytest"], env={**os.environ, "WHEEL": str(wheel)})
    python = f"{made.stdout.strip()}/bin/python"
    done = captured([python, "-m", "pytest", "-q", "-W", "error"], cwd=tmp_path, env=ENV)
    assert "2 failed, 3 passed" in done.stdout, done.stdout + done.stderr
    assert "seen" in done.stdout
    assert "exited with 3; exit 3" in done.stdout
    assert "the job still ran after 9s" in done.stdout
