"""A real API server and the operators' webhooks accept whatever `deploy kubernetes` renders:
strictly, without a warning, and its Pods in a restricted namespace."""

from __future__ import annotations

import json
import re
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings

from entrypoint.base.errors import EntrypointError
from entrypoint.tools.deploy._kinds import KINDS
from tests.kubernetes.realcluster import Namespace
from tests.manifests import asked, inner, rendered

EXAMPLES = 40
Object = dict[str, Any]


@contextmanager
def api(namespace: Namespace) -> Iterator[str]:
    """Yield the address of the API server's proxy on this machine."""
    with subprocess.Popen(
        ["kubectl", "proxy", "--port=0"], env=namespace.env, stdout=subprocess.PIPE, text=True
    ) as proxy:
        try:
            assert proxy.stdout
            found = re.search(r"127\.0\.0\.1:\d+", proxy.stdout.readline())
            assert found
            yield f"http://{found[0]}"
        finally:
            proxy.terminate()


STRICT = "dryRun=All&fieldValidation=Strict"


def request(address: str, path: str, method: str, manifest: Object | None = None) -> str:
    """Return why the server refuses a request, or what it warns of; "" if it accepts it."""
    asked = urllib.request.Request(
        f"{address}/{path}",
        json.dumps(manifest).encode() if manifest else None,
        {"Content-Type": "application/json"},
        method=method,
    )
    try:
        with urllib.request.urlopen(asked) as reply:
            return " ".join(reply.headers.get_all("Warning") or ())
    except urllib.error.HTTPError as error:
        return str(json.load(error)["message"])


def collection(namespace: str, manifest: Object) -> str:
    """Return the path of all objects that are of a manifest's kind."""
    version, kind = manifest["apiVersion"], manifest["kind"].lower()
    root = f"apis/{version}" if "/" in version else f"api/{version}"
    plural = f"{kind.removesuffix('y')}{'ies' if kind.endswith('y') else 's'}"
    return f"{root}/namespaces/{namespace}/{plural}"


def objections(address: str, namespace: str, text: str) -> list[str]:
    """Return what the server says against a rendered file, and against the Jobs and Pods that
    controllers would make of it."""
    found, runtimes = [], []
    for manifest in yaml.safe_load_all(text):
        for each in (manifest, *inner(manifest)):
            path, dry = collection(namespace, each), "&dryRun=All"
            if each["kind"] == "TrainingRuntime":  # a webhook looks for it when a TrainJob comes
                runtimes.append(f"{path}/{each['metadata']['name']}")
                dry = ""
            if said := request(address, f"{path}?fieldValidation=Strict{dry}", "POST", each):
                found.append(f"{each['apiVersion']} {each['kind']}: {said}")
            time.sleep(0 if dry else 0.2)
    for path in runtimes:
        request(address, path, "DELETE")
    return found


@pytest.mark.promise("a real Kubernetes accepts every rendered file")
@pytest.mark.deployed(
    "kubernetes", f"--kind {{kind}}: {EXAMPLES} specs and options", "a real API server, strict"
)
@pytest.mark.parametrize("kind", KINDS)
def test_every_rendered_file_is_accepted(kind: str, namespace: Namespace) -> None:
    with api(namespace) as address:

        @settings(
            max_examples=EXAMPLES, deadline=None, derandomize=True, database=None,
            suppress_health_check=[*HealthCheck],
        )  # fmt: skip
        @given(asked(kind))
        def is_accepted(case: tuple[Mapping[str, Any], Mapping[str, Any]]) -> None:
            try:
                text = rendered(*case)
            except EntrypointError:
                return  # deploy says why there is no file
            assert objections(address, namespace.name, text) == []

        is_accepted()


@pytest.mark.control("a real Kubernetes accepts every rendered file")
@pytest.mark.parametrize(
    ("kind", "before", "after", "part"),
    [
        ("job", "values: [69, 71, 75, 137, 143]", "values: [69, 71, 75, 143, 137]", "must be ordered"),
        ("job", "mountPath: /tmp", "mountPath: /dev/shm", "must be unique"),
        ("job", "runAsNonRoot: true", "runAsNonRoot: false", "violates PodSecurity"),
        ("jobset", "maxFailedIndexes: 0", "maxFailedIndices: 0", "unknown field"),
        ("trainjob", "manager: ", "manager: x # ", "domain-prefixed path"),
        ("trainjob", "- name: shm", "- name: tmp", "Duplicate value"),
        ("mpijob", "slotsPerWorker: 2", "slotsPerWorker: two", "slotsPerWorker"),
        ("volcano", "maxRetry: 3", "maxRetry: x", "maxRetry"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_refused(
    kind: str, before: str, after: str, part: str, namespace: Namespace
) -> None:
    text = rendered({"slots": 2, "restarts": 3}, {"kind": kind, "nodes": 3, "image": "i"})
    assert before in text
    with api(namespace) as address:
        assert objections(address, namespace.name, text) == []
        assert part in " ".join(objections(address, namespace.name, text.replace(before, after)))
