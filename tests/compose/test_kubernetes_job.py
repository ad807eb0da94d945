"""The rendered Kubernetes Job, run as a kubelet would: a container for each index, with what the
manifest gives it."""

from __future__ import annotations

import json
import os
import re
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster import clean_environment
from tests.containers import IMAGE, container, docker, exit_code, logs, remove, wait
from tests.waits import until

SPEC = """\
name: demo
launcher: mpirun
slots: 2
command: [sh, -c, 'echo "rank $OMPI_COMM_WORLD_RANK on $(hostname)"']
timeouts: {peers: 40, grace: 5}
"""
# Saves, and waits; started again, it goes on and ends.
SAVES = """\
rank=$OMPI_COMM_WORLD_RANK
[ ! -e "/out/$rank" ] || { echo "rank $rank goes on from its checkpoint"; exit 0; }
touch "/out/$rank" && echo "rank $rank saved" && exec sleep 600
"""
WAITS = 'echo "rank $OMPI_COMM_WORLD_RANK runs"; exec sleep 600'


class Kubelet:
    """Starts what a Job asks for. Only fields that it understands may be there."""

    def __init__(self, folder: Path, network: str) -> None:
        self.folder, self.network = folder, network
        self.containers: list[str] = []

    def apply(self, *command: str, mount: str = "") -> None:
        (self.folder / "job.yaml").write_text(SPEC)
        words = [
            "deploy", "kubernetes", "--spec", str(self.folder / "job.yaml"), "--image", IMAGE,
            "--nodes", "2",
        ]  # fmt: skip
        words += ["--mount", mount] if mount else []
        words += ["--", *command] if command else []
        rendered = subprocess.run(
            [sys.executable, "-m", "entrypoint", *words],
            check=True, stdout=subprocess.PIPE, text=True, env=clean_environment(),
        ).stdout  # fmt: skip
        self.parts = {each["kind"]: each for each in yaml.safe_load_all(rendered)}
        self.pod = self.parts["Job"]["spec"]["template"]["spec"]
        for kind, content in (
            ("configMap", self.parts["ConfigMap"]["data"]),
            ("secret", {"secret": secrets.token_hex(32)}),
        ):
            (self.folder / kind).mkdir(mode=0o755)
            for name, text in content.items():
                (self.folder / kind / name).write_text(text)
        (self.folder / "secret/secret").chmod(self.volume("secret")["secret"]["defaultMode"])

    def claim(self, name: str, group: int) -> Path:
        """The folder that stands for a PersistentVolumeClaim, which outlives the Pods."""
        folder = self.folder / name
        if not folder.exists():
            folder.mkdir()
            if os.geteuid() == 0:
                os.chown(folder, 0, group)
            folder.chmod(0o2775 if os.geteuid() == 0 else 0o777)
        return folder

    def volume(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = next(each for each in self.pod["volumes"] if each["name"] == name)
        return found

    def start(self, index: int) -> str:
        (container,) = self.pod["containers"]
        job, service = self.parts["Job"]["metadata"]["name"], self.pod["subdomain"]
        group = self.pod["securityContext"]["fsGroup"]
        if os.geteuid() == 0:  # as the kubelet does for fsGroup
            os.chown(self.folder / "secret/secret", 0, group)
        else:
            (self.folder / "secret/secret").chmod(0o444)
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        words = ["--security-opt", "no-new-privileges", "--read-only", "--cap-drop", "ALL"]
        words += ["--group-add", str(group)]
        words += [
            "--hostname",
            f"{job}-{index}",
            "--network",
            self.network,
            "--network-alias",
            f"{job}-{index}.{service}",
        ]
        for each in container["env"]:
            if "valueFrom" in each:
                path = each["valueFrom"]["fieldRef"]["fieldPath"]
                assert path == "metadata.annotations['batch.kubernetes.io/job-completion-index']"
            value = str(index) if "valueFrom" in each else each["value"].replace("$$", "$")
            words += ["-e", f"{each['name']}={value}"]
        for mount in container["volumeMounts"]:
            (kind,) = (kind for kind in self.volume(mount["name"]) if kind != "name")
            if kind == "emptyDir":  # as the kubelet makes it for fsGroup: no sticky bit
                words += ["--tmpfs", f"{mount['mountPath']}:size=1g,mode=2777,gid={group}"]
            elif kind == "persistentVolumeClaim":
                claim = self.claim(self.volume(mount["name"])[kind]["claimName"], group)
                words += ["-v", f"{claim}:{mount['mountPath']}{':ro' * mount['readOnly']}"]
            else:
                words += ["-v", f"{self.folder / kind}:{mount['mountPath']}:ro"]
        log = self.folder / f"termination-{index}"
        log.touch()
        log.chmod(0o666)
        words += ["-v", f"{log}:/dev/termination-log"]
        program, *args = [word.replace("$$", "$") for word in container["command"]]
        words += ["--entrypoint", program, container["image"]]
        self.containers.append(docker("run", "-d", *words, *args).strip())
        return self.containers[-1]

    def result(self, index: int) -> dict[str, Any]:
        line: dict[str, Any] = json.loads((self.folder / f"termination-{index}").read_text())
        return line

    def probe(self, box: str) -> int:
        command = self.pod["containers"][0]["startupProbe"]["exec"]["command"]
        return container(box).exec_run(command).exit_code

    def said(self) -> str:
        return "".join(f"---\n{logs(each)}" for each in self.containers)


@pytest.fixture
def kubelet(folder: Path, network: str) -> Iterator[Kubelet]:
    made = Kubelet(folder, network)
    yield made
    if made.containers:
        remove(*made.containers)


def test_the_job_runs_with_what_the_manifest_gives_it(kubelet: Kubelet) -> None:
    kubelet.apply()
    both = [kubelet.start(1), kubelet.start(0)]
    wait(*both)
    assert [exit_code(each) for each in both] == [0, 0], kubelet.said()
    places = re.findall(r"rank (\d) on (demo-\d)", kubelet.said())
    assert sorted(places) == [("0", "demo-0"), ("1", "demo-0"), ("2", "demo-1"), ("3", "demo-1")]
    results = [kubelet.result(index) for index in range(2)]
    assert [(each["status"], each["class"], each["job"]) for each in results] == [
        (0, "success", "demo")
    ] * 2
    assert [each["node"] for each in results] == ["demo-0.demo", "demo-1.demo"]


@pytest.mark.promise("Kubernetes sees readiness and the reason of the end")
def test_probes_and_what_a_lost_pod_makes_of_the_others(kubelet: Kubelet) -> None:
    """Not ready before all are there, ready after; the survivor of a killed Pod ends with what the
    policy restarts."""
    kubelet.apply("sh", "-c", WAITS)
    leader = kubelet.start(0)
    until(lambda: "waiting" in logs(leader), "a line of the wait")
    assert kubelet.probe(leader) == 1
    worker = kubelet.start(1)
    until(lambda: kubelet.said().count(" runs\n") == 4, "four ranks")
    assert [kubelet.probe(each) for each in (leader, worker)] == [0, 0]
    container(worker).kill()
    wait(leader)
    counted = kubelet.parts["Job"]["spec"]["podFailurePolicy"]["rules"][1]
    assert counted["action"] == "Count"
    assert exit_code(leader) in counted["onExitCodes"]["values"]
    assert exit_code(leader) == 75, kubelet.said()
    result = kubelet.result(0)
    assert (result["status"], result["class"]) == (75, "infrastructure")
    assert "worker-1 (demo-1.demo) is lost" in result["reason"]


@pytest.mark.promise(
    "a program saves where --mount says, and the next run goes on from there",
    control="a read-only claim, in the same test",
)
@pytest.mark.parametrize("access", ["", ":ro"], ids=["writable", "control: read-only"])
def test_pods_save_in_a_claim(access: str, kubelet: Kubelet) -> None:
    kubelet.apply("sh", "-c", SAVES, mount=f"checkpoints:/out{access}")
    first = [kubelet.start(1), kubelet.start(0)]
    if access:
        wait(*first)
        assert "Read-only file system" in kubelet.said()
        return
    until(lambda: kubelet.said().count(" saved\n") == 4, "four checkpoints")
    docker("kill", *first, check=False)  # one may have ended, since the other is lost
    again = [kubelet.start(1), kubelet.start(0)]
    wait(*again)
    assert [exit_code(each) for each in again] == [0, 0], kubelet.said()
    assert kubelet.said().count(" goes on from its checkpoint\n") == 4
