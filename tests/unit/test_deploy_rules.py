"""Whatever `deploy kubernetes` renders passes the rules of its readers, as far as they can be told
without a cluster; tests/kubernetes/test_accepted.py asks a real one the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import yaml
from hypothesis import given, settings

from entrypoint.base.errors import RETRIED, EntrypointError
from entrypoint.tools.deploy._kinds import KINDS
from tests import apis
from tests.manifests import asked, inner, rendered

NEWEST = apis.VERSIONS[-1]
Object = dict[str, Any]


def mistakes(text: str) -> list[str]:
    """What the servers would refuse of a file, and of what controllers make of it."""
    return [
        f"{each['kind']} {wrong}"
        for manifest in yaml.safe_load_all(text)
        for each in (manifest, *inner(manifest))
        for wrong in apis.mistakes(each, NEWEST)
    ]


@pytest.mark.promise("a deployed file is valid by its reader's own schema")
@pytest.mark.parametrize("kind", KINDS)
def test_every_rendered_file_keeps_the_rules_that_no_schema_has(kind: str) -> None:
    @settings(max_examples=12, deadline=None)
    @given(asked(kind))
    def is_valid(case: tuple[Mapping[str, Any], Mapping[str, Any]]) -> None:
        try:
            text = rendered(*case)
        except EntrypointError:
            return  # deploy says why there is no file
        assert mistakes(text) == []

    is_valid()


def made(kind: str, **keys: Any) -> str:
    return rendered({"slots": 2, **keys}, {"kind": kind, "nodes": 3, "image": "i"})


@pytest.mark.control("a deployed file is valid by its reader's own schema")
@pytest.mark.parametrize(
    ("kind", "before", "after", "wrong"),
    [
        ("job", "values: [69, 71, 75, 137, 143]", "values: [69, 71, 75, 143, 137]", "must be ordered"),
        ("jobset", "mountPath: /tmp", "mountPath: /dev/shm", "volumeMounts: an entry is there twice"),
        ("trainjob", "- name: shm", "- name: tmp", "volumes: an entry is there twice"),
        ("trainjob", "manager: ", "manager: x # ", "a domain-prefixed path is needed"),
        ("mpijob", "{name: tmp, emptyDir", "{name: shm, emptyDir", "volumes: an entry is there twice"),
        ("volcano", "name: ENTRYPOINT_SPEC", "name: ENTRYPOINT_NAME", "env: an entry is there twice"),
        ("job", "backoffLimitPerIndex: 3", "backoffLimitPerIndex: 3000000000", "is too large"),
    ],
)  # fmt: skip
def test_what_breaks_such_a_rule_is_named(kind: str, before: str, after: str, wrong: str) -> None:
    text = made(kind, restarts=3)
    assert before in text
    assert mistakes(text) == []
    assert wrong in " ".join(mistakes(text.replace(before, after)))


def policies(kind: str, **keys: Any) -> Iterator[Object]:
    """The spec of each Job that Kubernetes' own controller runs."""
    job = list(yaml.safe_load_all(made(kind, **keys)))[-1]
    for each in (job, *inner(job)):
        if each["apiVersion"] == "batch/v1":
            yield each["spec"]


@pytest.mark.promise(
    "a killed Pod does not end a job that may start again",
    control="a job that may not, in the same test",
)
@pytest.mark.parametrize(
    ("keys", "counted"), [({"restarts": 3}, True), ({"spares": 1}, True), ({}, False)]
)
@pytest.mark.parametrize("kind", ["job", "jobset"])
def test_a_killed_pod_counts_where_the_job_may_start_again(
    kind: str, keys: dict[str, Any], counted: bool
) -> None:
    (job,) = policies(kind, **keys)
    _, count, fail = job["podFailurePolicy"]["rules"]
    assert (count["action"], fail["action"]) == ("Count", "FailJob")
    assert count["onExitCodes"]["values"] == fail["onExitCodes"]["values"]
    assert {*count["onExitCodes"]["values"]} == {*RETRIED, 143, *([137] if counted else [])}


@pytest.mark.parametrize("kind", ["job", "jobset"])
def test_a_start_waits_for_the_pod_s_own_failures_alone(kind: str) -> None:
    """The wait of a Job without a limit for each index doubles with every failed Pod of the Job."""
    (job,) = policies(kind, restarts=5)
    assert (job["backoffLimitPerIndex"], job["maxFailedIndexes"]) == (5, 0)
    assert "backoffLimit" not in job


def test_a_jobset_starts_all_again_unless_its_pods_come_back_by_themselves() -> None:
    (job,) = policies("jobset")
    assert (job["backoffLimit"], "backoffLimitPerIndex" in job) == (0, False)
    assert "maxRestarts: 3" in made("jobset")
    assert "maxRestarts" not in made("jobset", restarts=1)


@pytest.mark.parametrize(("keys", "limit"), [({}, 3), ({"restarts": 1}, 3), ({"restarts": 50}, 50)])
def test_a_job_may_lose_each_pod_as_often_as_the_spec_says(
    keys: dict[str, Any], limit: int
) -> None:
    (job,) = policies("job", **keys)
    assert job["backoffLimitPerIndex"] == limit


@pytest.mark.promise(
    "a killed Pod does not end a job that may start again",
    control="a job that may not, in the same test",
)
@pytest.mark.parametrize("again", [False, True])
def test_a_killed_worker_of_an_mpijob_starts_again_in_its_pod(again: bool) -> None:
    """Its operator does not make a new Pod; what waits for an ended launcher is removed."""
    *_, job = yaml.safe_load_all(made("mpijob", **({"restarts": 1} if again else {})))
    launcher, worker = job["spec"]["mpiReplicaSpecs"].values()
    restarted = [each["restartPolicy"] for each in (launcher, worker)]
    assert restarted == ["Never", "OnFailure" if again else "Never"]
    assert job["spec"]["runPolicy"]["cleanPodPolicy"] == ("Running" if again else "None")


@pytest.mark.promise(
    "a killed Pod does not end a job that may start again",
    control="a job that may not, in the same test",
)
def test_volcano_starts_all_again_after_a_killed_pod() -> None:
    for keys, counted in (({}, False), ({"restarts": 5}, True), ({"spares": 1}, True)):
        *_, job = yaml.safe_load_all(made("volcano", **keys))
        restarted = {each.get("exitCode") for each in job["spec"]["policies"]}
        assert restarted == {None, *RETRIED, 143, *([137] if counted else [])}
        assert job["spec"]["maxRetry"] == max(3, keys.get("restarts", 0))
