"""Failures that are staged in real jobs on two nodes: both say the same cause, whose it is, and
whether a retry helps, and the job boots again only where it does."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cluster import Cluster, free_port, until
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

Make = Callable[..., Cluster]
SLOW = pytest.mark.slow
MODULE = "train_lib"

GPUS = """cat <<'END'
<?xml version="1.0" ?>
<nvidia_smi_log><driver_version>550.54.15</driver_version>
  <gpu id="00000000:18:00.0"><product_name>NVIDIA H100</product_name>
    <ecc_errors><volatile><dram_uncorrectable>0</dram_uncorrectable></volatile></ecc_errors></gpu>
  <gpu id="00000000:2A:00.0"><product_name>NVIDIA H100</product_name>
    <ecc_errors><volatile><dram_uncorrectable>{}</dram_uncorrectable></volatile></ecc_errors></gpu>
</nvidia_smi_log>
END"""
NPUS = """cat <<'END'
+------------------------------------------------------------------------------------------------+
| npu-smi 23.0.6                   Version: 23.0.6                                               |
+---------------------------+---------------+----------------------------------------------------+
| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|
| Chip                      | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |
+===========================+===============+====================================================+
| 0     910B3               | OK            | 93.6        44                0    / 0             |
| 0                         | 0000:C1:00.0  | 0           0    / 0          3348 / 65536         |
+===========================+===============+====================================================+
END"""
# As the kernel gives a record of its log (dev-kmsg), long after the start of this machine.
XID = "4,1,99999999999999,-;NVRM: Xid (PCI:0000:2a:00): 79, pid=77, GPU has fallen off the bus."
CUDA_ERROR = f"""{ON_NODE_1}
raise RuntimeError("CUDA error: unspecified launch failure")
"""
NCCL_ERROR = f"""{ON_NODE_1}
raise RuntimeError("NCCL error in: ProcessGroupNCCL.cpp:1331, unhandled cuda error, NCCL version 2.21.5")
"""
ACL_ERROR = f"""{ON_NODE_1}
raise RuntimeError("aclrtSetDevice failed, error code is 107001")
"""
CRASH = f"{ON_NODE_1}\nimport ctypes\nctypes.string_at(0)\n"
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
LOADER = f"""{ON_NODE_1}
import torch
batches = torch.utils.data.DataLoader(torch.ones(64, 1 << 18), batch_size=16, num_workers=1)
for batch in batches:
    print(batch.sum())
"""
RAY_TASK = """
import ray
ray.init()
@ray.remote
def step():
    {}
second = {{"node:10.77.0.2": 0.001}}
ray.get(step.options(resources=second, max_retries=0).remote())
"""
WAITS = """
import os, time
with open(f"{os.environ['STAGE']}/pid-{os.environ['NODE']}", "w") as file:
    file.write(f"{os.getpid()} ")
