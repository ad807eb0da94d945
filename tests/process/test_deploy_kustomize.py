"""Recipes of docs/how-to/kustomize.md on the manifests of every kind, by the real kubectl."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from entrypoint import cli
from entrypoint.tools.deploy._kinds import KINDS
from tests import TREE, apis
from tests.cluster import clean_environment
from tests.recipes import for_kind, recipes

SCHEMAS = f"kubectl kustomize, Kubernetes {apis.VERSIONS[0]} to {apis.VERSIONS[-1]}"
JOB = "name: demo\nslots: 2\ncommand: [python, train.py]\n"
Objects = dict[str, dict[str, Any]]


def objects(text: str) -> Objects:
    return {f"{each['apiVersion']} {each['kind']}": each for each in yaml.safe_load_all(text)}


def deployed(kind: str, folder: Path) -> Objects:
    """Return the manifests of a kind, which are written to `base.yaml`."""
    (folder / "job.yaml").write_text(JOB)
    base = folder / "demo/base.yaml"
    words = ["--kind", kind, "--spec", str(folder / "job.yaml"), "--image", "i", "--nodes", "2"]
    assert cli.main(["deploy", "kubernetes", *words, "--out", str(base)]) == 0
    return objects(base.read_text(encoding="utf-8"))


def kustomized(kubectl: str, folder: Path, files: dict[str, str]) -> Objects:
    """Return what kubectl makes of the manifests and these files."""
    for name, text in files.items():
        (folder / "demo" / name).write_text(text)
    command = [kubectl, "kustomize", str(folder / "demo")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return objects(done.stdout)


def operations(files: dict[str, str], manifest: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the operations of a recipe that are for this object."""
    for patch in yaml.safe_load(files["kustomization.yaml"])["patches"]:
        kind, group = patch["target"]["kind"], patch["target"].get("group", "")
        if re.fullmatch(kind, manifest["kind"]) and manifest["apiVersion"].startswith(group):
            yield from yaml.safe_load(patch.get("patch") or files[patch["path"]])


def undo(manifest: dict[str, Any], operation: dict[str, Any]) -> None:
    """Remove what an operation added. Raises AssertionError when something else is there."""
    *parents, last = [part.replace("~1", "/") for part in operation["path"].split("/")[1:]]
    part: Any = manifest
    for name in parents:
        part = part[int(name) if isinstance(part, list) else name]
    assert part.pop(-1 if last == "-" else last) == operation["value"], operation["path"]


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in set(os.environ) - set(clean_environment()):
        monkeypatch.delenv(name)


def cases() -> Iterator[Any]:
    for title, files in recipes().items():
        for kind in KINDS:
            if "batch.volcano.sh" not in files["kustomization.yaml"] or kind == "volcano":
                yield pytest.param(kind, files, id=f"{kind}-{title}")


@pytest.mark.promise(
    "a recipe of the kustomize page adds what it says to every kind, and nothing else, and the API"
    " server takes it"
)
@pytest.mark.deployed("kubernetes", "--kind {kind}: recipes of docs/how-to/kustomize.md", SCHEMAS)
@pytest.mark.slow
@pytest.mark.parametrize(("kind", "files"), [*cases()])
def test_a_recipe_adds_what_it_says_alone(
    kind: str, files: dict[str, str], python_with: Callable[[str], str], tmp_path: Path
) -> None:
    before = deployed(kind, tmp_path)
    if "pod.yaml" in files:
        files = {**files, "pod.yaml": for_kind(kind, files["pod.yaml"])}
    after = kustomized(python_with("kubectl"), tmp_path, files)
    undone = 0
    for manifest in after.values():
        assert [wrong for each in apis.VERSIONS for wrong in apis.mistakes(manifest, each)] == []
        for operation in reversed([*operations(files, manifest)]):
            undo(manifest, operation)
            undone += 1
    assert undone > 0, "the page has a path for this kind"
    assert after == before


@pytest.mark.control(
    "a recipe of the kustomize page adds what it says to every kind, and nothing else, and the API"
    " server takes it"
)
@pytest.mark.slow
def test_a_path_of_another_kind_is_refused(
    python_with: Callable[[str], str], tmp_path: Path
) -> None:
    """The control: kubectl reads the operations."""
    deployed("jobset", tmp_path)
    with pytest.raises(AssertionError, match="/spec/template"):
        kustomized(
            python_with("kubectl"), tmp_path, recipes()["Data from a volume, on certain nodes"]
        )


@pytest.mark.promise(
    "the component of the kustomize page brings the toolkit into a Job of one's own"
)
@pytest.mark.slow
def test_the_component_adds_to_what_a_job_has(
    python_with: Callable[[str], str], tmp_path: Path
) -> None:
    """Its init container, volume and mount come beside the Job's own, and its command in front."""
    (tmp_path / "demo").mkdir()
    shutil.copytree(TREE / "examples/kubernetes/inject", tmp_path / "demo/inject")
    container = {"name": "node", "image": "i", "command": ["python", "train.py"]}
    mounted = {**container, "volumeMounts": [{"name": "data", "mountPath": "/data"}]}
    volumes = [{"name": "data", "emptyDir": {}}]
    pod = {"restartPolicy": "Never", "initContainers": [{"name": "fetch", "image": "f"}]}
    spec = {**pod, "containers": [mounted], "volumes": volumes}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "own"}}
    files = {
        "job.yaml": yaml.safe_dump({**job, "spec": {"template": {"spec": spec}}}),
        "kustomization.yaml": "resources: [job.yaml]\ncomponents: [inject]\n"
        "images: [{name: entrypoint-toolkit, newName: registry.example/tools, newTag: '1'}]\n",
    }
    made = kustomized(python_with("kubectl"), tmp_path, files)["batch/v1 Job"]
    assert [wrong for each in apis.VERSIONS for wrong in apis.mistakes(made, each)] == []
    found = made["spec"]["template"]["spec"]
    (node,) = found["containers"]
    images = {each["name"]: each["image"] for each in found["initContainers"]}
    assert images == {"toolkit": "registry.example/tools:1", "fetch": "f"}
    assert node["command"] == ["/opt/entrypoint/bin/entrypoint", "run", "--", "python", "train.py"]
    assert {each["name"] for each in node["volumeMounts"]} == {"data", "toolkit"}
    assert {each["name"] for each in found["volumes"]} == {"data", "toolkit"}
