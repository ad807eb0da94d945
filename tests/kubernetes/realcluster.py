"""A namespace of the real cluster that scripts/dev/setup-kubernetes makes, and what a user types
there."""

from __future__ import annotations

import json
import os
import re
import secrets
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests import TREE
from tests.cluster import clean_environment
from tests.containers import MPI4
from tests.waits import until

EXAMPLES = Path(f"{TREE}/examples")
PAGE = f"{TREE}/docs/how-to/kubernetes.md"
PAGE_IMAGE = "registry.example/team/train:1.2"  # as the pages name the reader's image
ENDED = ("Succeeded", "Failed")
# kind -> the resource, and its condition when it has ended well
DONE = {
    "job": ("job.batch", "Complete"),
    "jobset": ("jobset.jobset.x-k8s.io", "Completed"),
    "mpijob": ("mpijob.kubeflow.org", "Succeeded"),
    "trainjob": ("trainjob.trainer.kubeflow.org", "Complete"),
}
Object = dict[str, Any]


def block(page: str, words: str) -> str:
    """Return the shell block of a page that has these words, as it stands there."""
    text = Path(page).read_text(encoding="utf-8")
    found = [each for each in re.findall(r"(?ms)^```sh\n(.*?)^```$", text) if words in each]
    assert len(found) == 1, f"{page}: {len(found)} blocks have {words!r}"
    return str(found[0])


