"""How a job ends on a real Kubernetes, and what is started again: docs/how-to/kubernetes.md, "What
is restarted" and "How a job ended", and the page's own commands."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

from tests.kubernetes.realcluster import (
    DONE,
    ENDED,
    PAGE,
    Namespace,
    block,
    index,
    result,
    terminated,
)

SPEC = """\
name: demo
launcher: mpirun
slots: 1
command: [sh, /out/train.sh]
timeouts: {peers: 120, grace: 5}
"""
# Waits until there is a file `go`; a start after that goes on from there, and ends.
TRAIN = """\
rank=$OMPI_COMM_WORLD_RANK
[ ! -e /out/go ] || { echo "rank $rank goes on"; exit 0; }
trap 'echo "rank $rank saves"; exit 0' TERM
echo "rank $rank trains"
sleep 600 & wait
"""
FAILS = '[ "$OMPI_COMM_WORLD_RANK" = 1 ] || exec sleep 600; echo "no such column"; exit 3'
FAIRLY = 120  # seconds in which a job of some Pods trains again, on a busy machine
BACKOFF = (
    320  # seconds of the Job controller's own: 10 s, doubled for each further Pod of 6 that failed
)


def start(namespace: Namespace, nodes: int, *, fields: str = "", kind: str = "job") -> Path:
    """Start a job that waits on a claim; return its folder, when all its ranks run."""
    out = namespace.folder / "out"
    out.mkdir()
    (out / "train.sh").write_text(TRAIN)
    namespace.volume("checkpoints", out)
    namespace.start(SPEC + fields, nodes, "--mount checkpoints:/out", kind=kind)
    namespace.until(lambda: namespace.printed(" trains") == nodes, 120, "all ranks")
    return out


def uids(namespace: Namespace) -> dict[int, str]:
    """Return the Pod that is there for each index, the newest one."""
    pods = sorted(namespace.pods(), key=lambda pod: str(pod["metadata"]["creationTimestamp"]))
    return {index(pod): pod["metadata"]["uid"] for pod in pods}


def completes(namespace: Namespace, seconds: float = 180, kind: str = "job") -> None:
    """Wait until the job has ended well; it must not fail."""
    resource, done = DONE[kind]

    def complete() -> bool:
        condition = namespace.condition(resource)
        assert "Failed:" not in condition, condition + namespace.said()
        return f"{done}:" in condition

    namespace.until(complete, seconds, f"{resource}: {done}")


def ends(namespace: Namespace) -> set[int]:
    """Return the statuses of the Pods that are left when a job has failed: it deletes the others."""

    def ended() -> bool:
        phases = {pod["status"].get("phase") for pod in namespace.pods()}
        return bool(phases) and phases <= {*ENDED}

    namespace.until(ended, 60, "the end of the Pods that are left")
    return {terminated(pod)["exitCode"] for pod in namespace.pods()}


@pytest.mark.promise("a job's end is what the Job says", control="a job that ends well, in the same file")  # fmt: skip
def test_a_program_s_failure_ends_the_job(namespace: Namespace) -> None:
    """a program's own failure: the Pods exit with its status, and nothing is started again"""
    namespace.start(SPEC.replace("/out/train.sh", f"-c, '{FAILS}'"), 2)
    namespace.until(lambda: "Failed:PodFailurePolicy" in namespace.condition("job"), 120, "Failed")
    assert ends(namespace) == {3}, namespace.said()
    assert {result(pod)["class"] for pod in namespace.pods()} == {"job"}
    assert all("rank 1" in result(pod)["reason"] for pod in namespace.pods())
    lines = namespace.typed(block(PAGE, "custom-columns")).splitlines()
    assert lines[0].split() == ["POD", "RESULT"]
    assert len(lines) == 1 + len(namespace.pods()), "one line for each Pod"
    assert all('{"status": 3, "reason": "' in line for line in lines[1:]), lines
    described = namespace.typed(block(PAGE, "describe job"))
    assert "failed with exit code 3 matching FailJob rule" in described
    assert namespace.printed(" exited with 3; exit 3") == len(namespace.pods()), "their logs stay"


@pytest.mark.parametrize(
    ("kind", "described", "says"),
    [
        ("jobset", "job demo-node-0", "failed with exit code 3 matching FailJob rule"),
        ("jobset", "jobset demo", "FailJobSetFailurePolicyAction"),
        ("mpijob", "mpijob demo", "BackoffLimitExceeded"),
    ],
)
def test_a_failure_under_another_kind(
    kind: str, described: str, says: str, namespace: Namespace
) -> None:
    """a program's own failure under other kinds that heed it: the Pods exit with its status, stay
    with their logs and the reason, and what the page names shows the failure"""
    namespace.start(SPEC.replace("/out/train.sh", f"-c, '{FAILS}'"), 2, kind=kind)
    resource, _ = DONE[kind]
    namespace.until(lambda: "Failed:" in namespace.condition(resource), 120, f"{resource}: Failed")
    assert ends(namespace) == {3}, namespace.said()
    assert says in namespace.typed(f"kubectl describe {described}")
    assert all("rank 1" in result(pod)["reason"] for pod in namespace.pods())
    assert namespace.printed(" exited with 3; exit 3") == len(namespace.pods()), "their logs stay"


