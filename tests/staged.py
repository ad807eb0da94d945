"""Staged failures of real jobs on two nodes of this machine, and what must be said of each."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.cluster import RUN, Cluster, free_port
from tests.waits import until

WORKER_1, RANK_1 = "worker-1 (node-1)", "rank 1 on worker-1 (node-1)"
# The rank of node 0 waits, until it is stopped.
ON_NODE_1 = """
import os, sys, time
if os.environ["NODE"] == "0":
    time.sleep(600)
"""


@dataclass(frozen=True)
class Expected:
    """What both nodes must say."""

    decision: str  # cause, blame, retry, certainty; "" where no failure is to be explained
    status: int
    where: str = ""  # rank, node and device as the text names them
    again: bool = False  # whether the job boots again, with `restarts: 1`

    def __str__(self) -> str:
        again = ", boots again" if self.again else ""
        return f"{self.decision or 'no cause'}; {self.status}{again}"


@dataclass(frozen=True)
class Staged:
    """A row: a job whose program is `train.py` on both nodes, and what happens to it."""

    name: str
    launcher: str
    fault: str
    program: str
    expected: Expected
    # For node 1 alone: commands before its entrypoint, in a mount namespace of its own, with the
    # test's folder in STAGE; what its tools print; its variables.
    prepare: str = ""
    tools: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    shared: Mapping[str, str] = field(default_factory=dict)  # variables of both nodes

    @property
    def says(self) -> tuple[str, ...]:
        """The cells of its line in the table."""
        return self.name, self.launcher, self.fault, str(self.expected)


def start(job: Cluster, row: Staged, python: str, more: Mapping[str, str]) -> None:
    """Start both nodes. `more`: variables."""
    (job.folder / "train.py").write_text(row.program)
    for name, text in row.tools.items():
        fake_tool(job.folder, name, text)
    # A program that is no script of torch's launcher is named whole.
    words = ("train.py",) if row.launcher == "torchrun" else (python, "train.py")
    env = {
        "STAGE": str(job.folder),
        "PYTHON": python,
        "ENTRYPOINT_PORT": str(free_port()),
        "ENTRYPOINT_RESTARTS": "1",
        # A node whose card has errors already would not get a rank: they arise while ranks run.
        "ENTRYPOINT_GATE_CARDS": "never",
        "ENTRYPOINT_TIMEOUTS_GRACE": "5",
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        **row.shared,
        **more,
    }
    for rank in (1, 0):
        argv = (*RUN, "--launcher", row.launcher, "--", *words)
        own = {**env, "TMPDIR": f"{job.folder}/t{rank}"}
        Path(own["TMPDIR"]).mkdir()
        if rank == 1:
            own |= {"PATH": f"{job.folder}/bin:{os.environ['PATH']}", **row.env}
            if row.prepare:
                script = f'set -e; {row.prepare}; exec "$@"'
                argv = ("unshare", "-m", "sh", "-c", script, "sh", *argv)
        own = {name: value.replace("$STAGE", str(job.folder)) for name, value in own.items()}
        job.start(rank, argv=argv, env=own)


def fake_tool(folder: Path, name: str, script: str) -> None:
    """Put a device's tool into the folder's `bin`: a shell script, that notes that it was called."""
    (folder / "bin").mkdir(exist_ok=True)
    path = folder / "bin" / name
    path.write_text(f"#!/bin/sh\necho {name} >>{folder}/called\n{script}\n")
    path.chmod(0o755)


def called(job: Cluster) -> list[str]:
    """The tools that were called, in order."""
    file = job.folder / "called"
    return file.read_text().split() if file.exists() else []


def result(job: Cluster, rank: int) -> dict[str, Any]:
    """The result in a node's record."""
    text = Path(f"{job.run_dir(rank)}-state.json").read_text()
    found: dict[str, Any] = json.loads(text)["result"]
    return found


CAUSE = ("cause", "text", "role", "blame", "retry", "certainty", "lines")


def decision(found: Mapping[str, Any]) -> str:
    """Cause, blame, retry and certainty of a result, as `Expected` has them."""
    if "cause" not in found:
        return ""
    return " ".join(str(found[name]) for name in ("cause", "blame", "retry", "certainty"))


def seen(job: Cluster) -> str:
    """What worker-0 said, as the table prints it."""
    found = result(job, 0)
    again = "attempt 1 of 2 is over" in job.err(0)
    return str(Expected(decision(found), found["status"], again=again))


def agrees(job: Cluster, expected: Expected) -> None:
    """Both nodes have ended with this status, and say the same of it."""
    ends = {rank: process.returncode for rank, process in job.processes.items()}
    assert ends == dict.fromkeys(range(2), expected.status), job.both()
    results = [result(job, rank) for rank in range(2)]
    causes = [{name: entry.get(name) for name in CAUSE} for entry in results]
    assert causes[0] == causes[1], f"{causes[0]}\n{causes[1]}\n{job.both()}"
    assert decision(results[0]) == expected.decision, f"{results[0]}\n{job.both()}"
    text = str(causes[0]["text"] or "")
    assert expected.where in text, f"{text}\n{job.both()}"
    # Of a failure that only its status shows, the log says no more than that.
    is_told = bool(results[0].get("lines")) or results[0].get("cause") not in (None, "user-code")
    for rank in range(2):
        assert (f"cause: {text}" in job.err(rank)) == is_told, job.both()
        assert ("attempt 1 of 2 is over" in job.err(rank)) == expected.again, job.both()


# --------------------------------------------------------------------------------------------------
# What a container has on its own


@contextlib.contextmanager
def memory_limit(limit: int) -> Iterator[Path | None]:
    """A cgroup below our own with so many bytes of memory; None where none can be made."""
    own = next(
        (
            line.rstrip("\n").split(":", 2)
            for line in Path("/proc/self/cgroup").read_text().splitlines()
            if line.startswith("0::") or ":memory:" in line
        ),
        ["", "", "/"],
    )
    base = Path("/sys/fs/cgroup") / own[1] / own[2].lstrip("/")
    folder = base / f"staged-{os.getpid()}"
    first, second = ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes")
    if not own[1]:
        first, second = ("memory.max", "memory.swap.max")
    try:
        folder.mkdir()
    except OSError:
        yield None
        return
    try:
        if not (folder / first).exists():
            yield None
            return
        (folder / first).write_text(str(limit))
        with contextlib.suppress(OSError):
            (folder / second).write_text(str(limit) if own[1] else "0")
        yield folder
    finally:
        until(lambda: not (folder / "cgroup.procs").read_text(), "an empty cgroup")
        folder.rmdir()
