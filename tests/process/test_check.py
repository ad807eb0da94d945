"""`entrypoint check` on one node: what it asks, how long it waits for an answer, and how it
ends."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from shlex import split
from typing import Any

import pytest

from entrypoint import spec as specs
from entrypoint.base.model import Facts
from entrypoint.features.health import probes
from entrypoint.features.health.probe import Inputs
from entrypoint.features.health.probes.container import Cpus, Memory
from entrypoint.features.health.probes.network import Port, Rdma
from entrypoint.plan import settle
from entrypoint.system import preflight
from tests import command
from tests.cluster import BEGIN, SMALL, free_port
from tests.command import captured
from tests.process.bench import executable
from tests.waits import until

pytestmark = pytest.mark.see

SECRET = os.urandom(16).hex()
TORCH = """
class version:
    cuda = "12.1"
    hip = None
class cuda:
    class nccl:
        version = staticmethod(lambda: (2, 20, 5))
    @staticmethod
    def is_available():
        import warnings
        warnings.warn("The NVIDIA driver on your system is too old (found version 11040).")
        return False
    device_count = staticmethod(lambda: 0)
class distributed:
    is_available = staticmethod(lambda: True)
    is_gloo_available = staticmethod(lambda: True)
    is_mpi_available = staticmethod(lambda: False)
    is_nccl_available = staticmethod(lambda: True)
