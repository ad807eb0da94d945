"""Every form of `deploy kubernetes`: its Pods boot by the platform's own adapter, and nothing is
lost in silence."""

from __future__ import annotations

from typing import Any

import pytest

from entrypoint.base.model import Facts
from entrypoint.plan import locate
from entrypoint.spec import load
from entrypoint.tools.deploy import kubernetes
from entrypoint.tools.deploy._kinds import KINDS
from entrypoint.tools.deploy._options import Options
from tests.manifests import SPEC, objects, templates
from tests.unit.cases import as_facts

LABELS = {"app.kubernetes.io/name": "entrypoint", "app.kubernetes.io/instance": "demo"}


def environment(job: Any, kind: str, index: int) -> dict[str, str]:
    """The variables of the container node, but for the files that are not here; the only reference
    is to the index."""
    env = (
        job["spec"]["trainer"]["env"]
        if kind == "trainjob"
        else next(templates(job))["spec"]["containers"][0]["env"]
    )
    given = {each["name"]: each.get("value", str(index)) for each in env}
    return {
        name: value
        for name, value in given.items()
        if name not in ("ENTRYPOINT_SPEC", "ENTRYPOINT_SECRET_FILE")
    }


def started(kind: str, nodes: int, text: str = SPEC) -> list[Facts]:
    """The Pods, as the kind's controller starts them: host names, variables and files are those of
    its documents."""
    job = objects(kind, nodes, text)["job"]
    name, spec = job["metadata"]["name"], job["spec"]
    pods = []
    for index in range(nodes):
        env, files, host = {"KUBERNETES_SERVICE_HOST": "10.96.0.1"}, {}, ""
        if kind == "job":
            host, env["JOB_COMPLETION_INDEX"] = f"{name}-{index}", str(index)
        elif kind == "jobset":
            (group,) = spec["replicatedJobs"]
            host, env["JOB_COMPLETION_INDEX"] = f"{name}-{group['name']}-0-{index}", str(index)
        elif kind == "volcano":
            (task,) = spec["tasks"]
            host = f"{name}-{task['name']}-{index}"
            env["VC_TASK_INDEX"] = str(index)
            env[f"VC_{task['name'].upper()}_NUM"] = str(task["replicas"])
            listed = ",".join(
                f"{name}-{task['name']}-{each}.{name}" for each in range(task["replicas"])
            )
            env[f"VC_{task['name'].upper()}_HOSTS"] = listed
        elif kind == "mpijob":
            host = f"{name}-worker-{index - 1}" if index else f"{name}-launcher"
            env["K_MPI_JOB_ROLE"] = "worker" if index else "launcher"
            workers = spec["mpiReplicaSpecs"].get("Worker", {}).get("replicas", 0)
            hosts = [f"{name}-launcher", *(f"{name}-worker-{each}" for each in range(workers))]
            lines = [f"{each}.{name}.team.svc slots={spec['slotsPerWorker']}\n" for each in hosts]
            files = {} if index else {"/etc/mpi/hostfile": "".join(lines)}
        else:
            host = f"{name}-node-0-{index}"
            env |= {"PET_NNODES": str(spec["trainer"]["numNodes"]), "PET_NODE_RANK": str(index)}
            env |= {"PET_MASTER_ADDR": f"{name}-node-0-0.{name}", "PET_NPROC_PER_NODE": "32"}
        pods.append(
            as_facts({"hostname": host, "files": files, "env": env | environment(job, kind, index)})
        )
    return pods


PLATFORMS = {
    "job": "kubernetes",
    "jobset": "jobset",
    "mpijob": "mpijob",
    "trainjob": "trainer",
    "volcano": "volcano",
}


@pytest.mark.promise("the Pods of every kind know the nodes by the platform's own adapter")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("nodes", [1, 3, 12])
def test_every_pod_knows_the_nodes_and_which_it_is(kind: str, nodes: int) -> None:
    pods = started(kind, nodes)
    first = locate(load(SPEC, "job.yaml", pods[0].env, {}), pods[0])
    for index, facts in enumerate(pods):
        topology = locate(load(SPEC, "job.yaml", facts.env, {}), facts)
        assert (topology.platform, topology.job, topology.me) == (PLATFORMS[kind], "demo", index)
        assert topology.nodes == first.nodes
        assert topology.this.host.split(".")[0] == facts.hostname
        assert [node.slots for node in topology.nodes] == [2] * nodes


def test_pods_of_a_job_may_have_host_names_as_a_jobset_s_have() -> None:
    for index, facts in enumerate(started("job", 3, SPEC.replace("demo", "my-model-7"))):
        topology = locate(load("", "job.yaml", facts.env, {}), facts)
        assert (topology.platform, topology.job, topology.me) == ("jobset", "my-model-7", index)
        assert topology.this.host == f"my-model-7-{index}.my-model-7"


@pytest.mark.parametrize("kind", KINDS)
def test_each_pod_has_the_slots_of_its_host(kind: str) -> None:
    text = "name: demo\nhosts: [a:1, b:3]\n"
    for facts in started(kind, 2, text):
        topology = locate(load(text, "job.yaml", facts.env, {}), facts)
        assert [node.slots for node in topology.nodes] == [1, 3]


