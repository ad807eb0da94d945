"""Specs and options for `entrypoint deploy kubernetes`, drawn by hypothesis, and what is inside the
objects that it renders."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import yaml
from hypothesis import strategies as st

from entrypoint import spec as specs
from entrypoint.tools.deploy import kubernetes
from entrypoint.tools.deploy._options import Options, mounts

Object = dict[str, Any]
SPEC = "name: demo\nslots: 2\ncommand: [python, train.py]\n"
_KEYS: Mapping[str, st.SearchStrategy[Any]] = {
    "name": st.sampled_from(["demo", "my-model-7", "a" * 40]),
    "hosts": st.integers(1, 5).map(lambda count: [f"h{number}:2" for number in range(count)]),
    "spares": st.integers(1, 2),
    "restarts": st.sampled_from([1, 3, 50, 10**12, {"most": 4, "without_progress": 2}]),
    "launcher": st.sampled_from(["mpirun", "torchrun", "plain", "accelerate", "jax"]),
    "device": st.sampled_from(["cpu", "nvidia", "ascend"]),
    "metrics": st.sampled_from(
        [{"port": 9464}, {"port": 36666}, {"port": 9464, "address": "127.0.0.1"}, {}]
    ),
    "ssh": st.sampled_from([{"port": 36666}, {"port": 9464}, {"port": "auto"}]),
    "roll_call": st.just("none"),
    "timeouts": st.sampled_from(
        [{"grace": 0.4}, {"grace": 10**12}, {"peers": 10**12}, {"job": 86400}]
    ),
    "env": st.dictionaries(
        st.sampled_from(["A", "PRICE", "PET_NNODES", "NCCL_DEBUG"]),
        st.sampled_from(["1", "5$ $(HOME)", "", "ä\n", "yes"]),
    ),
    "command": st.sampled_from([["python", "train.py"], ["sh", "-c", "echo $HOME $(id)\n"]]),
    "workdir": st.sampled_from(["/data", "src"]),
    "stall": st.just({"minutes": 3, "action": "stop"}),
    "success": st.just("first"),
}
_MOUNTS = st.sampled_from(["data:/data:ro", "data:/more", "checkpoints:/out", "a.b-c:/tmp/er"])
_RESOURCES = st.sampled_from(
    ["cpu=4", "cpu=1.2.3", "memory=64Gi", "memory=1.5GB", "nvidia.com/gpu=8", "rdma/hca=0.5", "x=1"]
)


def asked(kind: str) -> st.SearchStrategy[tuple[dict[str, Any], dict[str, Any]]]:
    """Return a spec's keys and deploy's options; some contradict each other."""
    keys = st.fixed_dictionaries({"slots": st.integers(1, 16)}, optional=dict(_KEYS))
    options = st.fixed_dictionaries(
        {"kind": st.just(kind), "nodes": st.sampled_from([1, 2, 3, 12]), "image": st.just("i:1")},
        optional={
            "mount": st.lists(_MOUNTS, max_size=3, unique=True),
            "resource": st.lists(_RESOURCES, max_size=2, unique=True),
            "inject": st.sampled_from(
                ["toolkit:1", "registry.example:5000/a/b@sha256:" + "0" * 64]
            ),
            "inject_as": st.sampled_from(["", "copy", "image"]),
            "start": st.just('["/run.sh", "$HOME"]'),
        },
    )
    return st.tuples(keys, options)


def rendered(keys: Mapping[str, Any], options: Mapping[str, Any]) -> str:
    """Return the file. Raises EntrypointError where deploy refuses to render one."""
    text = yaml.safe_dump({"name": "demo", **keys}, allow_unicode=True)
    given = {**options, "mount": mounts(options.get("mount", ()))}
    spec = specs.load(text, "job.yaml", {}, {})
    return kubernetes.render(spec, Options(spec_text=text, **given))


def objects(kind: str, nodes: int, text: str = SPEC, **options: Any) -> dict[str, Any]:
    """Kind -> manifest; the job's under the name `job`."""
    given = Options(image="image", nodes=nodes, kind=kind, spec_text=text, **options)
    *others, job = yaml.safe_load_all(
        kubernetes.render(specs.load(text, "job.yaml", {}, {}), given)
    )
    return {**{each["kind"]: each for each in others}, "job": job}


def templates(value: Any) -> Iterator[Object]:
    """Every Pod template in a value."""
    if isinstance(value, dict) and "containers" in value.get("spec", {}):
        yield value
    elif isinstance(value, (dict, list)):
        for each in value.values() if isinstance(value, dict) else value:
            yield from templates(each)


def inner(manifest: Object) -> Iterator[Object]:
    """Return the Jobs and Pods that a controller makes of an object later, where nobody reads what
    is wrong with them. A TrainJob's are made of its runtime, too: here, of what it says itself."""
    spec = manifest.get("spec", {})
    for group in spec.get("replicatedJobs", ()):
        yield {**_object("batch/v1", "Job"), "spec": group["template"]["spec"]}
    for template in templates(spec):
        pod = {"restartPolicy": "Never", **template["spec"]}
        if "trainer" in spec:
            (container,) = pod["containers"]
            trainer = {name: spec["trainer"][name] for name in ("image", "command", "env")}
            pod["containers"] = [{**container, **trainer}]
        yield {**_object("v1", "Pod", template["metadata"]), "spec": pod}


def _object(version: str, kind: str, metadata: Mapping[str, Any] | None = None) -> Object:
    return {"apiVersion": version, "kind": kind, "metadata": {**(metadata or {}), "name": "inner"}}
