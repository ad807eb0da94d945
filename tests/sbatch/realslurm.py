"""A real Slurm in three containers, a controller and two nodes, and what its users type there."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from shlex import split

from tests import TREE
from tests.containers import container, docker, engine, inspect, logs, new_network, remove
from tests.waits import until

IMAGE = "entrypoint-slurm:dev"
NODES = ["node-1", "node-2"]
_OVER = {
    "COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "BOOT_FAIL", "OUT_OF_MEMORY",
    "DEADLINE",
}  # fmt: skip
# As docs/how-to/slurm.md says it; $1 is the spec, the rest are options of `deploy`.
_SUBMIT = (
    '(umask 077; openssl rand -hex 32 >secret); entrypoint deploy slurm --spec "$@" >job.sh; sbatch'
    " --parsable job.sh"
)


class Slurm:
    """`start` it and `submit` jobs to it. `close` leaves nothing behind."""

    def __init__(self) -> None:
        self.network = new_network()
        self.boxes = {name: f"{self.network}-{name}" for name in ("control", *NODES)}
        self.volumes = [f"{self.network}-key", f"{self.network}-shared"]

    def start(self) -> None:
        key, shared = self.volumes
        for volume in self.volumes:
            engine().volumes.create(volume)
        secret = ("-v", f"{key}:/etc/munge")
        folders = ("-v", f"{shared}:/shared", "-v", f"{TREE}/examples:/examples:ro")
        docker(
            "run", "--rm", *secret, *split("--user munge --entrypoint mungekey"), IMAGE, "--create"
        )
        for name, box in self.boxes.items():
            where = ("--hostname", name, "--network", self.network, "--network-alias", name)
            role = "node" if name in NODES else name
            docker("run", "-d", "--name", box, *where, *secret, *folders, IMAGE, role)
        self.name()
        self.idle()

    def name(self) -> None:
        """Write the hosts file of all machines: as in a cluster, the name of one that is down still
        has an address."""
        boxes = {name: inspect(box) for name, box in self.boxes.items()}
        found = {
            name: box["NetworkSettings"]["Networks"][self.network]["IPAddress"]
            for name, box in boxes.items()
        }
        text = "127.0.0.1 localhost\n" + "".join(
            f"{address} {name}\n" for name, address in found.items()
        )
        for box in self.boxes.values():
            docker("exec", box, "sh", "-c", 'printf %s "$1" >/etc/hosts', "sh", text)

    def close(self) -> None:
        remove(*self.boxes.values())
        for volume in self.volumes:
            engine().volumes.get(volume).remove()
        engine().networks.get(self.network).remove()

    def run(self, *words: str, where: str = "/shared", check: bool = True) -> str:
        """stdout of what a user types on the controller's machine."""
        return docker(
            "exec", "-u", "ma-user", "-w", where, self.boxes["control"], *words, check=check
        )

    def idle(self) -> None:
        """Wait until both nodes can take a job."""
        ask = ("sinfo", "--noheader", "--Node", "--format=%T")
        until(
            lambda: self.run(*ask, check=False).split() == ["idle"] * len(NODES),
            "both nodes are idle",
        )

    def submit(
        self,
        *options: str,
        spec: str = "job.yaml",
        example: str = "",
        files: Mapping[str, str] = {},
    ) -> Job:
        """A job in a folder of its own, which has these files or is a copy of an example's."""
        folder = f"/shared/{secrets.token_hex(4)}"
        self.run(*(("cp", "-r", f"/examples/{example}") if example else ("mkdir",)), folder)
        for name, text in files.items():
            self.run("sh", "-c", 'printf %s "$2" >"$1"', "sh", name, text, where=folder)
        return Job(
            self,
            folder,
            self.run("bash", "-euc", _SUBMIT, "bash", spec, *options, where=folder).strip(),
        )

    def kill(self, node: str) -> None:
        """As if its power had failed."""
        container(self.boxes[node]).kill()

    def boot(self, node: str) -> None:
        container(self.boxes[node]).start()
        self.name()

    def said(self) -> str:
        """The last that the controller logged."""
        return logs(self.boxes["control"])[-4000:]


class Job:
    """A job, as its user sees it."""

    def __init__(self, slurm: Slurm, folder: str, number: str) -> None:
        self.slurm, self.folder, self.number = slurm, folder, number

    def show(self) -> dict[str, str]:
        """What Slurm says of it."""
        return dict(
            re.findall(
                r"(\w+)=(\S*)", self.slurm.run("scontrol", "--oneliner", "show", "job", self.number)
            )
        )

    def log(self) -> str:
        """What it printed, in all of its starts."""
        return self.slurm.run("cat", f"slurm-{self.number}.out", where=self.folder, check=False)

    def files(self) -> list[str]:
        return self.slurm.run("ls", where=self.folder).split()

    def says(self, words: str, times: int = 1) -> None:
        until(
            lambda: self.log().count(words) >= times,
            f"job {self.number} says '{words}' {times} times",
        )

    def cancel(self, *options: str, check: bool = True) -> None:
        self.slurm.run("scancel", *options, self.number, check=check)

    def is_over(self) -> bool:
        return self.show()["JobState"] in _OVER

    def ends(self) -> tuple[str, str]:
        """Its state and its exit code, in Slurm's words, once it is over."""
        until(self.is_over, f"job {self.number} is over")
        seen = self.show()
        return seen["JobState"], seen["ExitCode"]
