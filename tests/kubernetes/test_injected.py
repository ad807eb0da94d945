"""Every kind on a real Kubernetes with an image that nobody prepared, a bare Debian without Python:
`deploy kubernetes --inject`, by an init container and by an image volume, and the component of
docs/how-to/kustomize.md."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.kubernetes.realcluster import DONE, EXAMPLES, Namespace

SPEC = """\
name: demo
launcher: plain
slots: 1
command: [sh, -c, 'echo "rank $RANK has uid $(id -u)"; [ "$RANK" = 0 ] || exit {status}']
timeouts: {{peers: 120, grace: 5}}
"""
# A Job as somebody writes it, without a word of the toolkit but its settings.
OWN = """\
apiVersion: v1
kind: Service
metadata: {name: train}
spec: {clusterIP: None, publishNotReadyAddresses: true, selector: {app.kubernetes.io/name: entrypoint}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: train}
spec:
  completionMode: Indexed
  completions: 2
  parallelism: 2
  backoffLimit: 0
  template:
    metadata: {labels: {app.kubernetes.io/name: entrypoint}}
    spec:
      subdomain: train
      restartPolicy: Never
      securityContext: {runAsNonRoot: true, runAsUser: 1234, fsGroup: 1234, seccompProfile: {type: RuntimeDefault}}
      containers:
        - name: node
          image: IMAGE
          command: [sh, -c, 'echo "rank $RANK has uid $(id -u)"']
          env:
            - {name: ENTRYPOINT_HOSTS, value: "train-0.train,train-1.train"}
            - {name: ENTRYPOINT_SECRET_FILE, value: /keys/secret}
            - {name: ENTRYPOINT_LAUNCHER, value: plain}
            - {name: ENTRYPOINT_SLOTS, value: "1"}
          securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
          volumeMounts: [{name: keys, mountPath: /keys, readOnly: true}]
      volumes: [{name: keys, secret: {secretName: train, defaultMode: 0440}}]
"""


@pytest.fixture
def images(kit: Path, namespace: Namespace) -> tuple[str, str]:
    """The names that the toolkit's image and a bare one have on the nodes; jobs take the latter."""
    if not all((kit / name).exists() for name in ("toolkit", "base")):
        pytest.skip("no entrypoint-toolkit:dev: run scripts/build-image toolkit, and set up again")
    toolkit, base = ((kit / name).read_text().strip() for name in ("toolkit", "base"))
    namespace.image = base
    return toolkit, base


def mounts_images(namespace: Namespace) -> bool:
    """Return whether the containerd of every node that takes Pods mounts image volumes: from 2.1 on."""
    nodes = json.loads(namespace.kubectl("get", "nodes", "-o", "json"))["items"]
    used = [each["status"] for each in nodes if not each["spec"].get("unschedulable")]
    versions = [status["nodeInfo"]["containerRuntimeVersion"] for status in used]
    found = [re.search(r"(\d+)\.(\d+)", version) for version in versions]
    return all(match and (int(match[1]), int(match[2])) >= (2, 1) for match in found)


@pytest.mark.promise("an image that nobody prepared runs in every kind of a real Kubernetes", control="the statuses 7, and the image without it, in the same file")  # fmt: skip
@pytest.mark.deployed("kubernetes", "--kind {kind} --inject, --inject-as {way}: {status}", "a real cluster, a bare Debian image")  # fmt: skip
@pytest.mark.parametrize("status", [0, 7])
@pytest.mark.parametrize("way", ["copy", "image"])
@pytest.mark.parametrize("kind", [*DONE])
def test_an_unprepared_image_runs(
    kind: str, way: str, status: int, namespace: Namespace, images: tuple[str, str]
) -> None:
    if way == "image" and not mounts_images(namespace):
        pytest.skip("no image volumes: a node's containerd is older than 2.1")
    options = f"--inject {images[0]} --inject-as {way}"
    namespace.start(SPEC.format(status=status), 2, options, kind=kind)
    if kind == "trainjob" and status:  # its runtime starts failed Pods again
        namespace.until(lambda: "exited with 7; exit 7" in namespace.log(), 90, "the failure")
        return
    assert namespace.ended(2, 90) == [status, status], namespace.said()
    assert status or namespace.printed(" has uid 1000") == 2


@pytest.mark.control("an image that nobody prepared runs in every kind of a real Kubernetes")
def test_the_bare_image_has_no_toolkit(namespace: Namespace, images: tuple[str, str]) -> None:
    """The control: without --inject, there is nothing in the image that could start."""
    namespace.deploy(SPEC.format(status=0), 1)
    file = namespace.folder / "demo.yaml"
    user = "runAsNonRoot: true\n        runAsUser: 1000"
    file.write_text(file.read_text().replace("runAsNonRoot: true", user))
    namespace.typed("kubectl apply -f demo.yaml")
    waits = "kubectl get pods -o jsonpath='{.items[*].status.containerStatuses[*].state}'"
    namespace.until(lambda: "executable file not found" in namespace.typed(waits), 60, "no start")


@pytest.mark.promise("the component of the kustomize page brings the toolkit into a Job of one's own")  # fmt: skip
def test_the_component_in_a_job_of_one_s_own(namespace: Namespace, images: tuple[str, str]) -> None:
    toolkit, base = images
    folder = namespace.folder / "own"
    shutil.copytree(EXAMPLES / "kubernetes/inject", folder / "inject")
    (folder / "job.yaml").write_text(OWN.replace("IMAGE", base))
    name, _, tag = toolkit.partition(":")
    (folder / "kustomization.yaml").write_text(
        "resources: [job.yaml]\ncomponents: [inject]\n"
        f"images: [{{name: entrypoint-toolkit, newName: {name}, newTag: {tag!r}}}]\n"
    )
    namespace.typed("openssl rand -hex 32 | kubectl create secret generic train --from-file=secret=/dev/stdin")  # fmt: skip
    namespace.typed("kubectl apply -k own")
    assert namespace.ended(2, 90) == [0, 0], namespace.said()
    assert namespace.printed(" has uid 1234") == 2
