"""What `make test-all CHANGED=1` leaves out: a change in anything that an area exercises has its
tests run again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests import TREE, promises, table, tiers
from tests.proof.areas import AREAS, area_of
from tests.proof.inputs import COMMAND, KINDS, Inputs

pytestmark = pytest.mark.textual  # it depends on every file
EXERCISED = table("tests/tables/exercised.yaml")
ENTRY = "import atexit, sys; from entrypoint.cli import main; atexit.register(lambda: print(*sys.modules, file=open(sys.argv[1], 'w'))); sys.exit(main(sys.argv[2:]))"


@pytest.fixture(scope="module")
def inputs() -> Inputs:
    return Inputs()


@pytest.fixture(scope="module")
def depends(inputs: Inputs) -> dict[str, set[str]]:
    """Test file -> what it depends on."""
    return {file: inputs.of(file) for file in inputs.test_files()}


def test_each_test_file_has_an_area_and_each_area_has_some(inputs: Inputs) -> None:
    assert {area_of(file).name for file in inputs.test_files()} == {area.name for area in AREAS}
    assert set(EXERCISED) == {area.name for area in AREAS}


def test_a_change_in_what_an_area_exercises_runs_it_again(
    inputs: Inputs, depends: dict[str, set[str]]
) -> None:
    for area, starts in EXERCISED.items():
        files = [file for file in depends if area_of(file).name == area]
        for start in starts:
            paths = inputs.below(start)
            assert paths, f"there is no {start}"
            for path in paths:
                assert any(path in depends[file] for file in files), (area, path)


def test_what_nothing_exercises_runs_nothing_again(depends: dict[str, set[str]]) -> None:
    """the control: a page, a platform and a launcher leave out most"""

    def areas(path: str) -> set[str]:
        return {area_of(file).name for file, paths in depends.items() if path in paths}

    containers = {area.name for area in AREAS if area.session == "containers"} - {"arm64"}
    assert not areas("docs/how-to/docker.md") & (containers - {"image", "compose"})
    assert not areas("entrypoint/platforms/skypilot.py") & containers
    assert containers <= areas("entrypoint/job/leader.py")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("plan", "--launcher plain"),
        ("render", "--launcher plain --out {}"),
        ("check", "--launcher plain"),
        ("explain", "75"),
    ],
)
def test_what_a_command_imports_is_in_its_closure(
    name: str, words: str, inputs: Inputs, tmp_path: Path
) -> None:
    """No import is hidden from the closure: a command that is really run has no other modules but
    adapters, which the registry imports by their names."""
    said = tmp_path / "modules"
    argv = [sys.executable, "-c", ENTRY, str(said), name, *words.format(tmp_path).split()]
    env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "ENTRYPOINT_RUN_DIR": f"{tmp_path}/run"}
    subprocess.run(argv, cwd=TREE, env=env, capture_output=True, check=False)
    imported = {each for each in said.read_text().split() if each.startswith("entrypoint.")}
    paths = inputs.closure([*COMMAND, f"entrypoint/cli/{name}.py"], "entrypoint/")
    names = (path.removesuffix(".py").removesuffix("/__init__") for path in paths)
    hidden = imported - {name.replace("/", ".") for name in names}
    adapters = tuple(folder.replace("/", ".") for folder in KINDS.values())
    assert imported
    assert [each for each in hidden if not each.startswith((*adapters, "entrypoint.cli."))] == []


def test_what_a_fixture_asks_for_counts_too() -> None:
    test, conftest = "tests/process/test_gone.py", "tests/conftest.py"
    asks = (TREE / test).read_text() + "\n\ndef test_it(*, first) -> None: ...\n"
    fixtures = (
        "\n\ndef first(second): ...\n\n\ndef second(): return Slurm\n"
        "from tests.slurm import Slurm\n"
    )
    changes = {conftest: ((TREE / conftest).read_text() + fixtures).encode()}
    assert "tests/slurm.py" not in Inputs(changes=changes).of(test), "the control: nobody asks"
    assert "tests/slurm.py" in Inputs(changes={**changes, test: asks.encode()}).of(test)


def test_the_tiers_name_tests() -> None:
    """tests/tiers.yaml has no name that is no test's"""
    named = (*tiers.EVERY_CHANGE, *tiers.THOROUGH, *tiers.RELEASE)
    assert len(named) > 20
    for name in named:
        file, _, test = name.partition("::")
        assert f"def {test.partition('[')[0]}" in (TREE / file).read_text(), name


def test_each_promise_has_a_test() -> None:
    every = promises.promises(promises.sources())
    assert [promise.text for promise in every if not promise.tests] == []
