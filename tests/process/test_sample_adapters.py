"""CONTRIBUTING.md's platform, device and deploy target, added as described: tests and command take
them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.contributing import Copy, steps

ENTRYPOINT = ("-m", "entrypoint")
# The command in a container that was given cards, which a test cannot make: /dev is not its own.
WITH_CARDS = """
import os, sys
from entrypoint.cli import main
real = os.listdir
os.listdir = lambda path=".": ["lumen0", "lumen1", "null"] if path == "/dev" else real(path)
sys.exit(main(sys.argv[1:]))
"""


def add(copy: Copy, kind: str, heading: str, names: list[str], test: str) -> None:
    """Do what the section says: its adapter keeps the rules, and its case is collected and
    holds."""
    files = steps(heading)
    assert [path.rpartition("/")[2] for path in files] == names
    _, *cases = files
    (folder,) = {path.rpartition("/")[0] for path in cases}
    copy.write(files)
    copy.lint()
    if kind == "deploy":
        copy.golden("tests.golden_deploy")
    copy.test(test, kind, folder.removeprefix(f"tests/{kind}/"))


@pytest.mark.promise(
    "a new platform, device or deploy target is one file and one folder of cases",
    control="the command before, in the same tests",
)
def test_a_platform_is_one_file_and_one_folder_of_cases(tmp_path: Path) -> None:
    copy = Copy(tmp_path, "platforms")
    words = (*ENTRYPOINT, "plan", "--launcher", "plain")
    before = copy.python(*words, "--platform", "acme", "--", "true")
    assert (before.returncode, before.stdout) == (65, "")
    assert 'EP100 there is no such platform | "acme" | use one of ' in before.stderr
    names = ["acme.py", "facts.yaml", "expect.yaml"]
    add(copy, "platforms", "Add a platform", names, "test_platforms.test_case")
    assert '"acme"' in copy.python(*ENTRYPOINT, "schema").stdout
    assert ": acme, " in copy.python(*words, "--help", COLUMNS="500").stdout
    done = copy.python(
        *words, "--", "true", ACME_TASK="1", ACME_NODES="red blue", ENTRYPOINT_ROLL_CALL="none"
    )
    assert done.returncode == 0, done.stderr
    assert "job job: 2 nodes, 2 ranks, launcher plain, platform acme," in done.stdout
    assert "this node: worker-1 (blue)" in done.stdout
    assert "  hosts: red blue  # platform ACME_NODES\n" in done.stdout


@pytest.mark.promise("a new platform, device or deploy target is one file and one folder of cases")
def test_a_device_is_one_file_and_one_folder_of_cases(tmp_path: Path) -> None:
    copy = Copy(tmp_path, "devices")
    words = ("-c", WITH_CARDS, "plan", "--launcher", "plain")
    before = copy.python(*words, "--device", "lumen", "--", "true")
    assert (before.returncode, before.stdout) == (65, "")
    assert 'EP100 there is no such device | "lumen" | use one of ' in before.stderr
    assert "device cpu" in copy.python(*words, "--", "true").stdout
    names = ["lumen.py", "facts.yaml", "expect.yaml"]
    add(copy, "devices", "Add a device", names, "test_devices.test_case")
    assert ", lumen, " in copy.python(*words, "--help", COLUMNS="500").stdout
    done = copy.python(*words, "--", "true")
    assert done.returncode == 0, done.stderr
    assert "device lumen\n" in done.stdout
    assert "  LUMEN_WAIT=1800  # device lumen\n" in done.stdout
    assert "  slots: 2  # default 2 /dev/lumen*\n" in done.stdout
    # What it is called elsewhere: by people, by Kubernetes, and by compose, which gives each
    # container its own.
    copy.write({"job.yaml": "hosts: [a, b]\nslots: 2\ndevice: lumen\n"})
    deployed = copy.python(
        *ENTRYPOINT, "deploy", "kubernetes", "--spec", "job.yaml", "--image", "i"
    )
    assert '"lumen.example/card": "2"' in deployed.stdout, deployed
    deployed = copy.python(*ENTRYPOINT, "deploy", "compose", "--spec", "job.yaml", "--image", "i")
    for cards in ('"/dev/lumen0", "/dev/lumen1"', '"/dev/lumen2", "/dev/lumen3"'):
        assert f'    devices: [{cards}, "/dev/lumenctl"]\n' in deployed.stdout, deployed
    assert "did you mean `lumen`?" in copy.python(*words, "--device", "lumens", "--", "true").stderr


@pytest.mark.promise("a new platform, device or deploy target is one file and one folder of cases")
def test_a_deploy_target_is_one_file_and_one_folder_of_cases(tmp_path: Path) -> None:
    copy = Copy(tmp_path, "deploy")
    names = ["acme.py", "job.yaml", "options.yaml"]
    case = {path.rpartition("/")[2]: text for path, text in steps("Add a deploy target").items()}
    copy.write({"job.yaml": case["job.yaml"]})
    words = (*ENTRYPOINT, "deploy", "acme", "--spec", "job.yaml", "--image", "train:1.2")
    before = copy.python(*words)
    assert (before.returncode, before.stdout) == (64, "")
    assert "there is no such target | acme |" in before.stderr
    add(copy, "deploy", "Add a deploy target", names, "test_deploy.test_golden")
    hostile = ["prog", "a b", "$HOME", "`id`", "'", '"', "{{ 7 * 7 }}", "", "é"]
    done = copy.python(*words, "--resource", "lumen.example/card=8", "--", *hostile)
    assert done.returncode == 0, done.stderr
    task = {
        "image": "train:1.2",
        "mount": f"{copy.tree}:/job",
        "env": {"ENTRYPOINT_SPEC": "/job/job.yaml"},
        "command": hostile,
        "needs": {"lumen.example/card": "8"},
    }
    assert json.loads(done.stdout) == {"job": "demo", "tasks": 2, "task": task}
    written = json.loads((copy.tree / "tests/deploy/acme/two/rendered.yaml").read_text())
    assert written == {
        "job": "demo",
        "tasks": 2,
        "task": {**task, "mount": "/home/me/job:/job", "command": []},
    }
