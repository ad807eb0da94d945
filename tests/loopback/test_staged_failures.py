"""Failures that are staged in real jobs on two nodes: both say the same cause, whose it is, and
whether a retry helps, and the job boots again only where it does."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from tests.cluster import Cluster
from tests.staged import (
    ON_NODE_1,
    RANK_1,
    WORKER_1,
    Expected,
    Staged,
    agrees,
    called,
    memory_limit,
    seen,
    start,
)
from tests.waits import until

Make = Callable[..., Cluster]
GPUS = """cat <<'END'
<?xml version="1.0" ?>
<nvidia_smi_log><driver_version>550.54.15</driver_version>
  <gpu id="00000000:18:00.0"><product_name>NVIDIA H100</product_name>
    <ecc_errors><volatile><dram_uncorrectable>0</dram_uncorrectable></volatile></ecc_errors></gpu>
  <gpu id="00000000:2A:00.0"><product_name>NVIDIA H100</product_name>
    <ecc_errors><volatile><dram_uncorrectable>{}</dram_uncorrectable></volatile></ecc_errors></gpu>
</nvidia_smi_log>
END"""
# As the kernel gives a record of its log (dev-kmsg), long after the start of this machine.
XID = "4,1,99999999999999,-;NVRM: Xid (PCI:0000:2a:00): 79, pid=77, GPU has fallen off the bus."
CUDA_ERROR = f"""{ON_NODE_1}
raise RuntimeError("CUDA error: unspecified launch failure")
"""
NCCL_ERROR = f"""{ON_NODE_1}
raise RuntimeError("NCCL error in: ProcessGroupNCCL.cpp:1331, unhandled cuda error, NCCL version 2.21.5")
"""
SHARED_MEMORY = f"""{ON_NODE_1}
import mmap
with open("/dev/shm/batch", "w+b") as file:
    file.truncate(8 << 20)
    mmap.mmap(file.fileno(), 8 << 20).write(b"x" * (8 << 20))
"""
GLOO = """
import os, signal, torch
import torch.distributed as dist
dist.init_process_group("gloo")
for step in range(10000):
    dist.all_reduce(torch.ones(1000))
    if step == 20 and dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