def test_a_failure_of_a_trainjob(namespace: Namespace) -> None:
    """a program's own failure under a TrainJob: started again in its Pod, which keeps the reason"""
    namespace.start(SPEC.replace("/out/train.sh", f"-c, '{FAILS}'"), 2, kind="trainjob")

    def reasons() -> str:
        last = "{.items[*].status.containerStatuses[0].lastState.terminated.message}"
        return namespace.typed(f"kubectl get pods -o jsonpath='{last}'")

    namespace.until(lambda: "exited with 3" in reasons(), 120, "a container that is started again")


def test_a_node_with_another_secret(namespace: Namespace) -> None:
    """another secret on one node: the leader exits with 77, and the Job fails at once"""
    seat = f"{namespace.name}.example/seat"
    namespace.seats(seat, "node1", 1)
    namespace.start(SPEC.replace("/out/train.sh", "-c, exit 0"), 2, f"--resource {seat}=1")
    namespace.until(lambda: "] waiting for " in namespace.log(), 90, "a node that waits")
    namespace.typed("kubectl delete secret demo; openssl rand -hex 32 | kubectl create secret generic demo --from-file=secret=/dev/stdin")  # fmt: skip
    namespace.seats(seat, "node2", 1)
    namespace.until(lambda: "Failed:" in namespace.condition("job"), 120, "the Job's end")
    pods = {index(pod): pod for pod in namespace.pods()}
    assert terminated(pods[0])["exitCode"] == 77, namespace.said()
    assert "does not belong to this job" in result(pods[0])["reason"]
    assert "PodFailurePolicy" in namespace.condition("job")


def test_a_killed_container_ends_a_job_without_restarts(namespace: Namespace) -> None:
    """a container is killed, no `restarts`: the Job fails, as the page says"""
    start(namespace, 2)
    namespace.kill(namespace.pods()[1])
    namespace.until(lambda: "Failed:" in namespace.condition("job"), 60, "the Job's end")
    assert "PodFailurePolicy" in namespace.condition("job")
    assert "Complete" not in namespace.condition("job")


@pytest.mark.promise("a killed Pod is started again, and the job continues", control="the same without restarts: the Job fails")  # fmt: skip
@pytest.mark.parametrize("kind", ["job", "jobset"])
def test_a_killed_container_with_restarts(kind: str, namespace: Namespace) -> None:
    """a container is killed, `restarts: 3`: its Pod alone is new, and the job trains again"""
    out = start(namespace, 3, fields="restarts: 3\n", kind=kind)
    before = uids(namespace)
    (out / "go").touch()
    namespace.kill(namespace.pods()[1])
    completes(namespace, FAIRLY, kind)
    after = uids(namespace)
    assert (after[0], after[2]) == (before[0], before[2]), "the others stay"
    assert after[1] != before[1]
    (leader,) = [pod for pod in namespace.pods() if index(pod) == 0]
    assert (result(leader)["status"], result(leader)["attempts"]) == (0, 2)


def test_a_killed_worker_of_an_mpijob_with_restarts(namespace: Namespace) -> None:
    """a container of an MPIJob's worker is killed, `restarts: 3`: the job trains again in the same Pods"""
    out = start(namespace, 2, fields="restarts: 3\n", kind="mpijob")
    before = [pod["metadata"]["uid"] for pod in namespace.pods()]
    (out / "go").touch()
    namespace.kill(namespace.pods()[1])
    completes(namespace, FAIRLY, "mpijob")
    assert [pod["metadata"]["uid"] for pod in namespace.pods()] == before
    assert result(namespace.pods()[0])["attempts"] == 2


@pytest.mark.parametrize("fields", ["", "restarts: 3\n"], ids=["no restarts", "restarts"])
def test_a_lost_pod(fields: str, namespace: Namespace) -> None:
    """a Pod is deleted at once: the job stops, as by SIGTERM, and all its Pods start it again"""
    out = start(namespace, 2, fields=fields)
    before = uids(namespace)
    (out / "go").touch()
    lost = namespace.pods()[1]["metadata"]["name"]
    namespace.typed(f"kubectl delete pod {lost} --force --grace-period=0")
    completes(namespace, FAIRLY)
    assert uids(namespace)[1] != before[1]


def test_all_pods_start_again_soon(namespace: Namespace) -> None:
    """one lost Pod of 6, no `restarts`: all start again, and no backoff grows with their number"""
    out = start(namespace, 6)
    (out / "go").touch()
    lost = namespace.pods()[3]["metadata"]["name"]
    namespace.typed(f"kubectl delete pod {lost} --force --grace-period=0")
    completes(namespace, BACKOFF - 120)


