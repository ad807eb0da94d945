"""This container's memory cgroup: whether the kernel killed a process since the watch began, with limit and peak.

Version 2 (cgroup-v2.rst, "Memory Interface Files") and version 1 (cgroup-v1/memory.rst); where neither can be read,
nothing is reported.
"""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass
from pathlib import Path

# Version 1 says "no limit" as the largest multiple of a page, near 2^63.
_NO_LIMIT = 1 << 62
# Version -> the counter's file, its limit, its peak.
_FILES = {
    2: ("memory.events", "memory.max", "memory.peak"),
    1: ("memory.oom_control", "memory.limit_in_bytes", "memory.max_usage_in_bytes"),
}


@dataclass(frozen=True)
class Memory:
    """A memory cgroup, and how many processes the kernel had killed there before the watch began."""

    folders: tuple[Path, ...]  # the cgroup, then those around it as far as this container sees
    version: int
    kills: int

    @classmethod
    def watch(cls, root: Path = Path("/")) -> Memory:
        """Begin to watch this process's cgroup. Needs no rights, starts nothing."""
        for version, counter in ((2, "memory.events"), (1, "memory.oom_control")):
            folders = tuple(
                folder for folder in cgroup_folders(root, version, "memory") if (folder / counter).is_file()
            )
            if folders:
                return cls(folders, version, _kills(folders[0] / counter))
        return cls((), 2, 0)

    def oom_killed(self) -> str | None:
        """A sentence, if the kernel killed a process of this cgroup for memory since the watch began; else None."""
        if not self.folders or _kills(self.folders[0] / _FILES[self.version][0]) <= self.kills:
            return None
        _, limit_file, peak_file = _FILES[self.version]
        limits = [size for folder in self.folders if (size := _bytes(folder / limit_file)) is not None]
        peak = _bytes(self.folders[0] / peak_file)  # absent before Linux 5.19 with version 2
        # A cgroup around this one may have a lower limit; without any limit the machine itself was out of memory.
        limit = f"limit {_words(min(limits))}" if limits else "no limit of this container's, so the machine's"
        return f"out of memory: {limit}{f', peak {_words(peak)}' if peak is not None else ''}"


def cgroup_folders(root: Path, version: int, controller: str) -> list[Path]:
    """This process's cgroup of a controller and those around it, innermost first, as /proc says."""
    try:
        groups = _lines(root / "proc/self/cgroup")
        mounts = _lines(root / "proc/self/mountinfo")
    except OSError:
        return []
    for group in groups:
        number, controllers, path = _path(group).split(":", 2)
        if (version == 2 and number == "0") or (version == 1 and controller in controllers.split(",")):
            break
    else:
        return []
    for mount in mounts:
        words, _, kind = mount.partition(" - ")
        top, place = map(_path, words.split(" ")[3:5])
        kind, _, options = kind.split(" ", 2)
        if kind == ("cgroup2" if version == 2 else "cgroup") and (version == 2 or controller in options.split(",")):
            # The mount shows the cgroup `top`; without a namespace of its own the path is the host's.
            below = path.removeprefix(top.rstrip("/")) if path.startswith(top) else ""
            here = root / place.lstrip("/")
            inner = here / below.lstrip("/")
            inner = inner if inner.is_dir() else here
            return [inner, *(folder for folder in inner.parents if folder == here or here in folder.parents)]
    return []


def _lines(file: Path) -> list[str]:
    """The lines of a kernel file; paths in it may hold any byte."""
    return os.fsdecode(file.read_bytes()).rstrip("\n").split("\n")


def _path(text: str) -> str:
    """The real path: the kernel writes white space in it as octal digits."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), text)


def _kills(counter: Path) -> int:
    with contextlib.suppress(OSError, ValueError):
        for line in counter.read_text().splitlines():
            name, _, value = line.partition(" ")
            if name == "oom_kill":
                return int(value)
    return 0


def _bytes(file: Path) -> int | None:
    """The number in a file; None if there is none, or it means no limit."""
    with contextlib.suppress(OSError, ValueError):
        value = int(file.read_text())
        return value if value < _NO_LIMIT else None
    return None


def _words(size: int) -> str:
    """Such as 512 MiB, 1.5 GiB."""
    number, unit = (size / 2**30, "GiB") if size >= 2**30 else (size / 2**20, "MiB")
    return f"{number:.1f}".removesuffix(".0") + f" {unit}"