__version__ = "2.4.0+cu121"
"""
HOROVOD = """
mpi_built, gloo_built, nccl_built = (lambda: True), (lambda: True), (lambda: False)
"""


class Node:
    """A container's view: `bin` is the first folder of PATH, `site` of PYTHONPATH."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("bin", "site", "cwd"):
            (folder / name).mkdir()
        self.program("python3", f'exec {sys.executable} "$@"')
        self.env = {
            "PATH": f"{folder}/bin:/usr/bin:/bin",
            "PYTHONPATH": f"{folder}/site",
            "ENTRYPOINT_RUN_DIR": f"{folder}/run",
        }

    def program(self, name: str, text: str) -> None:
        """Put a shell script on PATH."""
        executable(self.folder / "bin" / name, text)

    def library(self, name: str, text: str) -> None:
        """Put a Python module where the image's Python finds it."""
        file = self.folder / "site" / f"{name.replace('.', '/')}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def do(self, *words: str, code: str = BEGIN, **env: str) -> subprocess.CompletedProcess[str]:
        """Run the entrypoint."""
        if code == BEGIN:
            return command.run(self.folder / "cwd", *words, env={**self.env, **env})
        argv = [sys.executable, "-I", "-c", code, *words]
        env = {**self.env, **env}
        return captured(argv, cwd=self.folder / "cwd", env=env)

    def found(self, *words: str, status: int = 0, **env: str) -> dict[str, Any]:
        """The JSON of a check."""
        done = self.do("check", "--json", *words, **env)
        assert done.returncode == status, done.stderr + done.stdout
        whole: dict[str, Any] = json.loads(done.stdout)
        return whole


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def is_there(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def bad(whole: dict[str, Any], *ids: str) -> list[tuple[str, str]]:
    """Level and what was seen of the lines with these ids that are not well."""
    return [
        (it["level"], it["seen"])
        for it in whole["findings"]
        if it["level"] != "ok" and it["id"] in ids
    ]


@pytest.mark.control("no tool, library or file system that hangs holds up a check")
def test_a_node_that_is_well(node: Node) -> None:
    done = node.do("check", "--", "python3", "-c", "pass")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("job job: 1 node, 1 rank, launcher plain\n\n")
    assert f"at{node.folder}/bin/python3" in "".join(done.stdout.split())
    assert max(map(len, done.stdout.splitlines())) <= 140, "a narrow terminal's table fits"
    assert done.stderr.startswith("[entrypoint] done: check of 1 node: ")
    # it writes nothing
    assert sorted(each.name for each in node.folder.iterdir()) == ["bin", "cwd", "site"]


def test_what_run_would_refuse_is_78(node: Node) -> None:
    whole = node.found("--device", "nvidia", "--", "python3", status=78)
    assert bad(whole, "refused") == [("error", "0 /dev/nvidia*")]
    assert "1 error" in whole["reason"]


def test_the_platform_s_evidence_and_no_secret_are_told(node: Node) -> None:
    hosts = split("--hosts a=127.0.0.2,b=127.0.0.3 --node-rank 1")
    whole = node.found(*hosts, ENTRYPOINT_SECRET=SECRET)
    assert list(whole["observed"]) == ["worker-1"]
    assert "hosts from flag --hosts" in whole["observed"]["worker-1"]["evidence"]
    assert SECRET not in json.dumps(whole)


def test_the_image_s_python_tells_what_torch_and_horovod_were_built_for(node: Node) -> None:
    node.library("torch", TORCH)
    node.library("horovod.__init__", '__version__ = "0.28.1"')
    node.library("horovod.torch", HOROVOD)
    (seen,) = node.found("--", "python3", "train.py")["observed"].values()
    known = {each["name"]: each["value"] for each in seen["libraries"]}
    del known["packages"]
    assert known == {
        "torch": "2.4.0+cu121",
        "torch cuda": "12.1",
        "torch nccl": "2.20.5",
        "torch backends": "gloo nccl",
        "torch cuda.is_available": "no",
        "torch cuda.device_count": "0",
        "torch why": "The NVIDIA driver on your system is too old (found version 11040).",
        "horovod": "0.28.1",
        "horovod mpi": "yes",
        "horovod gloo": "yes",
        "horovod nccl": "no",
    }


def test_a_library_that_hangs_or_cannot_be_imported(node: Node) -> None:
    node.library("torch", TORCH)
    node.library("horovod.__init__", "import time; time.sleep(1000)")
    whole = node.found("--limit", "2", "--", "python3")
    assert bad(whole, "unseen") == [("warning", "no answer within 2s")]
    (seen,) = whole["observed"].values()
    assert {"name": "torch", "value": "2.4.0+cu121"} in seen["libraries"]
    node.library("horovod.__init__", "import horovod_lib")
    why = "cannot be imported: No module named 'horovod_lib'"
    assert ("warning", why) in bad(node.found("--", "python3"), "horovod")


@pytest.mark.promise("no tool, library or file system that hangs holds up a check")
def test_a_tool_that_never_ends_is_named_and_killed(node: Node) -> None:
    node.program("nvidia-smi", f"echo $$ > {node.folder}/pid; trap '' TERM; sleep 1000 & wait")
    whole = node.found("--limit", "1")
    # On a busy machine Python's libraries may take longer than this second, too.
    assert "nvidia-smi" in [each["what"] for each in whole["findings"] if each["id"] == "unseen"]
    group = int((node.folder / "pid").read_text())
    until(lambda: not is_there(group), "it is killed, with what it has started")


def test_a_tool_of_cards_that_are_not_here_is_no_line(node: Node) -> None:
    why = "NVIDIA-SMI has failed because it could not communicate with the driver"
    node.program("nvidia-smi", f"echo {why}; exit 9")
    assert bad(node.found(), "unseen") == []


def test_a_tool_that_ends_with_an_error_is_read_all_the_same(node: Node) -> None:
    """nvidia-smi ends with 14 where one card's infoROM is corrupted, and says so behind its XML."""
    name = "<product_name>X</product_name>"
    xml = f"<nvidia_smi_log><gpu id='00000000:18:00.0'>{name}</gpu></nvidia_smi_log>"
    words = "WARNING: infoROM is corrupted at gpu 0000:18:00.0"
    node.program("nvidia-smi", f'echo "{xml}"; echo "{words}"; exit 14')
    found = bad(node.found(), "accelerator-health")
    assert found == [("warning", "its infoROM is corrupted")]


def test_ports_of_rdma_devices_as_the_kernel_shows_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """InfiniBand at NDR, RoCE with its cable out, and EFA, which is neither; what cannot be read is
    empty."""
    ports = {
        "mlx5_0": ("InfiniBand", "4: ACTIVE", "400 Gb/sec (4X NDR)"),
        "mlx5_bond_0": ("Ethernet", "1: DOWN", "40 Gb/sec (4X QDR)"),
        "rdmap16s27": ("Unspecified", "4: ACTIVE", "100 Gb/sec (4X EDR)"),
        "siw0": (None, "2: INIT", None),
    }
    for device, files in ports.items():
        folder = tmp_path / "sys/class/infiniband" / device / "ports/1"
        folder.mkdir(parents=True)
        for name, text in zip(("link_layer", "state", "rate"), files, strict=True):
            if text:
                (folder / name).write_text(f"{text}\n")
    (tmp_path / "dev/infiniband").mkdir(parents=True)
    for name in ("uverbs0", "uverbs1", "rdma_cm"):
        (tmp_path / "dev/infiniband" / name).touch()
    found = Rdma.read(INPUTS, tmp_path)
    assert found["ports"] == (
        Port("mlx5_0", "1", "InfiniBand", "ACTIVE", "400 Gb/sec (4X NDR)"),
        Port("mlx5_bond_0", "1", "Ethernet", "DOWN", "40 Gb/sec (4X QDR)"),
        Port("rdmap16s27", "1", "Unspecified", "ACTIVE", "100 Gb/sec (4X EDR)"),
        Port("siw0", "1", "", "INIT", ""),
    )
    monkeypatch.setattr(preflight, "ROOT", tmp_path)
    assert preflight.locked_memory()["rdma_files"] == 2


FACTS = Facts(env={}, hostname="a", cwd="/", uid=1000, user="ma-user", home="/home/ma-user")
SPEC = specs.load("launcher: plain\nslots: 2\ncommand: [x]\n", "job.yaml", {}, {})
INPUTS = Inputs(SPEC, FACTS, settle(SPEC, FACTS), 0.0)


def test_of_a_failed_boot_only_what_is_wrong_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Too few CPUs make a job slow, and fail no boot; nor does a probe that has no end."""

    async def found(inputs: Inputs, kinds: Any) -> dict[str, Any]:
        late = {"name": "disks", "value": "no end within 2s"}
        return {"shm_free": 2**20, "cpus": 4, "cpu_limit": 0.5, "pids": -1, "unseen": [late]}

    monkeypatch.setattr(probes, "observe", found)
    assert [each.id for each in probes.lacking(INPUTS)] == ["shared-memory"]


def test_a_probe_that_fails_is_named_and_the_others_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(inputs: Inputs) -> dict[str, Any]:
        raise LookupError("no such file")

    monkeypatch.setattr(Memory, "read", staticmethod(fails))
    fields = asyncio.run(probes.observe(INPUTS, [Memory, Cpus]))
    assert fields["unseen"] == [{"name": "memory", "value": "LookupError: no such file"}]
    assert fields["cpus"] >= 1
    assert probes.results(fields)[Cpus] == Cpus(fields["cpus"], fields["cpu_limit"])


@pytest.mark.promise("no tool, library or file system that hangs holds up a check")
def test_a_file_system_that_is_gone_holds_up_nothing(node: Node) -> None:
    code = f"import os, threading\nos.statvfs = lambda path: threading.Event().wait()\n{BEGIN}"
    words = split("--json --limit 1 --launcher plain -- python3")
    found = json.loads(node.do("check", *words, code=code).stdout)["findings"]
    late = {it["what"] for it in found if it["seen"] == "no end within 3s"}
    assert {"shared memory", "disks"} <= late


@pytest.mark.parametrize("limit", ["0", "never", "nan", "1e9"])
def test_a_wrong_limit(node: Node, limit: str) -> None:
    done = node.do("check", f"--limit={limit}")
    assert (done.returncode, done.stdout) == (64, "")
    assert "argument --limit" in done.stderr


# --------------------------------------------------------------------------------------------------
# After a boot that failed

LINE = (
    "[entrypoint worker-0] seen here: shared memory | 1 MiB free of 1 MiB in /dev/shm, needed: 8"
    " MiB | start the"
)


def late(node: Node, code: str) -> str:
    words = split("--hosts a=127.0.0.2,b=127.0.0.3 --node-rank 0 --slots 2 --timeout 1")
    run = ("run", *words, "--launcher", "torchrun", "--ssh-port", str(free_port()), "--", "true")
    done = node.do(*run, code=code, ENTRYPOINT_SECRET=SECRET)
    assert done.returncode == 69, done.stderr
    return done.stderr


@pytest.mark.promise("a boot that failed shows what this node lacks")
def test_a_boot_that_failed_shows_what_this_node_lacks(node: Node) -> None:
    said = late(node, SMALL).splitlines()
    assert sum(line.startswith(LINE) for line in said) == 1
    assert said[-1].endswith("exit 69"), "the reason is the last line"


@pytest.mark.control("a boot that failed shows what this node lacks")
@pytest.mark.parametrize("program", ["true", "false"])
def test_a_node_that_lacks_nothing_and_a_program_s_own_end_show_nothing(
    node: Node, program: str
) -> None:
    assert "seen here" not in late(node, BEGIN)
    done = node.do("run", "--slots", "2", "--launcher", "pytorch", "--", program, code=SMALL)
    assert "seen here" not in done.stderr


@pytest.mark.promise(
    "JSON logs make a command's messages JSON and leave its answer unchanged",
    control="the check without them, in the same test",
)
def test_where_logs_are_json_its_messages_are_and_its_table_stays(node: Node) -> None:
    done = node.do("check", "--log-format", "json", "--", "true")
    said = [json.loads(line) for line in done.stderr.splitlines()]
    assert [(each["node"], each["stream"]) for each in said] == [("worker-0", "entrypoint")]
    assert said[0]["text"].startswith("done: check of 1 node")
    assert done.stdout.startswith("job job: 1 node")
    control = node.do("check", "--", "true")
    assert control.stderr.startswith("[entrypoint] done: check of 1 node")