@pytest.mark.promise("what a kind cannot express is said")
def test_a_trainjob_has_all_of_the_pod_that_it_can_and_names_the_rest() -> None:
    (pod,) = templates(objects("job", 3)["job"])
    made = objects("trainjob", 3, resource=("nvidia.com/gpu=2",))["job"]["spec"]
    (note,) = [each for each in kubernetes.notes(*request("trainjob")) if "left out" in each]
    left_out = note.partition("left out: ")[2].partition(" | ")[0].split(", ")
    (patched,) = templates(made["runtimePatches"])
    (container,) = patched["spec"]["containers"]
    taken = {*patched["spec"], *container, *made["trainer"], "resources"}
    for name in {*pod["spec"], *pod["spec"]["containers"][0]} - {"subdomain"}:
        assert (name in taken) != (name in left_out), name
    assert patched["metadata"] == {"labels": LABELS}
    for name in ("volumes", "securityContext"):
        assert patched["spec"][name] == pod["spec"][name]
    for name in ("name", "volumeMounts", "securityContext"):
        assert container[name] == pod["spec"]["containers"][0][name]
    assert made["trainer"]["resourcesPerNode"] == {"limits": {"nvidia.com/gpu": "2"}}
    assert (made["trainer"]["command"], made["trainer"]["numNodes"]) == (["entrypoint", "run"], 3)


def request(kind: str, text: str = SPEC, **options: Any) -> tuple[Any, Any]:
    return load(text, "job.yaml", {}, {}), Options(image="image", nodes=3, kind=kind, **options)


@pytest.mark.promise(
    "what a kind cannot express is said", control="the kinds that express all, in the same test"
)
@pytest.mark.deployed("kubernetes", "what a --kind lacks", "is said on stderr")
def test_what_a_kind_cannot_express_is_said() -> None:
    words = {kind: " ".join(kubernetes.notes(*request(kind))) for kind in KINDS}
    assert words["job"] == words["jobset"] == ""
    assert "EP808 an MPIJob ignores exit statuses" in words["mpijob"]
    assert "EP808 an MPIJob gets no probes" in words["mpijob"]
    assert "evictions count" in words["volcano"]
    for lost in (
        "ignores exit statuses",
        "startupProbe",
        "envFrom",
        "terminationGracePeriodSeconds",
    ):
        assert lost in words["trainjob"]
    assert all(
        note.count(" | ") == 2 for kind in KINDS for note in kubernetes.notes(*request(kind))
    )


@pytest.mark.promise(
    "a training job's body says what its spec does, and no secret of it",
    control="a spec without one, in the same test",
)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("line", ["# DB_PASSWORD=planted-word", "# https://me:planted-word@host/"])
def test_a_secret_in_a_comment_is_said(kind: str, line: str) -> None:
    """The ConfigMap has the file as it was written."""
    warnings = {
        text: [note for note in kubernetes.notes(*request(kind, spec_text=text)) if "EP802" in note]
        for text in (SPEC, f"{SPEC}{line}\n")
    }
    assert [len(each) for each in warnings.values()] == [0, 1]
    assert "planted" not in str([*warnings.values()])


@pytest.mark.parametrize("kind", KINDS)
def test_the_spec_of_a_job_that_runs_cannot_change(kind: str) -> None:
    assert objects(kind, 3)["ConfigMap"]["immutable"] is True


@pytest.mark.promise(
    "only a job's own Pods are heard", control="one Pod by itself, in the same test"
)
@pytest.mark.parametrize("kind", KINDS)
def test_only_the_job_s_own_pods_are_heard(kind: str) -> None:
    policy, labels = objects(kind, 3)["NetworkPolicy"]["spec"], {"matchLabels": LABELS}
    assert policy == {
        "podSelector": labels, "policyTypes": ["Ingress"], "ingress": [{"from": [{"podSelector": labels}]}],
    }  # fmt: skip
    assert all(
        template["metadata"]["labels"] == LABELS for template in templates(objects(kind, 3)["job"])
    )
    assert "NetworkPolicy" not in objects(kind, 1)  # the control, and one Pod listens to nobody


@pytest.mark.promise(
    "Prometheus reaches the metrics of rendered Pods", control="an own address, in the same test"
)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("address", "is_open", "listens"),
    [("", True, "0.0.0.0"), ("10.1.2.3", True, None), ("127.0.0.1", False, None)],
)
def test_the_metrics_port_is_open_to_everybody(
    kind: str, address: str, is_open: bool, listens: str | None
) -> None:
    text = f"{SPEC}metrics: {{port: 9464{f', address: {address!r}' if address else ''}}}\n"
    manifests = objects(kind, 3, text)
    own, *others = manifests["NetworkPolicy"]["spec"]["ingress"]
    assert "from" in own
    assert others == ([{"ports": [{"port": 9464}]}] if is_open else [])
    job = manifests["job"]
    assert environment(job, kind, 0).get("ENTRYPOINT_METRICS_ADDRESS") == listens
    for pod in templates(job) if kind != "trainjob" else ():
        ports = {
            each["name"]: each["containerPort"] for each in pod["spec"]["containers"][0]["ports"]
        }
        assert ports == {"ssh": 36666} | ({"metrics": 9464} if is_open else {})
