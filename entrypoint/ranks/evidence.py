"""Measures a node once a rank has failed: counters of the kernel, space, and the state of its
devices.

Nothing is measured while nothing fails. What may take long, a device's tool and disks, is asked in
a thread, with a time limit.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from entrypoint.base.model import Facts, Topology
from entrypoint.causes.evidence import DeviceFault, Evidence
from entrypoint.ranks.limits import NodeLimits
from entrypoint.system.preflight import room, shared_memory

TOOL_LIMIT = 5.0  # seconds for a device's tool
_KERNEL_LOG = "/dev/kmsg"
_GPUS = "/proc/driver/nvidia/gpus"
_MOST_RECORDS = 20_000  # of the kernel's log, which holds fewer
_RECORD = 8192  # bytes, the most that the kernel gives at once (Documentation/ABI, dev-kmsg)
_EARLIER = 60.0  # seconds before the start of the ranks in which a fault of a GPU still counts


class NodeProbe:
    """Measures this node. `limits`: what its programs have met since their start."""

    def __init__(self, facts: Facts, topology: Topology, limits: NodeLimits) -> None:
        self._facts = facts
        self._topology = topology
        self._limits = limits

    def is_at(self, address: str) -> bool:
        """Return whether this node has this address."""
        own = (interface.address for interface in self._facts.interfaces)
        return address in (self._topology.this.where, *own)

    def counters(self) -> Evidence:
        """Return what the kernel counts, and the space that is left: at the time of the call."""
        shm = shared_memory()
        topology = self._topology
        folders = dict.fromkeys((topology.workdir, topology.log_dir, topology.run_dir, "/tmp"))
        return Evidence(
            oom_kills=bool(self._limits.memory.oom_killed()),
            refused_processes=bool(self._limits.processes.refused()),
            shm_free=shm.get("shm_free"),
            shm_size=shm.get("shm_total"),
            disk_full=tuple(
                folder for folder in folders if folder and 0 in room(folder, writes=False)
            ),
        )

    def device_faults(self) -> tuple[DeviceFault, ...]:
        """Return what the devices' tools and the kernel's log report. Takes up to TOOL_LIMIT
        seconds."""
        # Most failures need no tool.
        from entrypoint.system.smi import faults, readings, xids

        minors = _minors()
        found = list(self._logged(minors))
        for reading in asyncio.run(readings(self._facts.env, TOOL_LIMIT)):
            found += xids(reading.output, minors)
            found += faults(reading, self._topology.device.count)
        return tuple(dict.fromkeys(found))

    def _logged(self, minors: Mapping[str, int]) -> Iterator[DeviceFault]:
        """Yield the faults in the kernel's log that tell of the ranks; none if this container may
        not read it. What a program does to itself, such as Xid 43, tells nothing of the programs
        after it."""
        from entrypoint.causes.measured import shown_by
        from entrypoint.system.smi import xids

        for record in _records():
            head, _, text = record.decode("utf-8", "replace").partition(";")
            fields = head.split(",")
            logged = int(fields[2]) / 1e6 if len(fields) > 2 and fields[2].isdigit() else 0.0
            logged_faults = xids(text.partition("\n")[0], minors) if "Xid" in text else ()
            for fault in logged_faults if logged >= self._limits.started - _EARLIER else ():
                if logged >= self._limits.started or shown_by(fault) != "cuda-kernel-fault":
                    yield fault


def _records() -> Iterator[bytes]:
    how = os.O_RDONLY | os.O_NONBLOCK
    with contextlib.suppress(OSError), open(os.open(_KERNEL_LOG, how), "rb", 0) as log:
        for _ in range(_MOST_RECORDS):
            try:
                record = log.read(_RECORD)
            except BrokenPipeError:  # records were overwritten meanwhile; the next is there
                continue
            if not record:
                return
            yield record


def _minors() -> dict[str, int]:
    """Return the number of each GPU by its PCI address, with and without the function."""
    numbers: dict[str, int] = {}
    for folder in Path(_GPUS).glob("*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            text = (folder / "information").read_text()
            minor = int(text.split("Device Minor:")[1].split()[0])
            address = folder.name.lower()
            numbers |= {address: minor, address.rpartition(".")[0]: minor}
    return numbers
