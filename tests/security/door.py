"""One node's real sshd with the configuration and keys that a job would give it, and mpirun's
client."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from entrypoint.base.model import Device, Facts, Plan, Site, Topology
from entrypoint.plan import settle
from entrypoint.plan.topology import build
from entrypoint.spec import JobSpec, load
from entrypoint.system import keys
from tests.waits import until

SSHD = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin")
NEEDED = [name for name, there in (("sshd", SSHD), ("ssh", shutil.which("ssh"))) if not there]
needs_ssh = pytest.mark.skipif(bool(NEEDED), reason=f"not on this machine: {', '.join(NEEDED)}")


def located(spec: JobSpec, **about: Any) -> tuple[Facts, Topology]:
    """Return a container of no platform and without accelerators, and where it is in this job."""
    facts = Facts(
        **{
            "env": {},
            "hostname": "a",
            "cwd": "/",
            "uid": 1000,
            "user": "u",
            "home": "/home/u",
            **about,
        }
    )
    return facts, build(spec, facts, Site("local"), Device("cpu", 0, ""))


def planned(
    secret: str, nodes: int = 2, port: int = 36666, run_dir: str = "/tmp/run", user: str = "ma-user",
    env: Mapping[str, str] | None = None, more: str = "", me: int = 0, client: str = "files",
) -> tuple[Any, Plan]:  # fmt: skip
    """What node `me` of a mpirun job would do. All nodes are on this machine, node-0 at 127.0.0.2
    and so on."""
    hosts = ", ".join(
        f"node-{rank}=127.0.{(rank + 2) // 250}.{(rank + 2) % 250}" for rank in range(nodes)
    )
    text = (
        f"hosts: [{hosts}]\nnode_rank: {me}\nssh: {{port: {port}, client: {client}}}\nrun_dir:"
        f" {run_dir}\n{more}"
    )
    spec = load(
        f"launcher: mpirun\ncommand: [hostname]\n{text}",
        "job.yaml",
        {"ENTRYPOINT_SECRET": secret},
        {},
    )
    uid = 0 if user == "root" else 1000
    facts, topology = located(spec, env=env or {}, uid=uid, user=user, home="/nowhere", mpi="4.1.4")
    return spec, settle(spec, facts, topology)


class Door:
    """sshd of node-0, up; everything lies in `folder`. `loosened` are lines of sshd_config instead
    of ours."""

    def __init__(self, folder: Path, secret: str, loosened: str = "", nodes: int = 2) -> None:
        folder.chmod(0o700)
        with socket.socket() as taken:
            taken.bind(("127.0.0.2", 0))
            self.port = int(taken.getsockname()[1])
        self.folder, self.address = folder, "127.0.0.2"
        self.user = pwd.getpwuid(os.geteuid()).pw_name
        spec, plan = planned(
            secret,
            nodes,
            self.port,
            str(folder),
            self.user,
            {"PATH": os.environ["PATH"], "JOB_PATH": "x"},
        )
        texts: dict[str, bytes | str] = {file.name: file.text for file in plan.files if file.text}
        texts.update(keys.load(spec, plan.topology).files())
        if loosened:
            options = {line.split()[0] for line in loosened.splitlines()}
            ours = [
                line
                for line in str(texts["sshd_config"]).splitlines()
                if line.split()[0] not in options
            ]
            texts["sshd_config"] = "\n".join([*ours, loosened, ""])
            texts["authorized_keys"] = str(texts["authorized_keys"]).removeprefix("restrict ")
        for name, text in texts.items():
            (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
            (folder / name).chmod(0o600)
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)
        self.log = folder / "sshd.log"
        assert SSHD
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [SSHD, "-D", "-e", "-f", str(folder / "sshd_config")],
                stderr=log,
                stdin=subprocess.DEVNULL,
            )
        until(self._listens, "sshd")

    def _listens(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        return b"Server listening" in self.log.read_bytes()

    def ssh(self, *words: str, config: str = "") -> subprocess.CompletedProcess[str]:
        """`ssh` as a job would start it; options before the host's name go first."""
        argv = ["ssh", "-F", config or str(self.folder / "ssh_config"), *words]
        return subprocess.run(
            argv, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
        )

    def close(self) -> None:
        self.process.terminate()
        self.process.wait()
