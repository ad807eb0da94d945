"""Slurm's commands as a batch script meets them, on this machine: srun starts tasks, scancel
signals them.

What these do is what Slurm does: srun ends with the highest status of its tasks, and kills them
when it gets a SIGTERM itself; a job that is being cancelled takes no signal from either. Seen so
with Slurm 22.05.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.cluster import clean_environment

_SRUN = """
import os, signal, subprocess, sys
folder = os.environ["FAKE_SLURM"]
argv = sys.argv[1:]
first = next(at for at, word in enumerate(argv) if not word.startswith("--"))
options = dict(word[2:].partition("=")[::2] for word in argv[:first])
open(f"{folder}/srun", "w").write("\\0".join(argv))
nodes = int(options["nodes"])
names = [f"node-{index}" for index in range(nodes)]
tasks = []
def forced(*_):
    print("srun: forcing job termination", file=sys.stderr, flush=True)
    if os.path.exists(f"{folder}/cancelled"):
        return
    for task in tasks:
        os.killpg(task.pid, signal.SIGKILL)
signal.signal(signal.SIGTERM, forced)
for index in range(nodes):
    step = {"SLURM_STEP_ID": "0", "SLURM_NODEID": str(index), "SLURM_PROCID": str(index),
            "SLURM_STEP_NUM_NODES": str(nodes),
            "SLURM_STEP_NODELIST": ",".join(names), "SLURM_LOCALID": "0"}
    tasks.append(subprocess.Popen(argv[first:], env={**os.environ, **step}, start_new_session=True))
open(f"{folder}/tasks.new", "w").write(" ".join(str(task.pid) for task in tasks))
os.rename(f"{folder}/tasks.new", f"{folder}/tasks")
ends = [task.wait() for task in tasks]
sys.exit(max(128 - end if end < 0 else end for end in ends))
"""
_SCANCEL = """
import os, signal, sys
folder = os.environ["FAKE_SLURM"]
open(f"{folder}/scancel", "a").write(" ".join(sys.argv[1:]) + "\\n")
if os.path.exists(f"{folder}/cancelled"):
    sys.exit("scancel: error: Kill job error: Job/step already completing or completed")
number = signal.Signals["SIG" + sys.argv[1].removeprefix("--signal=")]
for task in open(f"{folder}/tasks").read().split():
    os.killpg(int(task), number)
"""
_SCONTROL = """
import os, sys
folder = os.environ["FAKE_SLURM"]
if sys.argv[1:3] == ["show", "hostnames"]:
    print("\\n".join(sys.argv[3].split(",")))
    sys.exit()
if sys.argv[1:3] == ["show", "job"]:
    restarts = open(f"{folder}/restarts").read() if os.path.exists(f"{folder}/restarts") else "0"
    print(f"JobId={sys.argv[3]} JobName=demo\\n   Requeue=1 Restarts={restarts} BatchFlag=1 Reboot=0 ExitCode=0:0")
    sys.exit()
open(f"{folder}/scontrol", "a").write(" ".join(sys.argv[1:]) + "\\n")
sys.exit("Requested operation is presently disabled" if os.path.exists(f"{folder}/refuse") else 0)
"""


class Slurm:
    """A cluster of one machine, in a folder of its own. `entrypoint` is a program of the test's."""

    def __init__(self, folder: Path, entrypoint: str, nodes: int = 2) -> None:
        self.folder, self.nodes = folder, nodes
        self.batches: list[subprocess.Popen[str]] = []
        self.bin = folder / "bin"
        self.bin.mkdir()
        for name, text in (
            ("srun", _SRUN),
            ("scancel", _SCANCEL),
            ("scontrol", _SCONTROL),
            ("entrypoint", entrypoint),
        ):
            file = self.bin / name
            file.write_text(text if text.startswith("#!") else f"#!{sys.executable} -IS\n{text}")
            file.chmod(0o755)

    def batch(self, script: Path, **env: str) -> subprocess.Popen[str]:
        """The script as slurmstepd starts it: the leader of a process group of its own."""
        own = {
            "FAKE_SLURM": str(self.folder), "PATH": f"{self.bin}:{os.environ['PATH']}", "SLURM_JOB_ID": "7",
            "SLURM_JOB_NUM_NODES": str(self.nodes),
            "SLURM_JOB_NODELIST": ",".join(f"node-{index}" for index in range(self.nodes)),
        }  # fmt: skip
        self.batches.append(subprocess.Popen(
            ["bash", str(script)], env={**clean_environment(), **own, **env}, text=True, start_new_session=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
        ))  # fmt: skip
        return self.batches[-1]

    def close(self) -> None:
        """Kill what still runs."""
        if left := [batch.pid for batch in self.batches if batch.poll() is None]:
            left += [int(pid) for line in self.said("tasks") for pid in line.split()]
        for pid in left:
            os.kill(pid, signal.SIGKILL)

    def said(self, command: str) -> list[str]:
        """What a command was called with, one line each."""
        file = self.folder / command
        return file.read_text().splitlines() if file.exists() else []

    def nodes_said(self) -> list[list[str]]:
        """What the program of each node has written down."""
        return [self.said(f"node-{node}") for node in range(self.nodes)]

    def cancel(self, batch: subprocess.Popen[str]) -> None:
        """As `scancel JOB`: SIGTERM to every task and to the batch shell's group; the job takes no
        other signal."""
        (self.folder / "cancelled").touch()
        self.signal_all(batch)

    def signal_all(self, batch: subprocess.Popen[str]) -> None:
        """As `scancel --full --signal=TERM JOB`: SIGTERM to every task and to the batch shell's
        group."""
        for task in self.said("tasks")[0].split():
            os.kill(int(task), signal.SIGTERM)
        os.killpg(batch.pid, signal.SIGTERM)


def told(text: str) -> tuple[list[str], dict[str, str]]:
    """What a batch script starts srun with: its words and its environment."""
    functions = (
        'srun() { printf \'%s\\0\' $# "$@"; env -0; }; setsid() { "$@"; }; scontrol() { echo x;'
        " echo y; }; stat() { echo 600; }\n"
    )
    env = {
        "PATH": os.environ["PATH"],
        "SLURM_JOB_ID": "7",
        "SLURM_JOB_NUM_NODES": "2",
        "SLURM_JOB_NODELIST": "x,y",
    }
    done = subprocess.run(["bash"], input=(functions + text).encode(), env=env, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")
    count, *words = done.stdout.decode().split("\0")[:-1]
    return words[: int(count)], dict(entry.split("=", 1) for entry in words[int(count) :])
