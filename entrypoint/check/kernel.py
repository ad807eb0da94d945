"""What the kernel says of this machine and container, for `check`: limits, memory, disks, network.
Starts nothing."""

from __future__ import annotations

import contextlib
import os
import resource
from pathlib import Path
from typing import Any

from entrypoint.check.observation import Disk, Link, Port
from entrypoint.model import Plan
from entrypoint.plan.limits import RUN_DIR, UNLIMITED
from entrypoint.system import network, preflight, proc
from entrypoint.system.cgroups import NO_LIMIT, cpu_limit, readings

_LINKS = 64  # addresses that are reported

Fields = dict[str, Any]  # fields of an Observation


def shared_memory(root: Path = Path("/")) -> Fields:
    """/dev/shm: bytes, or why it cannot be used."""
    free, total, problem = preflight.shared_memory(root)
    return {"shm_problem": problem} if problem else {"shm_free": free, "shm_total": total}


def limits(root: Path = Path("/")) -> Fields:
    """Limits of this process and its cgroup: locked memory, file handles, processes."""
    handles = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    memlock = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]  # `run` raises the soft one
    pids = [
        int(text)
        for text in readings("pids", {2: "pids.max", 1: "pids.max"}, root)
        if text.isdigit()
    ]
    used = next(iter(readings("pids", {2: "pids.current", 1: "pids.current"}, root)), "")
    return {
        "handles": handles,
        "memlock": memlock,
        "may_lock": proc.has_capability(proc.CAP_IPC_LOCK, root),
        "pids": min(pids, default=UNLIMITED),
        "pids_used": int(used) if used.isdigit() else None,
    }


def processors(root: Path = Path("/")) -> Fields:
    """CPUs that this process may run on, and the cgroup's limit on how many at a time."""
    return {"cpus": len(os.sched_getaffinity(0)), "cpu_limit": cpu_limit(root)}


def memory(root: Path = Path("/")) -> Fields:
    """Bytes that can still be taken, of the machine and of the cgroup, whose page cache gives
    way."""
    free = (
        [1024 * available]
        if (available := proc.number(root / "proc/meminfo", "MemAvailable:")) is not None
        else []
    )
    limits = readings("memory", {2: "memory.max", 1: "memory.limit_in_bytes"}, root)
    usages = readings("memory", {2: "memory.current", 1: "memory.usage_in_bytes"}, root)
    caches = readings("memory", {2: "memory.stat", 1: "memory.stat"}, root)
    container_limits = []
    for limit, usage, cache in zip(limits, usages, caches, strict=False):
        if limit.isdigit() and usage.isdigit() and int(limit) < NO_LIMIT:
            container_limits.append(int(limit))
            rows = dict(line.split()[:2] for line in cache.splitlines() if len(line.split()) > 1)
            inactive = rows.get("total_inactive_file", rows.get("inactive_file", "0"))
            free.append(max(0, int(limit) - int(usage) + int(inactive)))
    return {
        "memory_free": min(free, default=None),
        "memory_limit": min(container_limits, default=None),
    }


def disks(plan: Plan) -> Fields:
    """Where the job writes: each file system's room, or why it cannot be written."""
    topology = plan.topology
    uses = {
        RUN_DIR: topology.run_dir,
        "logs": topology.log_dir,
        "working directory": topology.workdir,
    }
    return {"disks": tuple(_disk(use, path) for use, path in uses.items() if path)}


def _disk(use: str, path: str) -> Disk:
    writes = use != "working directory"  # a job need not write where it works
    place, free, files, problem = preflight.room(path, writes)
    if writes and not problem and not os.access(place, os.W_OK):
        return Disk(use, place, problem="it cannot be written")
    return Disk(use, place, free, files, problem)


def links(root: Path = Path("/")) -> Fields:
    """Network interfaces that are up, with MTU and speed as the kernel has them."""
    rows = []
    for interface in network.interfaces()[:_LINKS]:
        mtu, speed = (
            _number(root / "sys/class/net" / interface.name / name) for name in ("mtu", "speed")
        )
        rows.append(Link(interface.name, interface.address, interface.network, mtu, speed))
    return {"links": tuple(rows), "no_link": not rows}


def rdma(root: Path = Path("/")) -> Fields:
    """Ports of InfiniBand and RoCE devices (Linux, sysfs-class-infiniband), and the device files
    that use them."""
    ports = []
    for place in sorted((root / "sys/class/infiniband").glob("*/ports/*")):
        link, state, rate = (_line(place / name) for name in ("link_layer", "state", "rate"))
        ports.append(
            Port(
                place.parent.parent.name, place.name, link, state.partition(": ")[2] or state, rate
            )
        )
    return {
        "ports": tuple(ports),
        "rdma_files": len(list((root / "dev/infiniband").glob("uverbs*"))),
    }


def image(root: Path = Path("/")) -> Fields:
    """What this image is made of: the distribution, the kernel below, and a digest of the installed
    packages."""
    import hashlib

    names = {}
    with contextlib.suppress(OSError):
        names = dict(
            line.partition("=")[::2] for line in (root / "etc/os-release").read_text().splitlines()
        )
    uname, digest = os.uname(), ""
    for base in (
        "var/lib/dpkg/status",
        "lib/apk/db/installed",
        "var/lib/rpm/rpmdb.sqlite",
        "var/lib/rpm/Packages",
    ):
        with contextlib.suppress(OSError):
            digest = hashlib.sha256((root / base).read_bytes()).hexdigest()[:12]
            break
    system = names.get("PRETTY_NAME", "").strip('"')
    return {"system": system, "kernel": uname.release, "machine": uname.machine, "packages": digest}


def _number(file: Path) -> int | None:
    text = _line(file)  # a speed of -1 is none
    return int(text) if text.isdigit() else None


def _line(file: Path) -> str:
    try:
        return file.read_text(errors="replace").strip()
    except OSError:  # a speed that the driver does not know is an error
        return ""