@pytest.mark.parametrize("fields", ["", "restarts: 3\n"], ids=["no restarts", "restarts"])
def test_an_evicted_pod(fields: str, namespace: Namespace) -> None:
    """a Pod is evicted, as by `kubectl drain`: it saves in its grace, and the job trains again"""
    out = start(namespace, 2, fields=fields)
    before = uids(namespace)
    (out / "go").touch()
    namespace.evict(namespace.pods()[1]["metadata"]["name"])
    completes(namespace, FAIRLY)
    assert uids(namespace)[1] != before[1]


@pytest.mark.parametrize("kind", [*DONE])
def test_a_suspended_job_goes_on(kind: str, namespace: Namespace) -> None:
    """a suspended job: ranks get SIGTERM and their grace, no Pod is left; resumed, it trains again"""
    out = start(namespace, 2, kind=kind)
    resource, _ = DONE[kind]
    with followed(namespace) as log:
        suspend(namespace, kind, True)
        namespace.until(lambda: not namespace.pods(), 60, "no Pod")
        assert log.read().count(" saves\n") == 2
    assert "Suspended" in namespace.condition(resource)
    (out / "go").touch()
    suspend(namespace, kind, False)
    completes(namespace, FAIRLY, kind)
    assert namespace.printed(" goes on") == 2


def suspend(namespace: Namespace, kind: str, value: bool) -> None:
    """Suspend a job, or resume it, as a queue does."""
    spec: dict[str, object] = {"suspend": value}
    spec = {"runPolicy": spec} if kind == "mpijob" else spec
    patch = json.dumps({"spec": spec})
    namespace.kubectl("patch", DONE[kind][0], "demo", "--type=merge", "-p", patch)


@contextmanager
def followed(namespace: Namespace) -> Iterator[IO[str]]:
    """The log of worker-0, which has the ranks' lines, until it ends."""
    first = min(namespace.pods(), key=lambda pod: str(pod["metadata"]["name"]))
    with subprocess.Popen(
        ["kubectl", "logs", "-f", first["metadata"]["name"]],
        env=namespace.env, stdout=subprocess.PIPE, text=True,
    ) as follow:  # fmt: skip
        assert follow.stdout
        yield follow.stdout


def test_a_deleted_job_leaves_nothing(namespace: Namespace) -> None:
    """`kubectl delete -f`: ranks save in their grace, and Pods, Service, ConfigMap and policy are gone"""
    start(namespace, 2)
    with followed(namespace) as log:
        namespace.typed("kubectl delete -f demo.yaml")
        namespace.until(lambda: not namespace.pods(), 60, "no Pod")
        assert log.read().count(" saves\n") == 2
    left = namespace.kubectl("get", "jobs,services,networkpolicies,configmaps", "-o", "name")
    assert [name for name in left.split() if name.endswith("/demo")] == []


def test_the_log_is_followed_while_a_pod_waits(namespace: Namespace) -> None:
    """the line for the log waits for containers that take longer than kubectl's own 20 s to start"""
    secret, apply, logs = namespace.deploy(SPEC.replace("/out/train.sh", "-c, 'echo it ran'"), 2)
    namespace.typed(apply)  # without the Secret no container starts, as while an image is pulled
    namespace.until(lambda: _scheduled(namespace) == 2, 60, "two Pods with a node")
    with subprocess.Popen(
        ["bash", "-c", logs], cwd=namespace.folder, env=namespace.env, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    ) as follow:  # fmt: skip
        with pytest.raises(subprocess.TimeoutExpired):
            follow.wait(25)  # longer than the 20 s
        namespace.typed(secret)
        assert follow.stdout
        assert follow.stdout.read().count("it ran\n") == 2


def _scheduled(namespace: Namespace) -> int:
    return sum("nodeName" in pod["spec"] for pod in namespace.pods())


def test_a_restricted_namespace_refuses_others(namespace: Namespace) -> None:
    """the control: where all these jobs run, a Pod that may be root is refused"""
    done = namespace.sh(f"kubectl run other --image={namespace.image} --restart=Never -- true")
    assert done.returncode != 0
    assert "violates PodSecurity" in done.stderr


def test_the_program_s_own_secrets(namespace: Namespace) -> None:
    """the Secret `demo-env`: each of its keys is a variable of the program"""
    (namespace.folder / "FILE").write_text("STORAGE_KEY=k-4711\n")
    namespace.typed("kubectl create secret generic demo-env --from-env-file=FILE")
    check = '[ k-4711 = "$STORAGE_KEY" ] && echo "rank $OMPI_COMM_WORLD_RANK has it"'
    namespace.start(SPEC.replace("/out/train.sh", f"-c, '{check}'"), 2)
    assert namespace.ended(2) == [0, 0], namespace.said()
    assert namespace.printed(" has it") == 2
