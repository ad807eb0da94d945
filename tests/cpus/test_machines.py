"""Simulated machines: threads and CPUs of each rank, as the plan of such a container has them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from entrypoint import plan as planning
from entrypoint import spec as specs
from entrypoint.model import Facts, Plan
from entrypoint.system import cgroups, processors

MACHINES = yaml.safe_load(Path(__file__).with_name("machines.yaml").read_text())
NAMES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
BINDS = ("none", "numa", "cores")


def listed(text: str) -> list[int]:
    """Return the numbers of a list such as 0-3,8; of `-` none."""
    pairs = [part.split("-") for part in text.split(",") if part.strip("-")]
    return [number for pair in pairs for number in range(int(pair[0]), int(pair[-1]) + 1)]


def put(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{text}\n")


def build(root: Path, machine: dict[str, Any]) -> tuple[list[int], list[str]]:
    """Write the machine's files; return the CPUs that the container may use, and its device
    files."""
    nodes = machine.get("nodes", [])
    total = machine.get("unknown") or len(listed(",".join(filter(None, nodes))))
    for number, cpus in enumerate(nodes):
        put(root / f"sys/devices/system/node/node{number}/cpulist", cpus)
    if nodes:
        put(root / "sys/devices/system/node/online", f"0-{len(nodes) - 1}")
    for cpu in range(total):
        smt = machine.get("smt")
        core = [cpu - cpu % 2, cpu - cpu % 2 + 1] if smt == "pairs" else [cpu]
        core = [cpu % smt, cpu % smt + smt] if isinstance(smt, int) else core
        place = root / f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"
        put(place, ",".join(map(str, core)))
    for minor, gpu in enumerate(machine.get("gpus", ())):
        (uuid, node), address = gpu.split(), f"0000:{0x1B + 0x20 * minor:02X}:00.0"
        said = f"Model: \t\t A100\nIRQ:   \t\t 1\nGPU UUID: \t {uuid}\nDevice Minor: \t {minor}"
        put(root / f"proc/driver/nvidia/gpus/{address.lower()}/information", said)
        put(root / f"sys/bus/pci/devices/{address.lower()}/numa_node", node)
    given = machine.get("given", range(len(machine.get("gpus", ()))))
    allow = listed(machine["allowed"]) if "allowed" in machine else list(range(total))
    limit(root, *machine.get("cgroup", (2, "max 100000")))
    return allow, ["null", "nvidiactl", *(f"nvidia{minor}" for minor in given)]


def limit(root: Path, version: int, *limits: str) -> None:
    """Write the cgroups from the outermost to the container's own."""
    path = "/pod/box"[: 4 * len(limits)]
    place = "/sys/fs/cgroup" if version == 2 else "/sys/fs/cgroup/cpu,cpuacct"
    kind = "cgroup2 cgroup rw" if version == 2 else "cgroup cgroup rw,cpu,cpuacct"
    put(root / "proc/self/cgroup", f"{'0:' if version == 2 else '4:cpu,cpuacct'}:{path}")
    put(root / "proc/self/mountinfo", f"30 29 0:26 / {place} ro,nosuid - {kind}")
    for depth, text in enumerate(limits, 1):
        folder = root / place[1:] / "/".join(["pod", "box"][:depth])
        if version == 2:
            put(folder / "cpu.max", text)
        else:
            quota, period = text.split()
            put(folder / "cpu.cfs_quota_us", quota)
            put(folder / "cpu.cfs_period_us", period)


def settled(machine: dict[str, Any], bind: str, launcher: str, facts: Facts) -> Plan:
    text = (
        f"command: [prog]\nlauncher: {launcher}\nslots: {machine['ranks']}\ncpu: {{bind: {bind}}}\n"
    )
    return planning.settle(specs.load(text, "job.yaml", facts.env, {}), facts)


@pytest.mark.promise("threads and CPUs of each rank are its share of the container's")
@pytest.mark.parametrize("machine", MACHINES, ids=[machine["name"] for machine in MACHINES])
def test_a_machine(
    machine: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    allowed, devices = build(tmp_path, machine)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(allowed))
    env = {"PATH": "/usr/bin:/bin", **machine.get("env", {})}
    facts = Facts(env, "a", "/", 0, "root", "/root", tuple(devices), cpus=cgroups.cpus(tmp_path))
    for bind, expected in zip(BINDS, machine["threads"], strict=True):
        if bind != "none":
            facts = processors_of(facts, tmp_path)
        plan = settled(machine, bind, "mpirun", facts)
        threads = {var.name: int(var.value) for var in plan.env if var.name in NAMES}
        numexpr = {"NUMEXPR_NUM_THREADS": machine.get("numexpr", expected)}
        assert threads == (dict.fromkeys(NAMES, expected) | numexpr if expected else {}), bind
        files = {file.name: file.text for file in plan.files}
        assert ("cpus" in files) is (bind != "none")
        if bind != "none":
            masks = [sorted(map(int, line.split())) for line in files["cpus"].splitlines()]
            assert masks == [sorted(listed(part)) for part in machine[bind].split()], bind
            assert all(set(mask) <= set(allowed) for mask in masks)
        warns = machine.get("warns") if bind == "numa" else None
        assert [warns in warning for warning in plan.warnings if warns] == [True] * bool(warns)
        assert bool(plan.warnings) is bool(warns)


def processors_of(facts: Facts, root: Path) -> Facts:
    from entrypoint.values import replace

    return replace(facts, processors=processors.read(facts.device_files, root))


@pytest.mark.control("threads and CPUs of each rank are its share of the container's")
def test_these_are_many_machines_that_differ() -> None:
    assert len(MACHINES) >= 20
    assert {len(machine.get("nodes", ())) for machine in MACHINES} >= {1, 2, 3, 4}
    assert {machine["cgroup"][0] for machine in MACHINES if "cgroup" in machine} == {1, 2}
    assert len({str(machine["threads"]) + machine["numa"] for machine in MACHINES}) > 20
