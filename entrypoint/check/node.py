"""What one node sees of itself -> findings. The limits that `run` looks at, too, are judged in
plan/limits.py."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from entrypoint.check import cards
from entrypoint.check.observed import Observation
from entrypoint.errors import message_parts
from entrypoint.model import Finding, Plan
from entrypoint.plan import limits
from entrypoint.text import size
from entrypoint.values import replace

_MEMORY_RANK = 512 << 20  # bytes: a Python with torch, before it has read any data
_THREADS_RANK = 64  # of torch, NCCL and data loaders


def judge(seen: Observation, plan: Plan, rank: int) -> list[Finding]:
    """The findings on one node of this plan, which need not be the one that it was made on."""
    label = plan.topology.nodes[rank].label
    parts = (
        _spec,
        _refused,
        _unseen,
        _programs,
        _mpich,
        cards.judge,
        _shared_memory,
        _limits,
        _memory,
        _disks,
        _network,
        _names,
    )
    return [replace(each, nodes=(label,)) for part in parts for each in part(seen, plan, rank)]


def cheap(seen: Observation, plan: Plan, rank: int) -> list[Finding]:
    """What is wrong, of what can be known without starting a program or asking the network."""
    parts = (_shared_memory, _limits, _memory, _disks, _network)
    found = [each for part in parts for each in part(seen, plan, rank) if each.level != "ok"]
    # too few make a job slow, and fail no boot
    return [each for each in found if each.id != "cpus"]


def _spec(seen: Observation, plan: Plan, rank: int) -> Iterator[Finding]:
    found = "; ".join(seen.evidence)
    yield Finding("ok", "spec", "spec", seen.spec or "no file: variables and flags alone")
    yield Finding("ok", "platform", "platform", f"{seen.platform}{f' ({found})' if found else ''}")
    where = f"{seen.system}, {seen.machine}, Linux {seen.kernel}".strip(", ")
    yield Finding(
        "ok", "image", "image", f"{where}{f', packages {seen.packages}' if seen.packages else ''}"
    )


def _refused(seen: Observation, plan: Plan, rank: int) -> Iterator[Finding]:
    """What `run` would end for."""
    for each in seen.refused:
        what, found, fix = message_parts(each.reason)
        yield Finding(
            "error", "refused", what, found, "", fix or f"run would end with {each.status}"
        )


def _unseen(seen: Observation, plan: Plan, rank: int) -> Iterator[Finding]:
    for each in seen.unseen:
        fix = "run it by hand on this node; it may hang in the job, too"
        yield Finding("warning", "unseen", each.name, each.value, "an answer", fix)


def _programs(seen: Observation, plan: Plan, rank: int) -> Iterator[Finding]:
    for each in seen.programs:
        words = f"{each.version or each.problem or 'no version'} at {each.path}"
        level, fix = (
            ("warning", "see that it starts: its libraries, its owner")
            if each.problem
            else ("ok", "")
        )
        yield Finding(level, "program", each.name, words, "a version" if each.problem else "", fix)
    if plan.no_roll_call and rank == plan.topology.me:
        fix = "remove roll_call, and give all nodes a secret"
        yield Finding(
            "warning", "roll-call", "roll call", plan.no_roll_call, "one result for all", fix
        )
    for name in ("torch", "horovod"):
        if problem := seen.library(f"{name} problem"):
            fix = "see LD_LIBRARY_PATH, and that it was built for this torch and Python"
            yield Finding("warning", name, name, f"cannot be imported: {problem}", "", fix)
    for name in ("torch", "horovod", "mindspore", "tensorflow", "jax"):
        if version := seen.library(name):
            parts = [
                each
                for each in seen.libraries
                if each.name.startswith(f"{name} ") and "problem" not in each.name
            ]
            more = ", ".join(f"{each.name.removeprefix(f'{name} ')} {each.value}" for each in parts)
            yield Finding("ok", name, name, f"{version}{f'; {more}' if more else ''}")


def _mpich(seen: Observation, plan: Plan, rank: int) -> Iterator[Finding]:
    """MPICH before 4.2 on UCX: ranks in MPI_Finalize wait for PMI and answer no other any more.

    Source: pmodels/mpich pull request 6596.
    """
    found = seen.program("mpiexec.hydra")
    if (
        found
        and len(plan.topology.nodes) > 1
        and re.match(r"MPICH ([0-3]|4\.[01])\b.*ucx", found.version)
    ):
        words = (
            "at times it never comes back from MPI_Finalize: take Debian 13's, or `pip install"
            " mpich`"
        )
        yield Finding("warning", "mpich", "MPICH", found.version, "4.2 or later", words)


def _shared_memory(seen: Observation, plan: Plan, rank: int) -> Iterator[Finding]:
    if seen.shm_problem or seen.shm_free is not None:
        slots = plan.topology.nodes[rank].slots
        free = seen.shm_free or 0
        total = seen.shm_total or 0
        yield limits.shared_memory(slots, seen.devices or 0, free, total, seen.shm_problem)


def _limits(seen: Observation, plan: Plan, rank: int) -> Iterator[Finding]:
    if seen.handles is not None:
        handles = limits.file_handles(plan, rank, seen.handles)
        if handles.level != "error":  # else it is refused
            yield handles
    if seen.memlock is not None:
        yield limits.locked_memory(seen.memlock, seen.may_lock, seen.rdma_files or 0)
    if seen.pids is not None:
        need = plan.topology.nodes[rank].slots * _THREADS_RANK
        left = seen.pids - (seen.pids_used or 0)
        few = seen.pids != limits.UNLIMITED and left < need
        found = "no limit" if seen.pids == limits.UNLIMITED else f"{left} left of {seen.pids}"
        fix = "start the container with --pids-limit -1, or raise podPidsLimit of the kubelet"
        yield Finding(
            "warning" if few else "ok", "pids", "processes and threads", found, f"about {need}", fix
        )


def _memory(seen: Observation, plan: Plan, rank: int) -> Iterator[Finding]:
    slots = plan.topology.nodes[rank].slots
    if seen.cpus is not None:
        usable = min(seen.cpus, seen.cpu_limit or seen.cpus)
        found = f"{usable:g}" + (
            f" (limit of the container, {seen.cpus:g} here)" if usable < seen.cpus else ""
        )
        fix = (
            "give the container a CPU for each rank (--cpus, resources.limits.cpu), or set fewer"
            " slots"
        )
        yield Finding(
            "warning" if usable < slots else "ok",
            "cpus",
            "CPUs",
            found,
            f"{slots}, one a rank",
            fix,
        )
    if seen.memory_free is not None:
        need = slots * _MEMORY_RANK
        found = f"{size(seen.memory_free)} free"
        if seen.memory_limit:
            found += f" of {size(seen.memory_limit)} (limit of the container)"
        fix = (
            "give the container more memory (--memory, resources.limits.memory), or set fewer slots"
        )
        level = "warning" if seen.memory_free < need else "ok"
        yield Finding(level, "memory", "memory", found, f"about {size(need)}", fix)


def _disks(seen: Observation, plan: Plan, rank: int) -> Iterator[Finding]:
    """A run directory that cannot be used is refused; there is no second line about it, or what
    lies beside it."""
    refused = ""
    for each in seen.disks:
        if each.path == refused:
            continue
        disk = limits.disk(each.use, each.path, each.free, each.files, each.problem)
        if disk.level == "error":
            refused = each.path
        else:
            yield disk


def _network(seen: Observation, plan: Plan, rank: int) -> Iterator[Finding]:
    several = len(plan.topology.nodes) > 1
    if seen.links:
        found = ", ".join(
            _link(each.name, each.address, each.mtu, each.speed) for each in seen.links
        )
        yield Finding("ok", "interfaces", "network interfaces", found)
    elif seen.no_link and several and not _is_loopback([plan.topology.nodes[rank].address or ""]):
        fix = "see the container's network"
        yield Finding(
            "warning",
            "interfaces",
            "network interfaces",
            "none but loopback",
            "one that is up",
            fix,
        )
    for port in seen.ports:
        found = f"{port.link} {port.state} {port.rate}".strip()
        well = "active" in port.state.lower()
        fix = (
            "see the cable, the switch and the subnet manager; if it is to be unused, NCCL leaves"
            " it out by itself"
        )
        what = f"RDMA {port.device} port {port.port}"
        yield Finding("ok" if well else "warning", "rdma", what, found, "ACTIVE", fix)
    if seen.ports and seen.rdma_files == 0:
        found = f"{len(seen.ports)} ports, no device file"
        fix = "give the container /dev/infiniband, and memlock -1"
        yield Finding(
            "warning", "rdma-files", "RDMA device files", found, "/dev/infiniband/uverbs*", fix
        )


def _link(name: str, address: str, mtu: float | None, speed: float | None) -> str:
    more = [f"MTU {mtu:g}"] if mtu else []
    more += [f"{speed / 1000:g} Gbit/s"] if speed and speed > 0 else []
    return f"{name} {address}{f' ({chr(44).join(more)})' if more else ''}".replace(",", ", ")


def _own_name(seen: Observation) -> Iterator[Finding]:
    if seen.own.host and not seen.own.addresses:
        fix = (
            "give the container a name that it can look up (/etc/hosts, --hostname), or set"
            " network.interface"
        )
        words = seen.own.problem or "no address"
        yield Finding(
            "warning",
            "own-name",
            f"own name {seen.own.host}",
            words,
            "an address, for Gloo",
            fix,
        )
    elif _is_loopback(seen.own.addresses):
        fix = "correct /etc/hosts, or set network.interface: Gloo listens where this name leads"
        words = f"leads to {', '.join(seen.own.addresses)}"
        yield Finding(
            "warning",
            "own-name",
            f"own name {seen.own.host}",
            words,
            "no loopback address",
            fix,
        )


def _names(seen: Observation, plan: Plan, rank: int) -> Iterator[Finding]:
    leader = plan.topology.leader.host
    found = [each for each in seen.names if each.addresses]
    for each in seen.names:
        if not each.addresses:
            level = "error" if each.host == leader else "warning"
            fix = "see that DNS knows it here, or give its address: hosts: [NAME=ADDRESS]"
            yield Finding(
                level,
                "dns",
                f"the name {each.host}",
                each.problem or "no address",
                "an address",
                fix,
            )
    if found:
        yield Finding(
            "ok",
            "dns",
            "names of the nodes",
            f"{len(found)} of {len(seen.names)} have an address here",
        )
    fixed = plan.topology.nodes[rank].address
    if len(plan.topology.nodes) > 1 and not (fixed and _is_loopback([fixed])):
        yield from _own_name(seen)
    for back in seen.reverse:
        yield Finding(
            "ok",
            "reverse-dns",
            "name of its address",
            f"{back.name} is {back.value or 'without a name'}",
        )


def _is_loopback(addresses: Iterable[str]) -> bool:
    every = tuple(addresses)
    return bool(every) and all(each.startswith("127.") or each == "::1" for each in every)
