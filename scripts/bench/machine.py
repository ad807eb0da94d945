"""This machine: what it is, and what processes cost on it, as /proc tells."""

from __future__ import annotations

import contextlib
import functools
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.containers import docker

_TICKS = os.sysconf("SC_CLK_TCK")
_MPIRUN = ("mpirun", "orterun", "orted", "prte", "prted")


@functools.cache
def facts(image: str) -> Mapping[str, str]:
    """Return what a reader needs to judge the numbers: processor, cores, memory, kernel, engine,
    versions, commit, image.

    As it was when it was asked first: a row that is kept changes the page, and with it the
    checkout.
    """
    info = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.split(":")[1].strip() for line in info if line.startswith("model name")]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "processor": models[0] if models else platform.machine(),
        "cores": str(os.cpu_count()),
        "memory": f"{memory:.0f} GiB",
        "Linux": platform.release(),
        "docker": _first_line("docker", "version", "--format", "{{.Server.Version}}"),
        "Open MPI": _first_line("mpirun", "--version").rpartition(" ")[2] or "none",
        "OpenSSH": _first_line("ssh", "-V").partition(",")[0].partition("_")[2] or "none",
        "Python": platform.python_version(),
        "commit": _first_line("git", "describe", "--always", "--dirty", "--abbrev=10"),
        "image": image_id(image)[7:19] or "none",
    }


def image_id(name: str) -> str:
    """Return the image that has this name now, or "": another build may take the name meanwhile."""
    found = _first_line("docker", "image", "inspect", "--format", "{{.Id}}", name)
    return found if found.startswith("sha256:") else ""


def in_use() -> float:
    """Return the per cent of all cores that others use now: a row that starts on a machine in use
    measures them, too."""

    def idle() -> int:
        fields = Path("/proc/stat").read_text().splitlines()[0].split()
        return int(fields[4]) + int(fields[5])  # idle, and waiting for a disk

    before, begun = idle(), time.monotonic()
    time.sleep(2)
    spent = (idle() - before) / _TICKS / (time.monotonic() - begun) / (os.cpu_count() or 1)
    return min(100.0, max(0.0, 100 * (1 - spent)))


def _first_line(*argv: str) -> str:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return next(iter((done.stdout or done.stderr).splitlines()), "").strip()


@dataclass(frozen=True)
class Process:
    """A process of a container at one moment."""

    name: str  # as `ps -o comm`
    cpu: float  # seconds that its living threads have used
    resident: float  # MB
    share: float  # MB, a page shared by n processes counted as one nth

    @property
    def kind(self) -> str:
        """Whose it is: the job's program, sshd, mpirun (with its daemons), or ours."""
        if self.name == "sleep":
            return "program"
        if self.name.startswith("sshd"):
            return "sshd"
        return "mpirun" if self.name in _MPIRUN else "ours"


def processes(container: str) -> list[Process]:
    """Return all processes of a container."""
    found = []
    for pid in docker("top", container, "-eo", "pid").split()[1:]:
        folder = Path(f"/proc/{pid}")
        with contextlib.suppress(OSError):  # it has just ended
            # running time comes first, in nanoseconds
            times = [(thread / "schedstat").read_text() for thread in (folder / "task").iterdir()]
            cpu = sum(int(each.split()[0]) for each in times) / 1e9
            sizes = _fields(folder / "status") | _fields(folder / "smaps_rollup")
            memory = [float(sizes.get(name, "0").split()[0]) / 1000 for name in ("VmRSS", "Pss")]
            found.append(Process(sizes["Name"].strip(), cpu, *memory))
    return found


def _fields(file: Path) -> dict[str, str]:
    return dict(line.split(":", 1) for line in file.read_text().splitlines() if ":" in line)


def cpu_of(pid: int) -> float:
    """Return the seconds of CPU of a process, its ended threads too, in steps of a hundredth. 0 if
    it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICKS


def peak_of(pid: int) -> float:
    """Return the most memory (MB resident) that a process has held. 0 if it is gone."""
    try:
        return float(_fields(Path(f"/proc/{pid}/status")).get("VmHWM", "0").split()[0]) / 1000
    except OSError:
        return 0.0


def simulated_address(worker: int) -> str:
    """Return the address of a simulated worker, 1 and up, or of its leader, 0."""
    return f"127.1.{worker // 250}.{1 + worker % 250}"


@contextlib.contextmanager
def busy(loops: int) -> Iterator[None]:
    """So many processes that compute without end, while the block runs."""
    argv = [sys.executable, "-I", "-S", "-c", "while True: pass"]
    started = [subprocess.Popen(argv) for _ in range(loops)]
    try:
        yield
    finally:
        for each in started:
            each.kill()
        for each in started:
            each.wait()
