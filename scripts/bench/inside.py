"""What runs inside containers: timed commands. Standard library only.

python3 inside.py times RUNS        stdin: JSON, name -> argv: seconds and CPU of each, RUNS times
python3 inside.py banner RUNS ARGV  a worker's CPU until its sshd answers
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

_UP = 30.0  # seconds a worker may take until its sshd answers
_NULL = subprocess.DEVNULL


def times(runs: int) -> None:
    """Print for each command a list of (seconds, seconds of CPU, status)."""
    commands = json.load(sys.stdin)
    found: dict[str, list[tuple[float, float, int]]] = {name: [] for name in commands}
    for run in range(-1, runs):  # the first fills caches and does not count
        for name, argv in commands.items():
            begun = time.perf_counter()
            child = subprocess.Popen(argv, stdin=_NULL, stdout=_NULL, stderr=_NULL)
            _, status, used = os.wait4(child.pid, 0)
            took = time.perf_counter() - begun
            child.returncode = os.waitstatus_to_exitcode(status)
            if run >= 0:
                found[name].append((took, used.ru_utime + used.ru_stime, child.returncode))
    print(json.dumps(found))


def banner(runs: int, argv: list[str]) -> None:
    """Print for each run the seconds, and the CPU of all but sshd, from exec until this node's sshd
    answers."""
    found = []
    for run in range(-1, runs):
        port = 20000 + run
        own = {"ENTRYPOINT_RUN_DIR": f"/tmp/bench-{port}", "ENTRYPOINT_SSH_PORT": str(port)}
        begun = time.perf_counter()
        # stderr goes nowhere, as in a container whose log nobody reads
        child = subprocess.Popen(
            argv, env={**os.environ, **own}, stdin=_NULL, stdout=_NULL, stderr=_NULL
        )
        up = _answers(port, begun + _UP)
        took = time.perf_counter() - begun
        alive = _living(child.pid)
        # wait4 tells what the process and those children have used that it has waited for: of what
        # runs on, add all but sshd, which is still running and so is not in it.
        others = sum(cpu for name, cpu in alive.values() if not name.startswith("sshd"))
        # which a process that has ended already takes, too, until it is waited for
        os.kill(child.pid, signal.SIGKILL)
        _, _, used = os.wait4(child.pid, 0)
        child.returncode = -signal.SIGKILL
        for pid in alive:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        if run >= 0:
            found.append((took, used.ru_utime + used.ru_stime + others, 0 if up else 1))
    print(json.dumps(found))


def _answers(port: int, deadline: float) -> bool:
    """Whether sshd says its first words before the deadline. A port that is closed costs it
    nothing."""
    while time.perf_counter() < deadline:
        try:
            with socket.create_connection((socket.gethostname(), port), timeout=5) as connection:
                return connection.recv(4) == b"SSH-"
        except OSError:
            time.sleep(0.002)
    return False


def _living(parent: int) -> dict[int, tuple[str, float]]:
    """Processes below this one: pid -> name, seconds of CPU so far."""
    found: dict[int, tuple[str, float]] = {}
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                name, _, rest = (entry / "stat").read_text().partition("(")[2].rpartition(")")
                cpu = int((entry / "schedstat").read_text().split()[0]) / 1e9
            except OSError:
                continue
            parents[int(entry.name)] = (int(rest.split()[1]), name, cpu)
    level = {parent}
    while level:
        level = {pid for pid, (above, _, _) in parents.items() if above in level}
        found.update({pid: parents[pid][1:] for pid in level})
    return found


def main(what: str, *words: str) -> None:
    """One of the commands above."""
    if what == "times":
        times(int(words[0]))
    else:
        banner(int(words[0]), list(words[1:]))


if __name__ == "__main__":
    main(*sys.argv[1:])
