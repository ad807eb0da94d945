"""Reads where the CPUs and GPUs of this machine are, from /sys and /proc: cores, NUMA nodes, PCI
addresses.

Sources: Linux, Documentation/ABI/stable/sysfs-devices-node, sysfs-devices-system-cpu,
Documentation/admin-guide/cputopology.rst, ABI/testing/sysfs-bus-pci (numa_node); NVIDIA's driver,
README, "The proc filesystem interface".
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Mapping
from pathlib import Path

from entrypoint.model import Processors

_NODES = "sys/devices/system/node"
_CPUS = "sys/devices/system/cpu"
_GPUS = "proc/driver/nvidia/gpus"  # a folder for each PCI address


def read(
    device_files: Collection[str], root: Path = Path("/"), allowed: Collection[int] | None = None
) -> Processors:
    """Return the cores, NUMA nodes and GPUs of this container.

    `device_files` are the entries of /dev, `allowed` the CPUs that this process may run on.
    """
    usable = set(os.sched_getaffinity(0) if allowed is None else allowed)
    nodes = _nodes(root, usable)
    return Processors(_cores(root, usable, nodes), nodes, tuple(_cards(root, device_files)))


def _nodes(root: Path, usable: set[int]) -> dict[int, tuple[int, ...]]:
    nodes = {}
    names = (name.removeprefix("node") for name in _entries(root / _NODES))
    for number in sorted(int(name) for name in names if name.isdigit()):
        if cpus := _listed(_text(root / f"{_NODES}/node{number}/cpulist")):  # else memory alone
            nodes[number] = tuple(cpu for cpu in cpus if cpu in usable)
    return nodes if any(nodes.values()) else {}


def _cores(
    root: Path, usable: set[int], nodes: Mapping[int, tuple[int, ...]]
) -> tuple[tuple[int, ...], ...]:
    """Return the usable CPUs of each core, in the order of NUMA nodes, then of CPU numbers."""
    ordered = dict.fromkeys((*(cpu for cpus in nodes.values() for cpu in cpus), *sorted(usable)))
    cores = []
    remaining = set(usable)
    for cpu in ordered:
        if cpu in remaining:
            siblings = _listed(_text(root / f"{_CPUS}/cpu{cpu}/topology/thread_siblings_list"))
            core = tuple(sorted({cpu, *siblings} & remaining))
            remaining -= {*core}
            cores.append(core)
    return tuple(cores)


def _cards(root: Path, device_files: Collection[str]) -> list[tuple[str, int | None]]:
    """Return UUID and NUMA node of each GPU that has a device file here, by PCI address."""
    cards = []
    for address in _entries(root / _GPUS):
        text = _text(root / f"{_GPUS}/{address}/information")
        rows = (line.partition(":") for line in text.splitlines())
        card = {name: value.strip() for name, _, value in rows}
        if f"nvidia{card.get('Device Minor')}" in device_files:
            number = _text(root / f"sys/bus/pci/devices/{address.lower()}/numa_node")
            node = int(number) if number.isdigit() else None  # -1: unknown
            cards.append((card.get("GPU UUID", ""), node))
    return cards


def _entries(folder: Path) -> list[str]:
    with contextlib.suppress(OSError):
        return sorted(os.listdir(folder))
    return []


def _text(file: Path) -> str:
    with contextlib.suppress(OSError):
        return file.read_text(errors="replace").strip()
    return ""


def _listed(text: str) -> list[int]:
    """Return the numbers of a list of the kernel's, such as 0-3,8-11."""
    numbers: list[int] = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        numbers += range(int(first), int(last or first) + 1)
    return numbers
