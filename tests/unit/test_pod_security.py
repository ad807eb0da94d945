"""Every form of `deploy kubernetes` passes the restricted Pod Security Standard.

The rules are those published on kubernetes.io/docs/concepts/security/pod-security-standards,
baseline and restricted, for what a Pod of Linux can hold; there is no tool that applies them
without a cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import pytest

from entrypoint.tools.deploy._kinds import KINDS
from tests.manifests import objects, templates

Pod = dict[str, Any]
_VOLUMES = {
    *("configMap", "csi", "downwardAPI", "emptyDir", "ephemeral"),
    *("image", "persistentVolumeClaim", "projected", "secret"),
}
_NONE_OR_FALSE = (None, False)


def _violations(pod: Pod) -> Iterator[str]:
    """Name each rule that this Pod breaks."""
    of_pod = pod.get("securityContext", {})
    for name in ("hostNetwork", "hostPID", "hostIPC"):
        if pod.get(name) not in _NONE_OR_FALSE:
            yield name
    if of_pod.get("sysctls"):
        yield "sysctls"
    if of_pod.get("appArmorProfile") or of_pod.get("seLinuxOptions"):
        yield "profiles of one's own"
    for volume in pod.get("volumes", []):
        if not set(volume) - {"name"} <= _VOLUMES:
            yield "volumes"
    for container in [*pod.get("containers", []), *pod.get("initContainers", [])]:
        own = {**of_pod, **container.get("securityContext", {})}
        if own.get("privileged") not in _NONE_OR_FALSE:
            yield "privileged"
        if own.get("procMount") not in (None, "Default"):
            yield "procMount"
        if own.get("allowPrivilegeEscalation") is not False:
            yield "allowPrivilegeEscalation"
        if own.get("runAsNonRoot") is not True or own.get("runAsUser") == 0:
            yield "not root"
        if own.get("seccompProfile", {}).get("type") not in ("RuntimeDefault", "Localhost"):
            yield "seccompProfile"
        capabilities = own.get("capabilities", {})
        added = set(capabilities.get("add", []))
        if "ALL" not in capabilities.get("drop", []) or not added <= {"NET_BIND_SERVICE"}:
            yield "capabilities"
        if any(port.get("hostPort") for port in container.get("ports", [])):
            yield "hostPort"


def pods(kind: str, **options: str) -> list[Pod]:
    return [each["spec"] for each in templates(objects(kind, 3, **options))]


@pytest.mark.promise("rendered Pods pass the restricted Pod Security Standard")
@pytest.mark.parametrize("options", [{}, {"inject": "t"}, {"inject": "t", "inject_as": "image"}])
@pytest.mark.parametrize("kind", KINDS)
def test_rendered_pods_are_restricted(kind: str, options: dict[str, str]) -> None:
    assert pods(kind)
    for pod in pods(kind, **options):
        assert list(_violations(pod)) == []


@pytest.mark.control("rendered Pods pass the restricted Pod Security Standard")
@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (lambda pod, one: pod.update(hostNetwork=True), "hostNetwork"),
        (lambda pod, one: pod["volumes"].append({"name": "x", "hostPath": {}}), "volumes"),
        (lambda pod, one: pod["securityContext"].pop("seccompProfile"), "seccompProfile"),
        (lambda pod, one: pod["securityContext"].pop("runAsNonRoot"), "not root"),
        (lambda pod, one: one.pop("allowPrivilegeEscalation"), "allowPrivilegeEscalation"),
        (lambda pod, one: one["capabilities"].update(add=["SYS_PTRACE"]), "capabilities"),
        (lambda pod, one: one.pop("capabilities"), "capabilities"),
        (lambda pod, one: one.update(privileged=True), "privileged"),
    ],
)
def test_each_rule_is_seen(change: Callable[[Pod, Pod], object], rule: str) -> None:
    pod = deepcopy(pods("job")[0])
    change(pod, pod["containers"][0]["securityContext"])
    assert list(_violations(pod)) == [rule]
