"""Simulated machines: the CPUs that a container may use, the threads of each rank, and which
containers share their CPUs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from entrypoint import spec as specs
from entrypoint.base.model import Facts
from entrypoint.base.text import spans
from entrypoint.plan import settle
from entrypoint.system import cgroups
from tests import table
from tests.cpus import NAMES

TABLE = table("tests/tables/machines.yaml")

# Affinity, which the kernel keeps within the cpuset; version of cgroups, then the limits of the one
# around the container and of its own, quota and period in us; ranks; threads of each, by hand.
MACHINES: dict[str, tuple[str, tuple[Any, ...], int, int]] = TABLE["machines"]
BOOT = "proc/sys/kernel/random/boot_id"


@pytest.fixture(autouse=True)
def root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroups, "ROOT", cgroups.ROOT)  # which tests change


def listed(text: str) -> list[int]:
    """Return the numbers of a list such as 0-3,8."""
    pairs = [part.split("-") for part in text.split(",")]
    return [number for pair in pairs for number in range(int(pair[0]), int(pair[-1]) + 1)]


def put(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{text}\n")


def build(root: Path, version: int = 2, *limits: str, boot: str = "one") -> None:
    """Write the kernel's files of a container: the cgroups from the outermost to its own."""
    path = "/pod/box"[: 4 * len(limits)]
    place = "/sys/fs/cgroup" if version == 2 else "/sys/fs/cgroup/cpu,cpuacct"
    kind = "cgroup2 cgroup rw" if version == 2 else "cgroup cgroup rw,cpu,cpuacct"
    put(root / BOOT, boot)
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
    cgroups.ROOT = root


@pytest.mark.promise("threads of each rank are its share of the container's CPUs")
@pytest.mark.parametrize("name", MACHINES)
def test_a_machine(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    allowed, limits, ranks, expected = MACHINES[name]
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(listed(allowed)))
    build(tmp_path, *limits)
    cpus, pool = cgroups.cpus()
    assert pool
    facts = Facts({"PATH": "/bin"}, "a", "/", 0, "root", "/root", cpus=cpus, cpu_pool=pool)
    text = f"command: [prog]\nlauncher: mpirun\nslots: {ranks}\n"
    plan = settle(specs.load(text, "job.yaml", facts.env, {}), facts)
    threads = {var.name: int(var.value) for var in plan.env if var.name in NAMES}
    assert threads == dict.fromkeys(NAMES, expected) | {NAMES[3]: min(64, expected)}


@pytest.mark.control("threads of each rank are its share of the container's CPUs")
def test_these_machines_differ() -> None:
    assert len({(allowed, *limits) for allowed, limits, *_ in MACHINES.values()}) >= 12
    assert {limits[0] for _, limits, *_ in MACHINES.values() if limits} == {1, 2}
    assert all(spans(listed(allowed)) for allowed, *_ in MACHINES.values())


@pytest.mark.parametrize(("first", "second", "share"), TABLE["pairs"])
def test_containers_that_share_their_cpus_name_them_alike(
    first: Any, second: Any, share: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pools = []
    for number, (allowed, limits, boot) in enumerate((first, second)):
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid, cpus=allowed: set(listed(cpus)))
        build(tmp_path / str(number), *limits, boot=boot)
        pools.append(cgroups.cpus()[1])
    assert (pools[0] == pools[1]) is share


def test_processes_of_one_container_share_its_limit(tmp_path: Path) -> None:
    build(tmp_path, 2, "50000 100000")
    assert cgroups.cpus() == cgroups.cpus()
    assert cgroups.cpus()[0] == 0.5


def test_an_unknown_machine_shares_with_none(tmp_path: Path) -> None:
    cgroups.ROOT = tmp_path
    assert cgroups.cpus()[1] == ""
