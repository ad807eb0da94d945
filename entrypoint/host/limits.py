"""This container's limit on processes (--pids-limit): whether the kernel refused one since the watch began.

Both versions of the cgroups have the same files (cgroup-v2.rst, "PID Interface Files"); where they cannot be read,
nothing is reported. The refused program prints at most "Resource temporarily unavailable", and often nothing.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path

from entrypoint.host.memory import cgroup_folders


@dataclass(frozen=True)
class Processes:
    """A cgroup of processes, and how many the kernel had refused there before the watch began."""

    folders: tuple[Path, ...]  # the cgroup, then those around it as far as this container sees
    refusals: int

    @classmethod
    def watch(cls, root: Path = Path("/")) -> Processes:
        """Begin to watch this process's cgroup. Needs no rights, starts nothing."""
        for version in (2, 1):
            folders = tuple(each for each in cgroup_folders(root, version, "pids") if (each / "pids.events").is_file())
            if folders:
                return cls(folders, _refusals(folders[0]))
        return cls((), 0)

    def refused(self) -> str | None:
        """A sentence, if the kernel refused to start a process since the watch began; else None."""
        if not self.folders or _refusals(self.folders[0]) <= self.refusals:
            return None
        limits = []
        for folder in self.folders:
            with contextlib.suppress(OSError, ValueError):
                limits.append(int((folder / "pids.max").read_text()))  # "max" is none
        limit = f"of {min(limits)} processes" if limits else "on processes"
        return f"the container's limit {limit} was reached, raise --pids-limit"


def _refusals(folder: Path) -> int:
    with contextlib.suppress(OSError, ValueError):
        for line in (folder / "pids.events").read_text().splitlines():
            name, _, value = line.partition(" ")
            if name == "max":
                return int(value)
    return 0
