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
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_MPIRUN = ("mpirun", "orterun", "orted", "prte", "prted")


@functools.cache
def facts(image: str) -> Mapping[str, str]:
    """What a reader needs to judge the numbers: processor, cores, memory, kernel, engine, versions,
    commit, image.

    As it was when it was asked first: a row that is kept changes the page, and with it the
    checkout.
    """
    info = Path("/proc/cpuinfo").read_text().splitlines()
    model = next(
        (line.split(":")[1].strip() for line in info if line.startswith("model name")),
        platform.machine(),
    )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    engine = _first_line("docker", "version", "--format", "{{.Server.Version}}")
    return {
        "processor": model,
        "cores": str(os.cpu_count()),
        "memory": f"{memory:.0f} GiB",
        "Linux": platform.release(),
        "docker": engine,
        "Open MPI": _first_line("mpirun", "--version").rpartition(" ")[2] or "none",
        "OpenSSH": _first_line("ssh", "-V").partition(",")[0].partition("_")[2] or "none",
        "Python": platform.python_version(),
        "commit": _first_line("git", "describe", "--always", "--dirty", "--abbrev=10"),
        "image": image_id(image)[7:19] or "none",
    }


def image_id(name: str) -> str:
    """The image that has this name now, or "": another build may take the name meanwhile."""
    found = _first_line("docker", "image", "inspect", "--format", "{{.Id}}", name)
    return found if found.startswith("sha256:") else ""


def in_use() -> float:
    """Per cent of all cores that others use now: a row that starts on a machine in use measures
    them, too."""

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
    """A process at one moment."""

    pid: int
    name: str  # as `ps -o comm`
    words: tuple[str, ...]  # its command line
    cpu: float  # seconds that its living threads have used
    resident: float  # MB
    # MB, a page shared by n processes counted as one nth; None where we may not see it
    share: float | None
    threads: int

    @property
    def kind(self) -> str:
        """Whose it is: sshd, mpirun (with its daemons), or ours. A job's program is none of these:
        see `of_job`."""
        if self.name.startswith("sshd"):
            return "sshd"
        return "mpirun" if self.name in _MPIRUN else "ours"


def process(pid: int) -> Process | None:
    """What /proc says of it; None if it is gone."""
    folder = Path(f"/proc/{pid}")
    try:
        status = dict(
            line.split(":", 1)
            for line in (folder / "status").read_text().splitlines()
            if ":" in line
        )
        words = tuple(
            (folder / "cmdline").read_bytes().decode(errors="replace").rstrip("\0").split("\0")
        )
        cpu = sum(_nanoseconds(thread) for thread in (folder / "task").iterdir()) / 1e9
    except (OSError, ValueError):
        return None
    resident = float(status.get("VmRSS", "0 kB").split()[0]) / 1000  # a zombie has none
    return Process(
        pid, status["Name"].strip(), words, cpu, resident, _share(folder), int(status["Threads"])
    )


def _nanoseconds(thread: Path) -> int:
    with contextlib.suppress(OSError):  # it has just ended
        return int((thread / "schedstat").read_text().split()[0])
    return 0


def _share(folder: Path) -> float | None:
    try:
        rows = (folder / "smaps_rollup").read_text().splitlines()
    except OSError:
        return None
    return next((float(row.split()[1]) / 1000 for row in rows if row.startswith("Pss:")), None)


def cpu_of(pid: int) -> float:
    """Seconds of CPU of a process, its ended threads too, in steps of a hundredth. 0 if it is
    gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICKS


def peak_of(pid: int) -> tuple[float, int]:
    """The most memory (MB resident) that a process has held, and how many threads it has now. Zeros
    if it is gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0, 0
    values = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    return float(values.get("VmHWM", "0 kB").split()[0]) / 1000, int(values["Threads"])


def listening(port: int) -> int:
    """On how many IPv4 addresses of this machine something listens at this port. Connects to
    nobody."""
    end = f":{port:04X}"
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(row[1].endswith(end) and row[3] == "0A" for row in rows)


@contextmanager
def busy(loops: int) -> Iterator[None]:
    """So many processes that compute without end, while the block runs."""
    started = [
        subprocess.Popen([sys.executable, "-I", "-S", "-c", "while True: pass"])
        for _ in range(loops)
    ]
    try:
        yield
    finally:
        for each in started:
            each.kill()
        for each in started:
            each.wait()