"""
LOOKS_BAD = """
import sys
print("WARNING: CUDA error: out of memory, retrying with a smaller batch", file=sys.stderr)
print("Connection closed by peer, reconnecting; ImportError: no module apex, using torch")
print("health check: volatile uncorrectable ECC errors: 0; Xid: none")
{}["step"]
"""

MINE = (
    Staged(
        "memory-limit", "mpirun", "a rank takes more memory than its container has",
        f"{ON_NODE_1}\nx = b'x' * (400 << 20)\n",
        Expected("host-oom program no high", 137, RANK_1),
        prepare="echo $$ >$MEMORY/cgroup.procs",
    ),
    Staged(
        "small-shm", "plain", "a batch does not fit into /dev/shm: a real SIGBUS", SHARED_MEMORY,
        Expected("shm-full platform no high", 135, WORKER_1),
        prepare="mount -t tmpfs -o size=1m tmpfs /dev/shm",
    ),
    Staged(
        "full-disk", "plain", "no space for a checkpoint, in the directory of the logs",
        f"{ON_NODE_1}\nopen(os.environ['STAGE'] + '/disk/step-1.pt', 'wb').write(bytes(4 << 20))\n",
        Expected("disk-full storage no high", 1, WORKER_1),
        prepare="mount -t tmpfs -o size=1m tmpfs $STAGE/disk",
        env={"ENTRYPOINT_LOG_DIR": "$STAGE/disk"},
    ),
    Staged(
        "ecc", "plain", "nvidia-smi counts ECC errors, the program says launch failure", CUDA_ERROR,
        Expected("gpu-ecc device elsewhere high", 1, f"GPU 1 of {WORKER_1}", again=True),
        tools={"nvidia-smi": GPUS.format(3)},
    ),
    Staged(
        "xid", "mpirun", "the kernel logs Xid 79, the program says unhandled cuda error", NCCL_ERROR,
        Expected("gpu-lost device elsewhere high", 1, f"GPU of {WORKER_1}", again=True),
        prepare="mount --bind $STAGE/kmsg /dev/kmsg",
    ),
    Staged(
        "dns", "plain", "the name server does not answer",
        f"{ON_NODE_1}\nimport socket\nsocket.getaddrinfo('store.example', 443)\n",
        Expected("dns network same high", 1, WORKER_1, again=True),
        prepare="mount --bind $STAGE/resolv.conf /etc/resolv.conf",
    ),
    Staged(
        "looks-worse", "plain", "the program's own KeyError, below words like errors", LOOKS_BAD,
        Expected("user-code program no high", 1, "worker-"),
    ),
)  # fmt: skip
TORCH = (
    Staged(
        "peer-killed", "torchrun", "SIGKILL to rank 1: gloo's `Connection closed by peer` in rank 0",
        GLOO, Expected("killed-unknown unknown unknown low", 137, RANK_1),
    ),
)  # fmt: skip
ROWS = (
    *(pytest.param(row, id=row.name) for row in MINE),
    *(pytest.param(row, id=row.name, marks=[pytest.mark.slow]) for row in TORCH),
)


@pytest.fixture
def stage(cluster: Make, request: pytest.FixtureRequest) -> Iterator[Callable[[Staged], Cluster]]:
    """Starts a row's job, with what it needs on this machine."""
    with contextlib.ExitStack() as made:

        def begin(row: Staged) -> Cluster:
            if row.prepare and subprocess.run(["unshare", "-m", "true"], check=False).returncode:
                pytest.skip("may not make mount namespaces here")
            is_torch = row.launcher == "torchrun"
            python = request.getfixturevalue("torch_python") if is_torch else sys.executable
            job, env = cluster(2, slots=1), {}
            (job.folder / "disk").mkdir()
            (job.folder / "kmsg").write_text(XID)
            if row.name == "dns":
                # Nothing reads there.
                silent = made.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
                silent.bind(("127.0.0.99", 53))
                servers = "nameserver 127.0.0.99\noptions timeout:1 attempts:1\n"
                (job.folder / "resolv.conf").write_text(servers)
            if row.name == "memory-limit":
                group = made.enter_context(memory_limit(192 << 20))
                env["MEMORY"] = str(group or pytest.skip("may not make a cgroup here"))
            start(job, row, python, env)
            return job

        yield begin


@pytest.mark.parametrize("row", ROWS)
def test_a_staged_failure(
    row: Staged, stage: Callable[[Staged], Cluster], record_property: Callable[[str, object], None]
) -> None:
    job = stage(row)
    job.ends()
    record_property("seen", seen(job))
    agrees(job, row.expected)
    until(lambda: job.survivors() == [], "nothing is left")
    attempts = 1 + row.expected.again
    assert called(job) == [*row.tools] * attempts, "asked once in an attempt"


# --------------------------------------------------------------------------------------------------
# What the evidence costs

ECC_ROW = next(row for row in MINE if row.name == "ecc")
ONCE = {"ENTRYPOINT_RESTARTS": "0"}


@pytest.mark.promise(
    "while nothing fails, no evidence is collected", control="the row `ecc` of the same file"
)
@pytest.mark.parametrize("program", ["", "{}raise KeyError('step')"])
def test_no_tool_is_asked_without_need(program: str, stage: Callable[[Staged], Cluster]) -> None:
    """A job that ends with 0, and a mistake of the program."""
    job = stage(replace(ECC_ROW, program=program.format(ON_NODE_1), shared=ONCE))
    job.ends()
    assert called(job) == [], job.both()
    assert "ECC" not in job.both()


@pytest.mark.parametrize(
    "script",
    ["trap '' TERM INT; while :; do sleep 1; done", "yes 'NVRM: Xid'"],
    ids=["hangs", "endless"],
)
def test_a_tool_that_is_of_no_use_changes_nothing(
    script: str, stage: Callable[[Staged], Cluster]
) -> None:
    """It is given up after 5 s, and the job ends with what the output shows."""
    job = stage(replace(ECC_ROW, tools={"nvidia-smi": script}, shared=ONCE))
    job.ends()
    agrees(job, Expected("cuda-kernel-fault unknown unknown low", 1, WORKER_1))
    assert called(job) == ["nvidia-smi"]
    assert job.survivors() == []
