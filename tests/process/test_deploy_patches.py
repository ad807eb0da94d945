"""`deploy kubernetes --patch FILE`: what a patch says is in the file, and the API server takes it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from entrypoint import cli
from entrypoint.deploy._kinds import KINDS
from tests import apis
from tests.cluster import clean_environment

PAGE = Path(__file__).parents[2] / "docs/how-to/kubernetes.md"
SCHEMAS = f"in the file, which Kubernetes {apis.VERSIONS[0]} to {apis.VERSIONS[-1]} takes"
DEMO = "name: demo\nslots: 2\nhosts: [a, b]\ncommand: [python, train.py]\n"
KIND = {"JobSet": "jobset", "MPIJob": "mpijob", "TrainJob": "trainjob"}

POD = {"spec": {"nodeSelector": {"pool": "training"}}}
# Kind -> a patch of its Pods.
PODS: dict[str, dict[str, Any]] = {
    "job": {"kind": "Job", "spec": {"template": POD}},
    "jobset": {
        "kind": "JobSet", "spec": {"replicatedJobs": [{"name": "node", "template": {"spec": {"template": POD}}}]},
    },
    "volcano": {
        "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job",
        "spec": {"tasks": [{"name": "node", "template": POD}]},
    },
    "mpijob": {
        "kind": "MPIJob", "spec": {"mpiReplicaSpecs": {"Launcher": {"template": POD}, "Worker": {"template": POD}}},
    },
    "trainjob": {
        "kind": "TrainJob",
        "spec": {"runtimePatches": [{"manager": "entrypoint", "trainingRuntimeSpec": {"template": {"spec": {
            "replicatedJobs": [{"name": "node", "template": {"spec": {"template": POD}}}],
        }}}}]},
    },
}  # fmt: skip


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in set(os.environ) - set(clean_environment()):
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def deployed(spec: str, *words: str) -> list[dict[str, Any]]:
    """The objects that the command writes."""
    Path("job.yaml").write_text(spec)
    words = ("deploy", "kubernetes", "--spec", "job.yaml", "--image", "i", "--out", "made.yaml", *words)
    assert cli.main(list(words)) == 0
    return list(yaml.safe_load_all(Path("made.yaml").read_text(encoding="utf-8")))


def contains(whole: Any, part: Any) -> bool:
    """Whether all that a part says is in the whole; a list holds its entries in any order, among others."""
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(contains(whole.get(name), each) for name, each in part.items())
    if isinstance(part, list):
        return isinstance(whole, list) and all(any(contains(one, each) for one in whole) for each in part)
    return bool(whole == part)


def anywhere(whole: Any, part: Any) -> bool:
    inner = whole.values() if isinstance(whole, dict) else whole if isinstance(whole, list) else ()
    return contains(whole, part) or any(anywhere(each, part) for each in inner)


def has(objects: list[dict[str, Any]], patch: dict[str, Any]) -> bool:
    """Whether a patch was applied."""
    meant = patch.get("target", patch)
    found = [each for each in objects if each["kind"] == meant["kind"]]
    if patch.get("$patch") == "delete":
        return not found
    if "target" in patch:
        return bool(found) and all(anywhere(each, operation["value"]) for each in found for operation in patch["patch"])
    return bool(found) and all(contains(each, patch) for each in found)


def blocks() -> Iterator[str]:
    """What the page shows to be put into a file or a spec."""
    for block in re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL):
        if {"kind", "target", "kubernetes"} & set(yaml.safe_load(block)):
            yield block


def test_the_page_has_what_every_cluster_needs() -> None:
    """The control of the next test: it has something to look at."""
    text = "".join(blocks())
    for name in (
        "persistentVolumeClaim", "secretKeyRef", "configMapKeyRef", "configMapRef", "imagePullSecrets", "nodeSelector",
        "tolerations", "podAntiAffinity", "topologySpreadConstraints", "serviceAccountName", "priorityClassName",
        "kueue.x-k8s.io/queue-name", "suspend: true", "rdma/hca", "IPC_LOCK", "annotations", "NetworkPolicy",
    ):  # fmt: skip
        assert name in text, name


@pytest.mark.deployed("kubernetes", "each patch of docs/how-to/kubernetes.md", SCHEMAS)
@pytest.mark.parametrize("block", [*blocks()], ids=lambda block: re.sub(r"\W+", "-", block)[:50])
def test_a_patch_of_the_page_is_in_the_file(block: str) -> None:
    written = yaml.safe_load(block)
    if "kubernetes" in written:
        objects, patches = deployed(block, "--nodes", "2"), written["kubernetes"]["patch"]
        before = deployed(DEMO)
    else:
        Path("cluster.yaml").write_text(block)
        kind = ("--kind", KIND.get(written.get("kind", ""), "job"))
        objects, patches, before = deployed(DEMO, *kind, "--patch", "cluster.yaml"), [written], deployed(DEMO, *kind)
    for patch in patches:
        assert has(objects, patch)
        assert not has(before, patch), "the control: without the patch it is not there"
    assert [wrong for each in objects for version in apis.VERSIONS for wrong in apis.mistakes(each, version)] == []


@pytest.mark.deployed("kubernetes", "--kind {kind}: a patch of its Pods", SCHEMAS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_pods_of_every_kind_can_be_patched(kind: str) -> None:
    Path("cluster.yaml").write_text(yaml.safe_dump(PODS[kind]))
    objects = deployed(DEMO, "--kind", kind, "--patch", "cluster.yaml")
    assert has(objects, PODS[kind])
    assert not has(deployed(DEMO, "--kind", kind), PODS[kind])
    assert [wrong for each in objects for version in apis.VERSIONS for wrong in apis.mistakes(each, version)] == []
