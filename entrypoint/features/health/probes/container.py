"""Probes of what the kernel leaves to this container: shared memory, limits, CPUs, memory, disks.
What a boot needs to know, too, is read in system/preflight.py and judged in plan/limits.py."""

from __future__ import annotations

import os
import resource

from entrypoint.base.text import size
from entrypoint.base.values import frozen
from entrypoint.features.health.probe import Fields, Findings, Inputs, NodeView, Probe
from entrypoint.features.health.probes.accelerators import Accelerators
from entrypoint.features.health.reading import Decimal, Number, Rows, String
from entrypoint.plan import limits
from entrypoint.plan.limits import RUN_DIR, UNLIMITED
from entrypoint.system import cgroups, preflight, proc

_MEMORY_RANK = 512 << 20  # bytes: a Python with torch, before it has read any data
_THREADS_RANK = 64  # of torch, NCCL and data loaders


@frozen
class SharedMemory(Probe):
    """Bytes of /dev/shm."""

    name = "shared memory"
    texts = """
    page | shared memory | /dev/shm | 4 MiB for each rank, 64 MiB with accelerators; a single rank
        needs none
    """
    is_cheap = True
    shm_free: Number = None
    shm_total: Number = None
    shm_problem: String = ""

    @staticmethod
    def read(inputs: Inputs) -> Fields:
        return preflight.shared_memory()

    def judge(self, view: NodeView) -> Findings:
        if self.shm_problem or self.shm_free is not None:
            devices = view.of(Accelerators).devices or 0
            yield limits.shared_memory(view.node.slots, devices, **vars(self))


@frozen
class LockedMemory(Probe):
    """The limit on it, in bytes, -1 for none; whether this process may lock without regard to it;
    and the device files in /dev/infiniband, for which it matters."""

    name = "locked memory"
    texts = """
    page | locked memory | the limit | no limit with RDMA
    """
    is_cheap = True
    memlock: Number = None
    may_lock: bool = False
    rdma_files: Number = None

    @staticmethod
    def read(inputs: Inputs) -> Fields:
        return preflight.locked_memory()

    def judge(self, view: NodeView) -> Findings:
        if self.memlock is not None:
            yield limits.locked_memory(self.memlock, self.may_lock, self.rdma_files)


@frozen
class Limits(Probe):
    """Limits of this process and its cgroup, -1 for none: file handles that may be open, processes
    and threads."""

    name = "limits"
    texts = """
    page | limits | file handles, processes and threads | as many as ranks and sessions take; 64
        threads for each rank
    pids | processes and threads | about {need} | start the container with --pids-limit -1, or raise
        podPidsLimit of the kubelet
    """
    is_cheap = True
    handles: Number = None
    pids: Number = None
    pids_used: Number = None

    @staticmethod
    def read(inputs: Inputs) -> Fields:
        most, used = (
            [int(text) for text in cgroups.readings("pids", {2: name, 1: name}) if text.isdigit()]
            for name in ("pids.max", "pids.current")
        )
        return {
            "handles": resource.getrlimit(resource.RLIMIT_NOFILE)[1],  # `run` raises the soft one
            "pids": min(most, default=UNLIMITED),
            "pids_used": used[0] if used else None,
        }

    def judge(self, view: NodeView) -> Findings:
        if self.handles is not None:  # too few for the entrypoint itself are refused instead
            handles = limits.file_handles(view.plan, view.node.rank, self.handles)
            if handles.level != "error":
                yield handles
        if self.pids is not None:
            need, level, seen = view.node.slots * _THREADS_RANK, "ok", "no limit"
            if self.pids != UNLIMITED:
                left = self.pids - (self.pids_used or 0)
                level = "warning" if left < need else "ok"
                seen = f"{left} left of {self.pids}"
            yield self.finding(level, "pids", seen, need=need)


@frozen
class Cpus(Probe):
    """CPUs that this process may run on, and the cgroup's limit on how many at a time. Too few make
    a job slow, and fail no boot."""

    name = "CPUs"
    texts = """
    page | CPUs | what the cgroup and the host leave | one for each rank
    cpus | CPUs | {slots}, one for each rank | give the container a CPU for each rank (--cpus,
        resources.limits.cpu), or set fewer slots
    """
    cpus: Decimal = None
    cpu_limit: Decimal = None

    @staticmethod
    def read(inputs: Inputs) -> Fields:
        return {"cpus": len(os.sched_getaffinity(0)), "cpu_limit": cgroups.cpu_limit()}

    def judge(self, view: NodeView) -> Findings:
        if self.cpus is None:
            return
        slots, usable = view.node.slots, min(self.cpus, self.cpu_limit or self.cpus)
        seen = f"{usable:g}"
        if usable < self.cpus:
            seen += f" (limit of the container, {self.cpus:g} here)"
        yield self.finding("warning" if usable < slots else "ok", "cpus", seen, slots=slots)


@frozen
class Memory(Probe):
    """Bytes that can still be taken, of the machine and of the cgroup, whose page cache gives way;
    and the cgroup's limit."""

    name = "memory"
    texts = """
    page | memory | what the cgroup and the host leave | 512 MiB for each rank
    memory | memory | about {need} | give the container more memory (--memory,
        resources.limits.memory), or set fewer slots
    """
    is_cheap = True
    memory_free: Number = None
    memory_limit: Number = None

    @staticmethod
    def read(inputs: Inputs) -> Fields:
        available = proc.number("/proc/meminfo", "MemAvailable:")
        free = [] if available is None else [1024 * available]
        used, limit = cgroups.Memory().use() or (0, None)
        free += [] if limit is None else [max(0, limit - used)]
        return {"memory_free": min(free, default=None), "memory_limit": limit}

    def judge(self, view: NodeView) -> Findings:
        if self.memory_free is None:
            return
        need, seen = view.node.slots * _MEMORY_RANK, f"{size(self.memory_free)} free"
        if self.memory_limit:
            seen += f" of {size(self.memory_limit)} (limit of the container)"
        level = "warning" if self.memory_free < need else "ok"
        yield self.finding(level, "memory", seen, need=size(need))


@frozen
class Disk:
    """A folder that the job writes to."""

    use: String = ""
    path: String = ""
    free: Number = None  # bytes
    files: Number = None  # that can still be made; None where the file system sets no limit
    problem: String = ""


@frozen
class Disks(Probe):
    """The file systems that the job writes to: the room of each, or why it cannot be written. A run
    directory that cannot be used is refused; there is no second line about that path."""

    name = "disks"
    texts = """
    page | disks | run directory, logs, working directory: room and inodes | 1 MiB, and 1 GiB for
        the others
    """
    is_cheap = True
    disks: Rows[Disk] = ()

    @staticmethod
    def read(inputs: Inputs) -> Fields:
        topology = inputs.plan.topology
        found = []
        for use, path, writes in (
            (RUN_DIR, topology.run_dir, True),
            ("logs", topology.log_dir, True),
            ("working directory", topology.workdir, False),  # a job need not write where it works
        ):
            if path:
                disk = Disk(use, *preflight.room(path, writes))
                if writes and not disk.problem and not os.access(disk.path, os.W_OK):
                    disk = Disk(use, disk.path, problem="it cannot be written")
                found.append(disk)
        return {"disks": tuple(found)}

    def judge(self, view: NodeView) -> Findings:
        refused = ""
        for disk in self.disks:
            found = limits.disk(**vars(disk))
            if found.level == "error":
                refused = disk.path
            elif disk.path != refused:
                yield found
