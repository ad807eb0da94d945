"""This container's cgroups: whether the kernel killed a process for memory, or refused one, since a
watch began.

Version 2 (cgroup-v2.rst, "Memory Interface Files", "PID Interface Files") and version 1
(cgroup-v1/memory.rst; for processes it has the files of version 2); if neither can be read, nothing
is reported. A watch needs no rights.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping
from pathlib import Path

from entrypoint.base.errors import RetryError
from entrypoint.base.text import size
from entrypoint.system import proc

ROOT = Path("/")
# Version 1 says "no limit" as the largest multiple of a page, near 2^63.
NO_LIMIT = 1 << 62
# Version -> the file with the counter, or the limit, or the peak (absent before Linux 5.19 with
# version 2).
_MEMORY_EVENTS = {2: "memory.events", 1: "memory.oom_control"}
_MEMORY_LIMIT = {2: "memory.max", 1: "memory.limit_in_bytes"}
_MEMORY_PEAK = {2: "memory.peak", 1: "memory.max_usage_in_bytes"}
# Limit -> the file with the use, and the line of memory.stat with the page cache that gives way.
_MEMORY_USE = {
    "memory.max": ("memory.current", "inactive_file"),
    "memory.limit_in_bytes": ("memory.usage_in_bytes", "total_inactive_file"),
}
_PROCESSES_EVENTS = dict.fromkeys((2, 1), "pids.events")
_PROCESSES_LIMIT = dict.fromkeys((2, 1), "pids.max")
_MOUNTS = {2: "cgroup2", 1: "cgroup"}  # kinds of file system


class _Counter:
    """A line of a file of this process's cgroup, and its value when the watch began."""

    def __init__(self, controller: str, files: Mapping[int, str], line: str) -> None:
        self._file = next(filter(Path.is_file, _files(controller, files)), None)
        self._line = line
        self._before = self._value()

    def _value(self) -> int:
        return (proc.number(self._file, self._line) or 0) if self._file else 0

    def _has_grown(self) -> bool:
        return self._value() > self._before


class Memory(_Counter):
    """The limit on memory (--memory), watched from now on."""

    def __init__(self) -> None:
        super().__init__("memory", _MEMORY_EVENTS, "oom_kill")
        # Where there is none now, there never is one: Kubernetes changes the value of a limit, and
        # adds none.
        self._limits = [*filter(_is_limit, _files("memory", _MEMORY_LIMIT))]

    def use(self) -> tuple[int, int] | None:
        """Return the bytes that are used of this cgroup's limit, without page cache that gives way,
        and the limit; with nested limits, where the least is left. None without a limit."""
        found = []
        for file in self._limits:
            use, cache = _MEMORY_USE[file.name]
            with contextlib.suppress(OSError, ValueError):  # it was removed, or is "max" now
                limit = int(file.read_text())
                free = proc.number(file.with_name("memory.stat"), cache) or 0
                used = max(0, int(file.with_name(use).read_text()) - free)
                found.append((limit - used, used, limit))
        return min(found)[1:] if found else None

    def oom_killed(self) -> str | None:
        """Return a sentence if the kernel killed a process for memory since the watch began; else
        None."""
        if not self._has_grown():
            return None
        limit = _lowest("memory", _MEMORY_LIMIT)
        peak = _lowest("memory", _MEMORY_PEAK)
        # A parent cgroup may have a lower limit; without any limit the machine itself was out of
        # memory.
        reason = "no limit of this container's, so the machine's"
        if limit is not None:
            reason = f"limit {size(limit)}"
        return f"out of memory: {reason}{'' if peak is None else f', peak {size(peak)}'}"


class Processes(_Counter):
    """The limit on processes (--pids-limit), watched from now on.

    A refused program prints at most "Resource temporarily unavailable", and often nothing.
    """

    def __init__(self) -> None:
        super().__init__("pids", _PROCESSES_EVENTS, "max")

    def refused(self) -> str | None:
        """Return a sentence if the kernel refused to start a process since the watch began; else
        None."""
        if not self._has_grown():
            return None
        most = _lowest("pids", _PROCESSES_LIMIT)
        limit = "on processes" if most is None else f"of {most} processes"
        return f"the container's limit {limit} was reached, raise --pids-limit"

    def ever_refused(self) -> str | None:
        """Return the same sentence if the kernel has refused one since the cgroup was made."""
        self._before = 0
        return self.refused()


