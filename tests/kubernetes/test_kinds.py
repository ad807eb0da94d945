"""Every kind under a real Kubernetes and the real operators: it trains, and all nodes end with 0.

Each job is started by the commands in the head of its own file, in a restricted namespace.
"""

from __future__ import annotations

import pytest

from tests.kubernetes.realcluster import DONE, EXAMPLES, Namespace, result
from tests.rows import agrees, expected, places

HOSTS = {
    "job": ["demo-0", "demo-1", "demo-2"],
    "jobset": ["demo-node-0-0", "demo-node-0-1", "demo-node-0-2"],
    "mpijob": ["demo-launcher", "demo-worker-0", "demo-worker-1"],
    "trainjob": ["demo-node-0-0", "demo-node-0-1", "demo-node-0-2"],
}
SPEC = """\
name: demo
launcher: {launcher}
slots: {slots}
command: [{command}]
env: {{OMP_NUM_THREADS: "1"}}
timeouts: {{peers: 120, grace: 5}}
"""
COMMANDS = {
    "mpirun": ("python, /examples/mpi/train.py", "1e-10"),
    "torchrun": ("/examples/pytorch/train.py", "1e-10"),
}


@pytest.mark.promise("the jobs of every kind train on a real Kubernetes", control="the number of ranks, and where they run")  # fmt: skip
@pytest.mark.deployed(
    "kubernetes", "--kind {kind}: {nodes} nodes under {launcher}", "a real cluster"
)
@pytest.mark.parametrize("nodes", [2, 3])
@pytest.mark.parametrize("launcher", [*COMMANDS])
@pytest.mark.parametrize("kind", [*DONE])
def test_a_job_trains(kind: str, launcher: str, nodes: int, namespace: Namespace) -> None:
    command, allowed = COMMANDS[launcher]
    slots = 2 if nodes == 2 else 1  # torch's imports are what costs
    namespace.volume("code", EXAMPLES, "ReadOnlyMany")
    spec = SPEC.format(launcher=launcher, slots=slots, command=command)
    logs = namespace.start(spec, nodes, "--mount code:/examples:ro", kind=kind)
    log = namespace.typed(logs, 240)
    assert namespace.ended(nodes) == [0] * nodes, log
    assert places(log) == expected(HOSTS[kind][:nodes], slots), log
    agrees(log, allowed)
    results = [result(pod) for pod in namespace.pods()]
    assert [(each["status"], each["class"], each["job"]) for each in results] == [
        (0, "success", "demo")
    ] * nodes
    resource, done = DONE[kind]
    namespace.until(lambda: done in namespace.condition(resource), 60, f"{resource}: {done}")
