"""What the kernel says of this machine and container, for `check`: limits, memory, disks, network;
what a boot needs to know, too, is in system/preflight.py. Starts nothing."""

from __future__ import annotations

import contextlib
import os
import resource
from pathlib import Path
from typing import Any

from entrypoint.base.model import Plan
from entrypoint.base.text import digits
from entrypoint.features.health.observation import Disk, Link, Port
from entrypoint.plan.limits import RUN_DIR, UNLIMITED
from entrypoint.system import network, proc
from entrypoint.system.cgroups import Memory, cpu_limit, readings
from entrypoint.system.preflight import ROOT, room

_LINKS = 64  # addresses that are reported

Fields = dict[str, Any]  # fields of an Observation


def limits() -> Fields:
    """Limits of this process and its cgroup: file handles, processes."""
    most, used = (
        [int(text) for text in readings("pids", {2: name, 1: name}) if text.isdigit()]
        for name in ("pids.max", "pids.current")
    )
    return {
        "handles": resource.getrlimit(resource.RLIMIT_NOFILE)[1],  # `run` raises the soft one
        "pids": min(most, default=UNLIMITED),
        "pids_used": used[0] if used else None,
    }


def processors() -> Fields:
    """CPUs that this process may run on, and the cgroup's limit on how many at a time."""
    return {"cpus": len(os.sched_getaffinity(0)), "cpu_limit": cpu_limit()}


def memory() -> Fields:
    """Bytes that can still be taken, of the machine and of the cgroup."""
    available = proc.number("/proc/meminfo", "MemAvailable:")
    free = [] if available is None else [1024 * available]
    used, limit = Memory().use() or (0, None)
    free += [] if limit is None else [max(0, limit - used)]
    return {"memory_free": min(free, default=None), "memory_limit": limit}


def disks(plan: Plan) -> Fields:
    """Where the job writes: each file system's room, or why it cannot be written."""
    topology = plan.topology
    found = []
    for use, path, writes in (
        (RUN_DIR, topology.run_dir, True),
        ("logs", topology.log_dir, True),
        ("working directory", topology.workdir, False),  # a job need not write where it works
    ):
        if path:
            disk = Disk(use, *room(path, writes))
            if writes and not disk.problem and not os.access(disk.path, os.W_OK):
                disk = Disk(use, disk.path, problem="it cannot be written")
            found.append(disk)
    return {"disks": tuple(found)}


def links() -> Fields:
    """Network interfaces that are up, with MTU and speed as the kernel has them."""
    rows = []
    for interface in network.interfaces()[:_LINKS]:
        folder = Path("/sys/class/net", interface.name)
        mtu, speed = (digits(_text(folder / name)) for name in ("mtu", "speed"))  # or -1
        rows.append(Link(interface.name, interface.address, interface.network, mtu, speed))
    return {"links": tuple(rows), "no_link": not rows}


def rdma(root: Path = ROOT) -> Fields:
    """Ports of InfiniBand and RoCE devices (Linux, sysfs-class-infiniband)."""
    ports = []
    for place in sorted((root / "sys/class/infiniband").glob("*/ports/*")):
        link, state, rate = (_text(place / name) for name in ("link_layer", "state", "rate"))
        state = state.partition(": ")[2] or state
        ports.append(Port(place.parent.parent.name, place.name, link, state, rate))
    return {"ports": tuple(ports)}


def image() -> Fields:
    """What this image is made of: the distribution, the kernel below, and a digest of the installed
    packages."""
    import hashlib

    names = dict(line.partition("=")[::2] for line in _text(Path("/etc/os-release")).splitlines())
    uname, digest = os.uname(), ""
    for base in (
        "/var/lib/dpkg/status",
        "/lib/apk/db/installed",
        "/var/lib/rpm/rpmdb.sqlite",
        "/var/lib/rpm/Packages",
    ):
        with contextlib.suppress(OSError):
            digest = hashlib.sha256(Path(base).read_bytes()).hexdigest()[:12]
            break
    system = names.get("PRETTY_NAME", "").strip('"')
    return {"system": system, "kernel": uname.release, "machine": uname.machine, "packages": digest}


def _text(file: Path) -> str:
    try:
        return file.read_text(errors="replace").strip()
    except OSError:  # a speed that the driver does not know is an error
        return ""