time.sleep(60)
"""
LOOKS_BAD = """
import os, sys
print("WARNING: CUDA error: out of memory, retrying with a smaller batch", file=sys.stderr)
print("Connection closed by peer, reconnecting; ImportError: no module apex, using torch")
print("health check: volatile uncorrectable ECC errors: 0; Xid: none")
{}["step"] if os.environ["ENDS"] == "1" else sys.exit()
"""

BY_CLASS = {"ENTRYPOINT_FAILURES_STATUS": "class", "ENTRYPOINT_RESTARTS": "0"}

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
        "port-in-use", "mpirun", "another program has the port that a rank listens on",
        f"{ON_NODE_1}\nimport socket\nsocket.create_server(('', int(os.environ['TAKEN'])))\n",
        Expected("addr-in-use node elsewhere low", 1, RANK_1),
    ),
    Staged(
        "own-75", "mpirun", "the program itself ends with 75", f"{ON_NODE_1}\nsys.exit(75)\n",
        Expected("", 75),
    ),
    Staged(
        "module-on-one-node", "mpirun", "one node's PYTHONPATH lacks a module",
        f"import {MODULE}\n{ON_NODE_1}",
        Expected("user-import program no high", 1, RANK_1),
        shared={"PYTHONPATH": "$STAGE/lib"}, env={"PYTHONPATH": "(unset)"},
    ),
    Staged(
        "module-nowhere", "mpirun", "a module is on no node", "import no_such_module\n",
        Expected("user-import program no high", 1, "rank "),
    ),
    Staged(
        "nan", "mpirun", "the program stops at a loss of NaN",
        f"{ON_NODE_1}\nloss = float('inf') - float('inf')\n"
        "if loss != loss:\n    raise FloatingPointError(f'loss is {loss} at step 7')\n",
        Expected("nan-loss program no low", 1, RANK_1),
    ),
    Staged(
        "crash", "mpirun", "native code reads address 0", CRASH,
        Expected("native-crash program unknown low", 139, RANK_1),
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
        "card-missing", "plain", "npu-smi shows one of two cards, the program says aclrtSetDevice",
        ACL_ERROR, Expected("gpu-lost device elsewhere high", 1, f"NPU 1 of {WORKER_1}", again=True),
        tools={"npu-smi": NPUS},
        shared={"ENTRYPOINT_SIMULATE_ASCEND": "2"},
    ),
    Staged(
        "dns", "plain", "the name server does not answer",
        f"{ON_NODE_1}\nimport socket\nsocket.getaddrinfo('store.example', 443)\n",
        Expected("dns network same high", 1, WORKER_1, again=True),
        prepare="mount --bind $STAGE/resolv.conf /etc/resolv.conf",
    ),
    Staged(
        "ecc-class", "mpirun", "the same as ecc, with failures.status: class", CUDA_ERROR,
        Expected("gpu-ecc device elsewhere high", 71, f"GPU 1 of {WORKER_1}"),
        tools={"nvidia-smi": GPUS.format(3)}, shared=BY_CLASS,
    ),
    Staged(
        "nan-class", "plain", "a loss of NaN, with failures.status: class",
        f"{ON_NODE_1}\nraise FloatingPointError('loss is nan')\n",
        Expected("nan-loss program no low", 1, WORKER_1), shared=BY_CLASS,
    ),
    Staged(
        "no-checkpoint", "plain", "a checkpoint is not there",
        f"{ON_NODE_1}\nopen('/nowhere/step-500.pt', 'rb')\n",
        Expected("file-missing program no high", 1, WORKER_1),
    ),
    Staged(
        "file-handles", "plain", "more files are open than ulimit -n allows",
        f"{ON_NODE_1}\nimport resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))\n"
        "files = [open('/dev/null') for _ in range(50)]\n",
        Expected("fd-limit platform no high", 1, WORKER_1),
    ),
    Staged(
        "sigterm", "mpirun", "somebody sends SIGTERM to one rank", WAITS,
        Expected("stopped-outside platform unknown low", 143, RANK_1),
    ),
    Staged("ends-well", "plain", "nothing: the program ends with 0", "", Expected("", 0)),
    Staged(
        "looks-bad", "mpirun", "nothing: words like errors, and an end with 0", LOOKS_BAD,
        Expected("", 0), shared={"ENDS": "0"},
    ),
    Staged(
        "looks-worse", "plain", "the program's own KeyError, below words like errors", LOOKS_BAD,
        Expected("user-code program no high", 1, "worker-"), shared={"ENDS": "1"},
    ),
)  # fmt: skip
TORCH = (
    Staged(
        "peer-killed", "torchrun", "SIGKILL to rank 1: gloo's `Connection closed by peer` in rank 0",
        GLOO, Expected("killed-unknown unknown unknown low", 137, RANK_1),
    ),
    Staged(
        "torch-shm", "torchrun", "a DataLoader's batches do not fit into /dev/shm", LOADER,
        Expected("shm-full platform no high", 1, RANK_1),
        prepare="mount -t tmpfs -o size=1m tmpfs /dev/shm",
    ),
    Staged(
        "torch-crash", "torchrun", "native code reads address 0", CRASH,
        Expected("native-crash program unknown low", 139, RANK_1),
    ),
    Staged(
        "torch-ecc", "torchrun", "nvidia-smi counts ECC errors, the program says launch failure",
        CUDA_ERROR, Expected("gpu-ecc device elsewhere high", 1, f"GPU 1 of {WORKER_1}", again=True),
        tools={"nvidia-smi": GPUS.format(3)},
    ),
    Staged(
        "torch-checkpoint", "torchrun", "torch.load of a file that is not there",
        f"{ON_NODE_1}\nimport torch\ntorch.load('/nowhere/step-500.pt')\n",
        Expected("file-missing program no high", 1, RANK_1),
    ),
)  # fmt: skip
RAY = (
    Staged(
        "ray-exception", "ray", "a task on the second node raises KeyError",
        RAY_TASK.format("return {}['step']"),
        Expected("user-code program no high", 1, WORKER_1),
    ),
    Staged(
        "ray-killed", "ray", "the worker of a task on the second node is killed",
        RAY_TASK.format("import os; os.kill(os.getpid(), 9)"),
        Expected("killed-unknown unknown unknown low", 1, WORKER_1),
    ),
    Staged(
        "ray-elsewhere", "ray", "CUDA error on the second node; ECC errors on the first one's card",
        RAY_TASK.format("raise RuntimeError('CUDA error: unspecified launch failure')"),
        Expected("cuda-kernel-fault unknown unknown low", 1, WORKER_1),
        tools={"nvidia-smi": GPUS.format(3)}, broken=0, asked=False,
    ),
    Staged(
        "ray-ecc", "ray", "the driver itself fails by a card of the first node",
        "raise RuntimeError('CUDA error: unspecified launch failure')\n",
        Expected("gpu-ecc device elsewhere high", 1, "GPU 1 of worker-0 (node-0)", again=True),
        tools={"nvidia-smi": GPUS.format(3)}, broken=0,
    ),
    Staged(
        "ray-module", "ray", "a task on the second node imports what is not there",
        RAY_TASK.format("import no_such_module"),
        Expected("user-import program no high", 1, WORKER_1),
    ),
)  # fmt: skip
ROWS = (
    *(pytest.param(row, id=row.name) for row in MINE),
    *(pytest.param(row, id=row.name, marks=[SLOW]) for row in TORCH),
    *(pytest.param(row, id=row.name, marks=[SLOW, pytest.mark.timeout(300)]) for row in RAY),
)


def python_of(row: Staged, request: pytest.FixtureRequest) -> str:
    """The Python that the row's program needs."""
    if row.launcher == "torchrun":
        return str(request.getfixturevalue("torch_python"))
    if row.launcher == "ray":
        return str(request.getfixturevalue("python_with")("ray"))
    return sys.executable


