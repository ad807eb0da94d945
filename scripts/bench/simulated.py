"""A leader of simulated workers: its keys, its spec, and the processes that answer for them."""

from __future__ import annotations

import contextlib
import json
import resource
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from .engine import Failed
from .nodes import TREE, Nodes, environment, nodes
from .workers import address

# workers of one process: each needs two files, and a usual hard limit is 20,000
_OF_ONE = 5_000


class Simulated:
    """The processes that answer for all workers, in the order of the workers' numbers."""

    def __init__(self, processes: list[subprocess.Popen[str]]) -> None:
        self._processes = processes

    def signal(self, signum: int) -> None:
        """Send it to all of them."""
        for process in self._processes:
            process.send_signal(signum)

    def silence_one(self, signum: int) -> None:
        """Send it to the last of them."""
        self._processes[-1].send_signal(signum)

    def counts(self) -> Counter[str]:
        """End them. Return how many of what they have seen."""
        found: Counter[str] = Counter()
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            found.update(json.loads(process.communicate(timeout=20)[0]))
        return found


@contextlib.contextmanager
def keys() -> Iterator[Path]:
    """A folder with the keys of a job, for the time of the block."""
    with tempfile.TemporaryDirectory(prefix="bk-", dir="/tmp") as name:
        for key in ("host", "client"):
            argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", f"{name}/{key}"]
            subprocess.run(argv, check=True, timeout=20)
        yield Path(name)


def given(pair: Path) -> dict[str, str]:
    """The variables by which a node gets these keys."""
    return {
        "ENTRYPOINT_SSH_CLIENT_KEY": str(pair / "client"),
        "ENTRYPOINT_SSH_HOST_KEY": str(pair / "host"),
    }


@contextlib.contextmanager
def leader_of(
    workers: int, pair: Path | None = None, servers: int = 0
) -> Iterator[tuple[Nodes, Simulated]]:
    """A leader that is not started yet, and its workers, or so many that answer."""
    # its soft limit is the leader's, too
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with contextlib.ExitStack() as stack:
        pair = pair or stack.enter_context(keys())
        # in a file, since one variable may have 128 KiB at most (execve(2))
        spec = pair / "job.yaml"
        hosts = [f"w{worker}={address(worker)}" for worker in range(1, workers + 1)]
        spec.write_text("\n  - ".join(["hosts:", f"leader={address(0)}", *hosts]) + "\n")
        env = {"ENTRYPOINT_SPEC": str(spec), "ENTRYPOINT_TIMEOUTS_PEERS": "300"}
        made = stack.enter_context(nodes("", **env, **given(pair)))
        argv = [sys.executable, "-m", "scripts.bench.workers", str(pair), str(made.port)]
        last = servers or workers
        parts = [(first, min(last, first + _OF_ONE - 1)) for first in range(1, last + 1, _OF_ONE)]
        yield (
            made,
            Simulated(
                [stack.enter_context(started([*argv, *map(str, part)], 60)) for part in parts]
            ),
        )


@contextlib.contextmanager
def started(argv: list[str], seconds: float) -> Iterator[subprocess.Popen[str]]:
    """A process of ours that has said "ready"; ended with the block. Raises Failed."""
    process = subprocess.Popen(argv, env=environment(), stdout=subprocess.PIPE, text=True, cwd=TREE)
    alarm = threading.Timer(seconds, process.kill)
    alarm.start()
    assert process.stdout is not None
    try:
        if not process.stdout.readline().startswith("ready"):
            raise Failed(f"{' '.join(argv[2:3])} did not start within {seconds:g} s")
        alarm.cancel()
        yield process
    finally:
        alarm.cancel()
        process.kill()
        process.wait()
        process.stdout.close()
