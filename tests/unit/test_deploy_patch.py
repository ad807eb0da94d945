"""Patches of `deploy kubernetes`: what kustomize's users expect of them, and one clear error where they cannot be."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from entrypoint.deploy import kubernetes
from entrypoint.deploy._dump import dump
from entrypoint.deploy._merge import KEYS, merge
from entrypoint.errors import SpecError
from entrypoint.spec import load, read_patches
from tests.golden_deploy import CASES

SPEC = "name: demo\nhosts: [a, b]\nslots: 2\n"


def text(patch: str, spec: str = SPEC, kind: str = "") -> str:
    options = kubernetes.Options(image="image", kind=kind, spec_text=spec, patches=read_patches(patch, "p.yaml"))
    return kubernetes.render(load(spec, "job.yaml", {}, {}), options)


def rendered(patch: str, spec: str = SPEC, kind: str = "") -> dict[str, Any]:
    return {each["kind"]: each for each in yaml.safe_load_all(text(patch, spec, kind))}


def pod(patch: str) -> Any:
    return rendered(patch)["Job"]["spec"]["template"]["spec"]


def inside(patch: str) -> str:
    """A strategic merge of the Pod."""
    return f"{{kind: Job, spec: {{template: {{spec: {patch}}}}}}}"


def node(patch: str) -> Any:
    """The container, with this patch."""
    return pod(inside(f"{{containers: [{{name: node, {patch}}}]}}"))["containers"][0]


# ---------------------------------------------------------------------------------------------------------------
# What every real job has


def golden(case: str) -> dict[str, Any]:
    documents = yaml.safe_load_all((CASES / "kubernetes" / case / "rendered.yaml").read_text())
    return {each["kind"]: each for each in documents}


def test_what_a_cluster_s_job_has() -> None:
    job = golden("patched")["Job"]
    made = job["spec"]["template"]["spec"]
    (container,) = made["containers"]
    env = {each["name"]: each for each in container["env"]}
    assert {"name": "data", "persistentVolumeClaim": {"claimName": "datasets"}} in made["volumes"]
    assert {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "64Gi"}} in made["volumes"]
    assert {"name": "data", "mountPath": "/data"} in container["volumeMounts"]
    assert [each["name"] for each in made["volumes"]] == ["spec", "secret", "shm", "data"]
    assert env["S3_SECRET_KEY"]["valueFrom"]["secretKeyRef"] == {"name": "storage", "key": "secret-key"}
    assert env["REGION"]["valueFrom"]["configMapKeyRef"] == {"name": "site", "key": "region"}
    assert container["envFrom"] == [
        {"secretRef": {"name": "demo-env", "optional": True}}, {"configMapRef": {"name": "site"}},
    ]  # fmt: skip
    assert made["imagePullSecrets"] == [{"name": "registry"}]
    assert made["nodeSelector"] == {"pool": "training"}
    assert made["tolerations"] == [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    assert made["affinity"]["podAntiAffinity"]
    assert [each["topologyKey"] for each in made["topologySpreadConstraints"]] == ["topology.kubernetes.io/zone"]
    assert (made["serviceAccountName"], made["priorityClassName"]) == ("trainer", "training")
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "8", "rdma/hca": "1"}
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["IPC_LOCK"]}
    assert job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "training"
    assert job["spec"]["suspend"] is True
    assert job["spec"]["template"]["metadata"]["labels"]["team"] == "vision"
    assert job["spec"]["template"]["metadata"]["annotations"] == {"sidecar.istio.io/inject": "false"}
    assert len(golden("patched")["NetworkPolicy"]["spec"]["ingress"]) == 2
    # The control: none of it is there without a patch.
    plain = dump(golden("two")["Job"])
    assert not re.search("datasets|S3_SECRET|registry$|tolerations|affinity|trainer|rdma|IPC_LOCK|kueue|vision", plain)


def test_a_kind_that_is_not_kubernetes_own_is_patched_alike() -> None:
    made = golden("jobset-patched")
    (group,) = made["JobSet"]["spec"]["replicatedJobs"]
    inner = group["template"]["spec"]["template"]["spec"]
    assert [each["name"] for each in inner["volumes"]] == ["spec", "secret", "shm", "data"]
    assert [each["mountPath"] for each in inner["containers"][0]["volumeMounts"]][-1] == "/data"
    assert inner["containers"][0]["image"] == "registry.example/team/train:1.2"
    assert "NetworkPolicy" not in made


# ---------------------------------------------------------------------------------------------------------------
# Strategic merge, and operations


def test_merge_keys_are_those_of_the_api() -> None:
    """Of every list in a Job that the API merges; the lists of other kinds are the last three of ours."""
    folder = Path(str(kubernetes_validate.__file__)).parent / "kubernetes-json-schema/v1.37.0-local-strict"
    definitions = json.loads((folder / "_definitions.json").read_text())["$defs"]
    found: dict[str, set[str]] = {}
    seen = {""}

    def look(schema: Any) -> None:
        name = schema.get("$ref", "").rpartition("/")[2]
        if name not in seen:
            seen.add(name)
            look(definitions[name])
        for name, field in schema.get("properties", {}).items():
            if key := field.get("x-kubernetes-patch-merge-key"):
                found.setdefault(name, set()).add(key)
            look(field)
            look(field.get("items") or {})

    look(definitions["io.k8s.api.batch.v1.Job"])
    of_pods = {name: key for name, key in KEYS.items() if name not in ("replicatedJobs", "tasks", "runtimePatches")}
    # Nobody writes owners or the status.
    assert {name: keys for name, keys in found.items() if name not in ("ownerReferences", "conditions")} == {
        name: {key} for name, key in of_pods.items()
    }


@pytest.mark.parametrize(
    ("base", "patch", "made"),
    [
        ({"a": 1, "b": {"c": 2, "d": 3}}, {"b": {"c": 4}}, {"a": 1, "b": {"c": 4, "d": 3}}),
        ({"a": 1, "b": 2}, {"b": None}, {"a": 1}),
        ({"a": 1}, {"b": {"c": None, "d": 1}}, {"a": 1, "b": {"d": 1}}),
        ({"a": {"b": 1}}, {"a": {"$patch": "replace", "c": 2}}, {"a": {"c": 2}}),
        ({"a": {"b": 1}}, {"a": {"$patch": "merge", "c": 2}}, {"a": {"b": 1, "c": 2}}),
        ({"a": {"b": 1}, "c": 2}, {"a": {"$patch": "delete"}}, {"c": 2}),
        ({"a": {"b": 1}}, {"a": "text"}, {"a": "text"}),
        ({"args": ["a", "b"]}, {"args": ["c"]}, {"args": ["c"]}),
        ({"tolerations": [{"key": "a"}]}, {"tolerations": [{"key": "b"}]}, {"tolerations": [{"key": "b"}]}),
        ({}, {"env": [{"name": "a", "value": None}]}, {"env": [{"name": "a"}]}),
        (
            {"env": [{"name": "a", "value": "1"}, {"name": "b", "value": "2"}]},
            {"env": [{"name": "c"}, {"name": "a", "value": "3"}]},
            {"env": [{"name": "a", "value": "3"}, {"name": "b", "value": "2"}, {"name": "c"}]},
        ),
        (
            {"volumeMounts": [{"mountPath": "/a", "name": "x"}, {"mountPath": "/b", "name": "x"}]},
            {"volumeMounts": [{"mountPath": "/a", "$patch": "delete"}, {"mountPath": "/c", "name": "x"}]},
            {"volumeMounts": [{"mountPath": "/b", "name": "x"}, {"mountPath": "/c", "name": "x"}]},
        ),
        (
            {"hostAliases": [{"ip": "10.0.0.1", "hostnames": ["a"]}]},
            {"hostAliases": [{"$patch": "replace"}, {"ip": "10.0.0.2", "hostnames": ["b"]}]},
            {"hostAliases": [{"ip": "10.0.0.2", "hostnames": ["b"]}]},
        ),
    ],
)
def test_a_strategic_merge(base: Any, patch: Any, made: Any) -> None:
    before = dump(base), dump(patch)
    assert merge(base, patch) == made
    assert (dump(base), dump(patch)) == before


def test_a_patch_of_lists_stays_in_order() -> None:
    assert [each["name"] for each in node("env: [{name: NEW, value: x}]")["env"]][-1] == "NEW"
    assert node("image: other")["image"] == "other"
    sidecar = pod(inside("{containers: [{name: log, image: i}]}"))["containers"]
    assert [each["name"] for each in sidecar] == ["node", "log"]


def test_operations() -> None:
    made = rendered(
        "target: {kind: Job, name: demo, group: batch, version: v1}\n"
        "patch:\n"
        "- {op: test, path: /spec/completions, value: 2}\n"
        "- {op: add, path: /metadata/labels/kueue.x-k8s.io~1queue-name, value: training}\n"
        "- {op: replace, path: /spec/backoffLimit, value: 9}\n"
        "- {op: remove, path: /spec/template/spec/containers/0/readinessProbe}\n"
    )["Job"]
    assert made["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "training"
    assert made["spec"]["backoffLimit"] == 9
    assert "readinessProbe" not in made["spec"]["template"]["spec"]["containers"][0]


def test_a_target_may_have_a_part_of_the_object() -> None:
    assert rendered("{target: {kind: Job}, patch: {spec: {suspend: true}}}")["Job"]["spec"]["suspend"] is True
    assert "NetworkPolicy" not in rendered("{target: {kind: NetworkPolicy}, patch: {$patch: delete}}")


def test_volcano_s_job_is_another_than_kubernetes() -> None:
    """Its Pods are elsewhere in it: a patch of a Job would be lost there."""
    theirs = "apiVersion: batch.volcano.sh/v1alpha1\nkind: Job\nspec: {queue: training}"
    assert rendered(theirs, kind="volcano")["Job"]["spec"]["queue"] == "training"
    with pytest.raises(SpecError, match=re.escape("batch.volcano.sh/v1alpha1 Job demo")):
        text("kind: Job\nspec: {queue: training}", kind="volcano")


def test_the_spec_s_patches_come_first_and_files_in_their_order() -> None:
    spec = f"{SPEC}kubernetes: {{patch: [{{kind: Job, spec: {{backoffLimit: 1, suspend: true}}}}]}}"
    assert rendered("", spec)["Job"]["spec"]["backoffLimit"] == 1
    two = "kind: Job\nspec: {backoffLimit: 2}\n---\n---\n- {kind: Job, spec: {backoffLimit: 3}}\n"
    made = rendered(two, spec)["Job"]["spec"]
    assert (made["backoffLimit"], made["suspend"]) == (3, True)


def test_what_no_patch_is_for_stays_as_it_was_written() -> None:
    plain, made = text(""), text("kind: Job\nspec: {suspend: true}")
    before, after = plain.split("\n---\n"), made.split("\n---\n")
    assert after[:-1] == before[:-1]
    assert before[-1] != after[-1]
    assert "# Patched, and so without its comments: p.yaml:1:1\n" in after[-1]
    first = text("kind: Service\nmetadata: {labels: {a: b}}")
    assert first.startswith(plain[: plain.index("apiVersion")])  # what to type is still there
    assert first.endswith(plain[plain.index("\n---\n") :])


def test_a_patched_spec_still_travels_byte_for_byte() -> None:
    for spec in (f"{SPEC}# ä 😀\n", f"{SPEC}\n\n", SPEC.rstrip(), f"{SPEC}#\ta tab \n"):
        made = rendered("kind: ConfigMap\nmetadata: {labels: {a: b}}", spec)["ConfigMap"]
        assert made["data"] == {"job.yaml": spec}
        assert made["metadata"]["labels"]["a"] == "b"


@pytest.mark.parametrize(
    "value", ["yes", "No", "off", "1e3", "0440", "0x1F", "1_000", "~", "null", "12:30", "2024-01-01", ".5", "a: b", "",
              "- a", "a #b", "{a}", "*a", "&a", "!a", "a\nb", "a\n\n", "ä", "😀", "\u2028", "\x85", "'", '"', "y"],
)  # fmt: skip
def test_text_stays_text_for_every_reader(value: str) -> None:
    written = dump({"a": value})
    assert yaml.safe_load(written) == {"a": value}
    assert written.startswith(('a: "', "a: |")), written


def test_values_of_a_patch_are_those_of_kubernetes_yaml() -> None:
    spec = load(
        "kubernetes: {patch: [{kind: Job, a: true, b: 0440, c: 1.5, d: null, e: ['x', 3], f: 'no'}]}", "f", {}, {}
    )
    (patch,) = spec.kubernetes.patch
    assert patch.value == {"kind": "Job", "a": True, "b": 0o440, "c": 1.5, "d": None, "e": ["x", 3], "f": "no"}
    assert patch.where == "f:1:22"


def test_a_variable_may_bring_patches_and_no_container_hears_of_them() -> None:
    env = {"ENTRYPOINT_KUBERNETES_PATCH": '[{"kind": "Job", "spec": {"suspend": true, "backoffLimit": null}}]'}
    made = kubernetes.render(load(SPEC, "job.yaml", env, {}), kubernetes.Options(image="image", spec_text=SPEC))
    (job,) = [each for each in yaml.safe_load_all(made) if each["kind"] == "Job"]
    assert (job["spec"]["suspend"], "backoffLimit" in job["spec"]) == (True, False)
    env = {each["name"] for each in job["spec"]["template"]["spec"]["containers"][0]["env"]}
    assert env == {f"ENTRYPOINT_{name}" for name in ("SPEC", "NAME", "HOSTS", "SECRET_FILE", "NODE_RANK")}


# ---------------------------------------------------------------------------------------------------------------
# What cannot be


NO_OBJECT = "EP810 no rendered object is what this patch is for"
THERE_ARE = "there are: v1 Service demo, v1 ConfigMap demo, networking.k8s.io/v1 NetworkPolicy demo, batch/v1 Job demo"
NEEDS = "EP811 the job needs what this patch takes from"
PLAIN = "EP100 text, a number, true or false is needed"


@pytest.mark.parametrize(
    ("patch", "message"),
    [
        ("kind: Deployment", f"p.yaml:1:1: {NO_OBJECT} | kind Deployment | {THERE_ARE}"),
        (
            "\n\nkind: Job\nmetadata: {name: other}",
            f"p.yaml:3:1: {NO_OBJECT} | kind Job, name other, group batch | {THERE_ARE}",
        ),
        (
            "kind: Job\napiVersion: batch.volcano.sh/v1alpha1",
            f"{NO_OBJECT} | kind Job, group batch.volcano.sh, version",
        ),
        (
            "target: {kind: Job, name: x}\npatch: []",
            f"p.yaml:1:1: {NO_OBJECT} | kind Job, name x, group batch | {THERE_ARE}",
        ),
        ("{kind: NetworkPolicy, $patch: delete}\n---\nkind: NetworkPolicy", f"p.yaml:3:1: {NO_OBJECT} |"),
        ("spec: {}", "p.yaml:1:1: EP810 whose patch is it? | it has spec | give it the object's kind, such as Job"),
        ("text", 'p.yaml:1:1: EP100 a patch is a mapping | "text" | give it a kind, or a target and a patch'),
        (
            "target: {kind: Job, labelSelector: a}\npatch: []",
            "p.yaml:1:1: EP810 a patch with a target has a patch, and noth",
        ),
        (
            "target: {kind: Job}",
            "EP810 a patch with a target has a patch, and nothing else | target | write target: {kind: Job} and",
        ),
        ("target: {kind: Job}\npatch: text", "EP810 this is no patch | each operation has op and path | write a list"),
        (
            "target: {kind: Job}\npatch: [{op: add}]",
            "EP810 this is no patch | each operation has op and path | write a list",
        ),
        (
            "target: {kind: Job}\npatch: [{op: remove, path: /spec/nothing}]",
            "p.yaml:1:1: EP810 an operation fails"
            " | remove /spec/nothing: can't remove a non-existent object 'nothing' | see",
        ),
        ("target: {kind: Job}\npatch: [{op: grow, path: /spec}]", "EP810 an operation fails | grow /spec: "),
        (
            "target: {kind: Job}\npatch: [{op: test, path: /spec/completions, value: 9}]",
            "EP810 an operation fails | test /spec",
        ),
        ("target: {kind: Job}\npatch: [{op: add, path: spec/a, value: 1}]", "EP810 an operation fails | add spec/a: "),
        ("target: {kind: Job}\npatch: [{op: add, path: /spec/a}]", "EP810 an operation fails | add /spec/a: "),
        (
            inside("{containers: [{image: i}]}"),
            "EP810 an entry of containers is told by its name | one without name | give",
        ),
        (
            inside("{tolerations: [{key: a, $patch: delete}]}"),
            "EP810 no entry of this list can be deleted, since it is repl",
        ),
        (
            inside("{volumes: [{name: x, $patch: delete}]}"),
            "EP810 volumes has no such entry | name: x; it has spec, secret, shm",
        ),
        (
            inside("{$retainKeys: [a]}"),
            "EP810 there is no such directive | $retainKeys | use $patch: delete, $patch: replace",
        ),
        (inside("{$patch: remove}"), "EP810 there is no such directive | $patch: remove | use $patch: delete"),
        (
            inside("{volumes: [{$patch: replace, name: x}]}"),
            "EP810 `$patch: replace` of a list stands alone | in volumes |",
        ),
        # What the job needs.
        (
            inside("{containers: [{name: node, $patch: delete}]}"),
            f"{NEEDS} Job demo | spec.template.spec.containers.node.n",
        ),
        (
            "{kind: Job, spec: {completions: 3}}",
            f"p.yaml:1:1: {NEEDS} Job demo | spec.completions | leave that as it is;",
        ),
        ("{kind: Job, spec: {template: {$patch: delete}}}", f"{NEEDS} Job demo | spec.template.metadata.labels."),
        (
            "target: {kind: Job}\npatch: [{op: replace, path: /spec/template/spec/containers/0/name, value: main}]",
            f"{NEEDS} Job demo | spec.template.spec.containers.node.name",
        ),
        (
            inside("{containers: [{name: node, env: [{name: ENTRYPOINT_HOSTS, value: a}]}]}"),
            f"{NEEDS} Job demo | spec.template.spec.containers.node.env.ENTRYPOINT_HOSTS.value | leave",
        ),
        ("{target: {kind: Job}, patch: {metadata: {name: other}}}", f"{NEEDS} Job demo | metadata.name |"),
        ("{kind: Job, $patch: delete}", f"{NEEDS} Job demo | apiVersion, kind, metadata.name |"),
        ("{kind: Service, $patch: delete}", f"{NEEDS} Service demo | apiVersion, kind, metadata.name |"),
        ('target: {kind: Job}\npatch: [{op: replace, path: "", value: []}]', f"{NEEDS} Job demo | apiVersion,"),
        # Whoever reads the file would have it.
        (
            inside("{containers: [{name: node, env: [{name: S3_SECRET_KEY, value: planted}]}]}"),
            "EP802 a manifest is no place for secrets"
            " | env S3_SECRET_KEY | take it from a Secret: valueFrom: {secretKeyRef:",
        ),
        (
            inside("{containers: [{name: node, env: [{name: DATABASE, value: 'http://me:planted@host'}]}]}"),
            "EP802 a manifest is no place for secrets | env DATABASE | take it",
        ),
    ],
)
def test_what_cannot_be_patched(patch: str, message: str) -> None:
    with pytest.raises(SpecError) as caught:
        text(patch)
    (line,) = caught.value.lines()
    assert message in line
    assert line.startswith("p.yaml:")
    assert "planted" not in line


@pytest.mark.parametrize(
    ("kind", "patch", "lost"),
    [
        (
            "jobset",
            "{kind: JobSet, spec: {replicatedJobs: [{name: node, replicas: 2}]}}",
            "spec.replicatedJobs.node.repl",
        ),
        (
            "jobset",
            "{kind: JobSet, spec: {replicatedJobs: [{name: node, $patch: delete}]}}",
            "spec.replicatedJobs.node.",
        ),
        (
            "mpijob",
            "{kind: MPIJob, spec: {mpiReplicaSpecs: {Worker: {replicas: 5}}}}",
            "spec.mpiReplicaSpecs.Worker.repl",
        ),
        (
            "mpijob",
            "{kind: MPIJob, spec: {mpiReplicaSpecs: {Launcher: {template: null}}}}",
            "spec.mpiReplicaSpecs.Laun",
        ),
        ("trainjob", "{kind: TrainJob, spec: {trainer: {numNodes: 3}}}", "spec.trainer.numNodes | leave that as it is"),
        (
            "trainjob",
            "{kind: TrainJob, spec: {trainer: {env: [{name: ENTRYPOINT_HOSTS, $patch: delete}]}}}",
            "spec.trainer.env.ENTRYPOINT_HOSTS.value | leave that as it is",
        ),
        (
            "trainjob",
            "{kind: TrainJob, spec: {runtimePatches: [{manager: entrypoint, $patch: delete}]}}",
            "spec.runtimeP",
        ),
        (
            "volcano",
            "{kind: Job, apiVersion: batch.volcano.sh/v1alpha1, spec: {tasks: [{name: node, replicas: 3}]}}",
            "spec.tasks.node.replicas | leave that as it is",
        ),
    ],
)
def test_every_kind_keeps_what_its_job_needs(kind: str, patch: str, lost: str) -> None:
    with pytest.raises(SpecError, match=re.escape(f"p.yaml:1:1: {NEEDS} ")) as caught:
        text(patch, kind=kind)
    assert lost in str(caught.value)


def test_a_runtime_s_patch_of_another_manager_is_welcome() -> None:
    """The control, in another order than ours."""
    patch = "target: {kind: TrainJob}\npatch: [{op: add, path: /spec/runtimePatches/0, value: {manager: other}}]"
    assert len(rendered(patch, kind="trainjob")["TrainJob"]["spec"]["runtimePatches"]) == 2


@pytest.mark.parametrize(
    ("patch", "lines"),
    [
        (
            "kind: Job\nspec: {suspend: yes, template: {metadata: {annotations: {day: 2024-01-01}}}}",
            [
                f"p.yaml:2:17: spec.suspend: {PLAIN} | YAML reads yes as the boolean true"
                ' | quote it: "yes", or write true or false',
                f"p.yaml:2:63: spec.template.metadata.annotations.day: {PLAIN} | YAML reads 2024-01-01 as a date"
                ' | quote it: "2024-01-01", or write true or false',
            ],
        ),
        ("kind: Job\nspec: {a: .inf}", ["p.yaml:2:11: spec.a: EP100 JSON has no such number" " | YAML reads .inf as the number"  # noqa: E501
                                        " inf | write another value, or quote it"]),
        ("kind: Job\nspec: {a: 1, a: 2}", ["p.yaml:2:14: spec.a: EP103 this key is given twice | first at p.yaml:2:8"
                                           " | keep one of them"]),
        ("kind: [", ["p.yaml:1:8: EP101 this is not YAML" " | while parsing a flow node: expected the node content, but found "  # noqa: E501
                     "'<stream end>' | fix the indentation, quotes or brackets here"]),
    ],
)  # fmt: skip
def test_a_file_that_is_no_patch_is_told_with_all_its_mistakes(patch: str, lines: list[str]) -> None:
    with pytest.raises(SpecError) as caught:
        read_patches(patch, "p.yaml")
    assert caught.value.lines() == lines


@pytest.mark.parametrize(
    ("given", "line"),
    [
        (
            "{kind: Job}",
            "f:1:21: kubernetes.patch: EP100 a list of patches is needed | a mapping | write it as a list, one entry",
        ),
        (
            "[Job]",
            'f:1:22: kubernetes.patch.0: EP100 a patch is a mapping | "Job" | give it a kind, or a target and a patch',
        ),
        (
            "[{kind: Job, a: no}]",
            "f:1:37: kubernetes.patch.0.a: EP100 text, a number, true or false is needed | YAML reads no",
        ),
    ],
)
def test_a_wrong_patch_of_the_spec_has_its_place(given: str, line: str) -> None:
    with pytest.raises(SpecError) as caught:
        load(f"kubernetes: {{patch: {given}}}", "f", {}, {})
    assert caught.value.lines()[0].startswith(line)


def test_a_secret_of_the_job_s_own_is_not_the_patch_s() -> None:
    """The control of those above: what is there without a patch is no mistake of its."""
    assert "S3_SECRET_KEY" in text("kind: Job\nspec: {suspend: true}", f"{SPEC}command: [echo, S3_SECRET_KEY]\n")
    kept = inside("{containers: [{name: node, env: [{name: NOTE, value: planted}]}]}")
    assert "planted" in text(kept)