def refused(kind: str) -> RetryError:
    """Return the error of a process or thread (`kind`) that the kernel refused to start."""
    why = Processes().ever_refused() or "the limit on processes (ulimit -u) was reached"
    return RetryError(f"EP609 cannot start another {kind}: {why}")


def _folders(version: int, controller: str) -> list[Path]:
    """Return the folders of this process's cgroup of a controller and its parents, innermost first,
    from /proc."""
    try:
        groups = _lines(ROOT / "proc/self/cgroup")
        mounts = _lines(ROOT / "proc/self/mountinfo")
    except OSError:
        return []
    if version == 2:
        controller = ""  # one hierarchy has all of them, and names none
    for group in groups:
        _, controllers, path = _path(group).split(":", 2)
        if controller in controllers.split(","):
            break
    else:
        return []
    for mount in mounts:
        mount_fields, _, kind = mount.partition(" - ")
        top, place = map(_path, mount_fields.split(" ")[3:5])
        kind, _, options = kind.split(" ", 2)
        if kind == _MOUNTS[version] and controller in ("", *options.split(",")):
            # The mount shows the cgroup `top`; without a namespace of its own the path is the
            # host's.
            relative = path.removeprefix(top.rstrip("/")) if path.startswith(top) else ""
            base = ROOT / place.lstrip("/")
            inner = base / relative.lstrip("/")
            inner = inner if inner.is_dir() else base
            return [each for each in (inner, *inner.parents) if each.is_relative_to(base)]
    return []


def _files(controller: str, names: Mapping[int, str]) -> list[Path]:
    """Return the paths of a file (names by cgroup version) in this process's cgroup and its
    parents, in order."""
    return [
        folder / name for version, name in names.items() for folder in _folders(version, controller)
    ]


def _is_limit(file: Path) -> bool:
    """Return whether this file holds a limit; "max" is none."""
    try:
        return int(file.read_text()) < NO_LIMIT
    except (OSError, ValueError):
        return False


def _lines(file: Path) -> list[str]:
    """Return the lines of a kernel file; paths in it may hold any byte."""
    return os.fsdecode(file.read_bytes()).rstrip("\n").split("\n")


def _path(text: str) -> str:
    """Return the real path: the kernel writes white space in it as octal digits."""
    return (
        re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text) if "\\" in text else text
    )


def _lowest(controller: str, files: Mapping[int, str]) -> int | None:
    """Return the lowest number in such a file of this process's cgroup and its parents; None if
    there is none, or it means no limit."""
    numbers = (int(text) for text in readings(controller, files) if text.isdigit())
    return min((number for number in numbers if number < NO_LIMIT), default=None)


def readings(controller: str, names: Mapping[int, str]) -> list[str]:
    """Return the content of such files."""
    texts = []
    for file in _files(controller, names):
        with contextlib.suppress(OSError):
            texts.append(file.read_text().strip())
    return texts


def cpu_limit() -> float | None:
    """Return how many CPUs this process's cgroup may use at a time; None if it has no limit."""
    quotas, periods = (readings("cpu", {1: f"cpu.cfs_{name}_us"}) for name in ("quota", "period"))
    limits = [text.partition(" ")[::2] for text in readings("cpu", {2: "cpu.max"})]
    limits += zip(quotas, periods, strict=False)
    given = (int(quota) / int(period) for quota, period in limits if quota.isdigit())
    return min(given, default=None)


def cpus() -> tuple[float, str]:
    """Return how many CPUs this process may use at a time, and a name for them: processes of one
    boot of a kernel with the same affinity (which is within the cpuset) share them, but for a lower
    limit, which is that of one cgroup. "" if nothing tells machines apart."""
    limit, allowed = cpu_limit(), sorted(os.sched_getaffinity(0))
    number, group = float(len(allowed)), 0
    if limit is not None and limit < number:
        folders = _folders(2, "cpu") or _folders(1, "cpu")
        number, group = limit, folders[0].stat().st_ino if folders else 0
    with contextlib.suppress(OSError):
        boot = (ROOT / "proc/sys/kernel/random/boot_id").read_text().strip()
        return number, f"{boot} {allowed[0]}-{allowed[-1]}/{len(allowed)} {group}"
    return number, ""
