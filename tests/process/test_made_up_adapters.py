"""CONTRIBUTING.md's platform, device and deploy target, added as it stands there: tests and command take them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.contributing import Copy, steps

Command = Callable[..., "CompletedProcess[str]"]  # words, variables
ENTRYPOINT = ("-m", "entrypoint")
# The command in a container that was given cards, which a test cannot make: /dev is not its own.
WITH_CARDS = """
import os, sys
from entrypoint.cli import main
real = os.listdir
os.listdir = lambda path=".": ["lumen0", "lumen1", "null"] if path == "/dev" else real(path)
sys.exit(main(sys.argv[1:]))
"""
REGISTRY, ROOMS = "tests/unit/test_registry.py", "tests/unit/test_rooms.py"
REFERENCE = "tests/unit/test_golden.py::test_the_reference_is_what_the_fields_say"


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    return Copy(tmp_path)


def add(copy: Copy, heading: str, names: list[str], *tests: str) -> None:
    """Do what the section says; without its cases the tests fail, with them these hold, and the case is one of them."""
    files = steps(heading)
    assert [path.rpartition("/")[2] for path in files] == names
    (adapter, text), *cases = files.items()
    assert len({path.rpartition("/")[0] for path, _ in cases}) == 1
    copy.write({adapter: text})
    assert copy.pytest(f"{REGISTRY}::test_every_adapter_has_cases").returncode == 1
    copy.write(dict(cases))
    copy.golden()
    tested = copy.pytest(REGISTRY, ROOMS, REFERENCE, *tests)
    assert tested.returncode == 0, tested.stdout
    case = "/".join(cases[0][0].split("/")[-3:-1])
    assert f"[{case}] PASSED" in tested.stdout


def test_a_platform_is_one_file_and_one_folder_of_cases(copy: Copy) -> None:
    words = (*ENTRYPOINT, "plan", "--launcher", "plain")
    before = copy.python(*words, "--platform", "acme", "--", "true")
    assert (before.returncode, before.stdout) == (65, "")
    assert 'EP100 there is no such platform | "acme" | use one of ' in before.stderr
    names = ["acme.py", "facts.yaml", "expect.yaml"]
    add(copy, "Add a platform", names, "tests/unit/test_platforms.py")
    assert ": acme, azureml, dstack, " in copy.python(*words, "--help", COLUMNS="500").stdout
    done = copy.python(*words, "--", "true", ACME_TASK="1", ACME_NODES="red blue", ENTRYPOINT_ROLL_CALL="none")
    assert done.returncode == 0, done.stderr
    assert "job job: 2 nodes, 2 ranks, launcher plain, platform acme," in done.stdout
    assert "this node: worker-1 (blue)" in done.stdout
    assert "  hosts: red blue  # platform ACME_NODES\n" in done.stdout


def test_a_device_is_one_file_and_one_folder_of_cases(copy: Copy) -> None:
    words = ("-c", WITH_CARDS, "plan", "--launcher", "plain")
    before = copy.python(*words, "--device", "lumen", "--", "true")
    assert (before.returncode, before.stdout) == (65, "")
    assert 'EP100 there is no such device | "lumen" | use one of ' in before.stderr
    assert "device cpu" in copy.python(*words, "--", "true").stdout
    names = ["lumen.py", "facts.yaml", "expect.yaml"]
    add(copy, "Add a device", names, "tests/unit/test_devices.py")
    assert ": ascend, cpu, lumen, nvidia (or" in copy.python(*words, "--help", COLUMNS="500").stdout
    done = copy.python(*words, "--", "true")
    assert done.returncode == 0, done.stderr
    assert "device lumen\n" in done.stdout
    assert "  LUMEN_WAIT=1800  # device lumen\n" in done.stdout
    assert "  slots: 2  # default 2 /dev/lumen*\n" in done.stdout
    # What it is called elsewhere: by people, by Kubernetes, and by compose, which gives each container its own.
    copy.write({"job.yaml": "hosts: [a, b]\nslots: 2\ndevice: lumen\n"})
    deployed = copy.python(*ENTRYPOINT, "deploy", "kubernetes", "--spec", "job.yaml", "--image", "i")
    assert '"lumen.example/card": "2"' in deployed.stdout, deployed
    deployed = copy.python(*ENTRYPOINT, "deploy", "compose", "--spec", "job.yaml", "--image", "i")
    for cards in ('"/dev/lumen0", "/dev/lumen1"', '"/dev/lumen2", "/dev/lumen3"'):
        assert f'    devices: [{cards}, "/dev/lumenctl"]\n' in deployed.stdout, deployed
    assert "did you mean `lumen`?" in copy.python(*words, "--device", "lumens", "--", "true").stderr


def test_a_deploy_target_is_one_file_and_one_folder_of_cases(copy: Copy) -> None:
    names = ["acme.py", "job.yaml", "options.yaml"]
    case = {path.rpartition("/")[2]: text for path, text in steps("Add a deploy target").items()}
    copy.write({"job.yaml": case["job.yaml"]})
    words = (*ENTRYPOINT, "deploy", "acme", "--spec", "job.yaml", "--image", "train:1.2")
    before = copy.python(*words)
    assert (before.returncode, before.stdout) == (64, "")
    assert "invalid choice: 'acme'" in before.stderr
    words_arrive = "tests/security/test_injection.py::test_a_deployed_file_says_what_was_given[acme]"
    add(copy, "Add a deploy target", names, "tests/unit/test_deploy.py", "tests/process/test_deploy.py", words_arrive)
    done = copy.python(*words, "--resource", "lumen.example/card=8", "--", "prog")
    assert done.returncode == 0, done.stderr
    task = {
        "image": "train:1.2",
        "mount": f"{copy.tree}:/job",
        "env": {"ENTRYPOINT_SPEC": "/job/job.yaml"},
        "command": ["prog"],
        "needs": {"lumen.example/card": "8"},
    }
    assert json.loads(done.stdout) == {"job": "demo", "tasks": 2, "task": task}
    written = json.loads((copy.tree / "tests/deploy/acme/two/rendered.yaml").read_text())
    assert written == {"job": "demo", "tasks": 2, "task": {**task, "mount": "/home/me/job:/job", "command": []}}