@pytest.fixture
def surroundings(folder: Path) -> Iterator[Callable[[Staged, Path], dict[str, str]]]:
    """Makes what the rows need on this machine; it returns the variables of both nodes."""
    with contextlib.ExitStack() as made:

        def make(row: Staged, stage: Path) -> dict[str, str]:
            if row.prepare and subprocess.run(["unshare", "-m", "true"], check=False).returncode:
                pytest.skip("may not make mount namespaces here")
            (stage / "disk").mkdir()
            (stage / "lib").mkdir()
            (stage / "lib" / f"{MODULE}.py").touch()
            (stage / "kmsg").write_text(XID)
            # Nothing reads there.
            silent = made.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            port = free_port()
            made.enter_context(socket.create_server(("0.0.0.0", port)))
            env = {"TAKEN": str(port)}
            if row.name == "dns":
                silent.bind(("127.0.0.99", 53))
                (stage / "resolv.conf").write_text(
                    "nameserver 127.0.0.99\noptions timeout:1 attempts:1\n"
                )
            if row.name == "memory-limit":
                group = made.enter_context(memory_limit(192 << 20))
                env["MEMORY"] = str(group or pytest.skip("may not make a cgroup here"))
            return env

        yield make


@pytest.fixture
def stage(
    surroundings: Callable[[Staged, Path], dict[str, str]],
    cluster: Make,
    request: pytest.FixtureRequest,
) -> Callable[[Staged], Cluster]:
    """Starts a row's job."""

    def begin(row: Staged) -> Cluster:
        python = python_of(row, request)
        spaces = request.getfixturevalue("spaces")(1) if row.launcher == "ray" else ()
        job = cluster(2, slots=1)
        start(job, row, python, surroundings(row, job.folder), spaces)
        return job

    return begin


@pytest.mark.parametrize("row", ROWS)
def test_a_staged_failure(
    row: Staged,
    stage: Callable[[Staged], Cluster],
    record_property: Callable[[str, object], None],
) -> None:
    job = stage(row)
    if row.name == "sigterm":
        file = job.folder / "pid-1"
        until(lambda: file.exists() and file.read_text().endswith(" "), 60, "the rank runs")
        os.kill(int(file.read_text()), signal.SIGTERM)
    job.ends(120)
    record_property("seen", seen(job))
    agrees(job, row.expected)
    until(lambda: job.survivors() == [], 60, "nothing is left")
    attempts = 1 + row.expected.again
    assert called(job) == [*row.tools] * attempts * row.asked, "asked once in an attempt"


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
    ("script", "most"),
    [
        ("exec sleep 60", 5 + 10),
        ("trap '' TERM INT; while :; do sleep 1; done", 5 + 10),
        ("echo '<nvidia_smi_log'; echo NaN; exit 3", 10),
        ("printf '\\377\\000<nvidia_smi_log><gpu>'; printf '</nvidia_smi_log>'", 10),
        ("head -c 100000000 /dev/zero | tr '\\0' x", 10),
        ("yes 'NVRM: Xid'", 5 + 10),
    ],
    ids=["hangs", "hangs-on", "nonsense", "no-text", "100-MB", "endless"],
)
def test_a_tool_that_is_of_no_use_changes_nothing(
    script: str, most: float, stage: Callable[[Staged], Cluster]
) -> None:
    """It is given up after 5 s, and the job ends with what the output shows."""
    job = stage(replace(ECC_ROW, tools={"nvidia-smi": script}, shared=ONCE))
    job.ends()
    agrees(job, Expected("cuda-kernel-fault unknown unknown low", 1, WORKER_1))
    assert called(job) == ["nvidia-smi"]
    assert job.survivors() == []
    written = (job.folder / "called").stat().st_mtime
    ended = Path(f"{job.run_dir(0)}-state.json").stat().st_mtime
    assert ended - written < most