class Namespace:
    """A namespace of its own, with a shell whose `kubectl` and `entrypoint` are for it.

    It enforces the restricted Pod Security Standard, unless `level` is another one.
    """

    def __init__(self, kit: Path, folder: Path, level: str = "restricted") -> None:
        self.folder = folder
        self.image = (kit / "image").read_text().strip()
        assert self.image.partition(":")[0] == MPI4.partition(":")[0], "it has torch and mpi4py"
        self.name = f"ka-{secrets.token_hex(4)}"
        self._volumes: list[str] = []
        tools = [str(kit / "bin"), str(Path(sys.executable).parent)]
        self.env = {
            **clean_environment(),
            "PATH": ":".join([*tools, os.environ["PATH"]]),
            "PYTHONPATH": str(TREE),
        }
        config = self.kubectl("config", "view", "--raw", "--minify", "--flatten")
        (folder / "kubeconfig").write_text(config)
        self.env["KUBECONFIG"] = str(folder / "kubeconfig")
        self.kubectl("create", "namespace", self.name)
        self.kubectl("label", "namespace", self.name, f"pod-security.kubernetes.io/enforce={level}")
        self.kubectl("config", "set-context", "--current", f"--namespace={self.name}")
        until(lambda: self.all("serviceaccounts"), "the default service account")

    def close(self) -> None:
        """Remove the namespace and its volumes; what is left of its Pods ends by itself.

        Its jobs go first: one that still wants Pods, which a namespace that ends does not get, keeps the
        old ones for ever.
        """
        jobs = "kubectl delete jobsets,mpijobs,trainjobs,jobs --all --wait=false"
        self.sh(f"{jobs} || kubectl delete jobs --all --wait=false; kubectl delete pods --all --force --grace-period=0")  # fmt: skip
        self.sh(f"kubectl delete namespace {self.name} --wait=false")
        for volume in self._volumes:
            self.kubectl("delete", "persistentvolume", volume, "--wait=false")

    # ---- what a user types

    def sh(self, text: str, seconds: float = 120) -> subprocess.CompletedProcess[str]:
        """Run shell, as a user types it, with the page's image as the one that is here."""
        words = ["bash", "-uo", "pipefail", "-c", text.replace(PAGE_IMAGE, self.image)]
        return subprocess.run(
            words, cwd=self.folder, env=self.env, capture_output=True, text=True, timeout=seconds,
            check=False,
        )  # fmt: skip

    def typed(self, text: str, seconds: float = 120) -> str:
        """Return stdout of shell that must succeed."""
        done = self.sh(f"set -e; {text}", seconds)
        assert done.returncode == 0, f"{text}: {done.stdout}{done.stderr}"
        return done.stdout

    def kubectl(self, *words: str, given: str | None = None) -> str:
        """Return stdout of a kubectl that must succeed; `given` is its stdin."""
        done = subprocess.run(
            ["kubectl", *words], cwd=self.folder, env=self.env, input=given, capture_output=True,
            text=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"kubectl {' '.join(words)}: {done.stderr}"
        return done.stdout

    def deploy(self, spec: str, nodes: int, *options: str, kind: str = "job") -> list[str]:
        """Write job.yaml and demo.yaml; return the commands that the head of demo.yaml shows: the
        secret, apply, and logs."""
        (self.folder / "job.yaml").write_text(spec)
        words = " ".join(["--kind", kind, "--nodes", str(nodes), *options])
        self.typed(f"entrypoint deploy kubernetes --spec job.yaml --image {PAGE_IMAGE} {words} >demo.yaml")  # fmt: skip
        head = re.match(r"(?:#.*\n)*", (self.folder / "demo.yaml").read_text())
        commands = re.findall(r"(?m)^#   (\S.*)$", head[0] if head else "")
        wanted = [line for line in commands if "-env --from-env-file" not in line]
        return [line.replace("THIS_FILE", "demo.yaml") for line in wanted]

    def start(self, spec: str, nodes: int, *options: str, kind: str = "job") -> str:
        """Deploy and apply a job by what the head of its file says; return the command that shows
        its log."""
        *commands, logs = self.deploy(spec, nodes, *options, kind=kind)
        for command in commands:
            self.typed(command)
        until(lambda: len(self.pods()) == nodes, f"{nodes} Pods")
        return logs

    # ---- what the cluster has

    def all(self, kind: str, selector: str = "") -> list[Object]:
        """Return the objects of a kind, by name."""
        words = ["get", kind, "-o", "json", *(["-l", selector] if selector else [])]
        found: list[Object] = json.loads(self.kubectl(*words))["items"]
        return sorted(found, key=lambda each: str(each["metadata"]["name"]))

    def pods(self) -> list[Object]:
        """Return the job's Pods, in the order of their names."""
        return self.all("pods", "app.kubernetes.io/name=entrypoint")

    def condition(self, kind: str, name: str = "demo") -> str:
        """Return the types of an object's conditions that hold."""
        status = json.loads(self.kubectl("get", kind, name, "-o", "json")).get("status", {})
        held = [each for each in status.get("conditions", []) if each["status"] == "True"]
        return " ".join(f"{each['type']}:{each.get('reason', '')}" for each in held)

    def log(self) -> str:
        """Return what the job's Pods that are there have printed."""
        return self.sh("kubectl logs -l app.kubernetes.io/name=entrypoint --tail=-1 --max-log-requests=20 --ignore-errors").stdout  # fmt: skip

    def said(self) -> str:
        """Return `log`, and what the cluster says about the Pods."""
        return self.log() + self.sh("kubectl get pods -o wide; kubectl get events --sort-by=.lastTimestamp | tail -n 20").stdout  # fmt: skip

    def printed(self, text: str) -> int:
        """Return how many lines of the Pods' logs end with this."""
        return sum(line.endswith(text) for line in self.log().splitlines())

    def ended(self, nodes: int, seconds: float = 180) -> list[int]:
        """Return the statuses of the Pods in the order of their names, when all have ended."""

        def all_ended() -> bool:
            phases = [pod["status"].get("phase") for pod in self.pods()]
            return len(phases) == nodes and all(phase in ENDED for phase in phases)

        self.until(all_ended, seconds, "the end of all Pods")
        return [terminated(pod)["exitCode"] for pod in self.pods()]

    def until(self, condition: Any, seconds: float, what: str) -> None:
        """Wait as tests.waits.until does; say what the Pods printed if it takes too long."""
        try:
            until(condition, what, seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.said()}") from None

    # ---- what happens to it

    def volume(
        self, claim: str, path: Path, access: str = "ReadWriteMany", shared: str = ""
    ) -> None:
        """Make a PersistentVolumeClaim of a folder of this machine, which has all nodes; or with a
        storage class, as `shared` says, the volume alone."""
        volume = f"{self.name}-{claim}"
        size = {"storage": "1Ti" if shared else "1Gi"}
        common = {"accessModes": [access], "storageClassName": shared}
        path.chmod(0o777) if path != EXAMPLES else None
        objects = [
            {
                "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": volume},
                "spec": {
                    **common, "capacity": size, "hostPath": {"path": str(path)},
                    "claimRef": {"namespace": self.name, "name": claim},
                },
            },
            {
                "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": claim},
                "spec": {**common, "resources": {"requests": size}, "volumeName": volume},
            },
        ]  # fmt: skip
        self._volumes.append(volume)
        wanted = objects[:1] if shared else objects
        self.kubectl("apply", "-f", "-", given="\n---\n".join(map(json.dumps, wanted)))

    def kill(self, pod: Object) -> None:
        """Kill a Pod's container by SIGKILL, as the kernel does when memory is used up."""
        (status,) = pod["status"]["containerStatuses"]
        container = status["containerID"].partition("://")[2]
        mine = [pid for pid in processes_of(container) if namespaced(pid) == 1]
        assert mine, f"no process of {container} on this machine"
        for pid in mine:
            os.kill(pid, signal.SIGKILL)

    def evict(self, pod: str) -> None:
        """Evict a Pod, as `kubectl drain` does."""
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}}
        path = f"/api/v1/namespaces/{self.name}/pods/{pod}/eviction"
        self.kubectl("create", "--raw", path, "-f", "-", given=json.dumps(eviction))

    def seats(self, resource: str, node: str, count: int) -> None:
        """Give a node so much of a resource that nothing measures."""
        given = {resource: str(count)}
        patch = {"status": {"capacity": given, "allocatable": given}}
        self.kubectl("patch", "node", node, "--subresource=status", "-p", json.dumps(patch))


def terminated(pod: Object) -> Object:
    """Return how a Pod's container ended; it must have."""
    (status,) = pod["status"]["containerStatuses"]
    end: Object = status["state"]["terminated"]
    return end


def result(pod: Object) -> Object:
    """Return the result that a Pod left in its termination message."""
    found: Object = json.loads(terminated(pod)["message"])
    return found


def index(pod: Object) -> int:
    """Return a Pod's completion index."""
    return int(pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"])


def processes_of(container: str) -> Sequence[int]:
    """Return the processes of this machine that are in a container's cgroup."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and container in (entry / "cgroup").read_text():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def namespaced(pid: int) -> int:
    """Return a process's number in its own PID namespace."""
    status = Path(f"/proc/{pid}/status").read_text()
    line = re.search(r"(?m)^NSpid:.*\s(\d+)$", status)
    return int(line[1]) if line else 0
