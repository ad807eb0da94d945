"""Judges the probe results of one node. The limits that `run` checks, too, are judged in
plan/limits.py, cards in cards.py."""

from __future__ import annotations

import re

from entrypoint.base.errors import message_parts
from entrypoint.base.model import Finding, Plan
from entrypoint.base.text import size
from entrypoint.base.values import replace
from entrypoint.features.health import cards
from entrypoint.features.health.findings import Findings, finding
from entrypoint.features.health.observation import Link, Observation
from entrypoint.plan import limits

_MEMORY_RANK = 512 << 20  # bytes: a Python with torch, before it has read any data
# Before 4.2 on UCX: ranks in MPI_Finalize wait for PMI and answer no other any more (pmodels/mpich
# pull request 6596).
_OLD_MPICH = re.compile(r"MPICH ([0-3]|4\.[01])\b.*ucx")
_THREADS_RANK = 64  # of torch, NCCL and data loaders


def judge(observation: Observation, plan: Plan, rank: int) -> list[Finding]:
    """The findings on one node of this plan, which need not be the one that it was made on."""
    label = plan.topology.nodes[rank].label
    parts = (_job, _programs, cards.judge, _limits, _resources, _disks, _network, _names)
    return [
        replace(found, nodes=(label,)) for part in parts for found in part(observation, plan, rank)
    ]


def cheap(observation: Observation, plan: Plan, rank: int) -> list[Finding]:
    """What is wrong, of what can be known without starting a program or asking the network."""
    parts = (_limits, _resources, _disks, _network)
    findings = (found for part in parts for found in part(observation, plan, rank))
    # too few CPUs make a job slow, and fail no boot
    return [found for found in findings if found.level != "ok" and found.id != "cpus"]


def _job(observation: Observation, plan: Plan, rank: int) -> Findings:
    """What was asked for, and why `run` would end."""
    yield finding("ok", "spec", observation.spec or "no file: variables and flags alone")
    evidence = f" ({'; '.join(observation.evidence)})" if observation.evidence else ""
    yield finding("ok", "platform", f"{observation.platform}{evidence}")
    where = f"{observation.system}, {observation.machine}, Linux {observation.kernel}".strip(", ")
    packages = f", packages {observation.packages}" if observation.packages else ""
    yield finding("ok", "image", f"{where}{packages}")
    for refusal in observation.refused:
        what, detail, fix = message_parts(refusal.reason)
        fix = fix or f"run would end with {refusal.status}"
        yield Finding("error", "refused", what, detail, "", fix)
    for row in observation.unseen:
        yield finding("warning", "unseen", row.value, name=row.name)


def _programs(observation: Observation, plan: Plan, rank: int) -> Findings:
    for program in observation.programs:
        actual = f"{program.version or program.problem or 'no version'} at {program.path}"
        level, key = ("warning", "program/problem") if program.problem else ("ok", "program")
        yield finding(level, key, actual, name=program.name)
    if plan.no_roll_call and rank == plan.topology.me:
        yield finding("warning", "roll-call", plan.no_roll_call)
    for name in ("torch", "horovod"):
        if problem := observation.library(f"{name} problem"):
            yield finding("warning", f"{name}/problem", f"cannot be imported: {problem}")
    for name in ("torch", "horovod", "mindspore", "tensorflow", "jax"):
        if version := observation.library(name):
            more = ", ".join(
                f"{part.name.removeprefix(f'{name} ')} {part.value}"
                for part in observation.libraries
                if part.name.startswith(f"{name} ") and "problem" not in part.name
            )
            yield finding("ok", name, f"{version}{f'; {more}' if more else ''}")
    version = observation.version("mpiexec.hydra")
    if len(plan.topology.nodes) > 1 and _OLD_MPICH.match(version):
        yield finding("warning", "mpich", version)


def _limits(observation: Observation, plan: Plan, rank: int) -> Findings:
    slots = plan.topology.nodes[rank].slots
    shm = observation.shm_free, observation.shm_total, observation.shm_problem
    if observation.shm_problem or observation.shm_free is not None:
        yield limits.shared_memory(slots, observation.devices or 0, *shm)
    if observation.handles is not None:
        handles = limits.file_handles(plan, rank, observation.handles)
        if handles.level != "error":  # else it is refused
            yield handles
    if observation.memlock is not None:
        yield limits.locked_memory(
            observation.memlock, observation.may_lock, observation.rdma_files
        )
    if observation.pids is not None:
        need = slots * _THREADS_RANK
        level, actual = "ok", "no limit"
        if observation.pids != limits.UNLIMITED:
            left = observation.pids - (observation.pids_used or 0)
            level = "warning" if left < need else "ok"
            actual = f"{left} left of {observation.pids}"
        yield finding(level, "pids", actual, need=need)


def _resources(observation: Observation, plan: Plan, rank: int) -> Findings:
    slots = plan.topology.nodes[rank].slots
    if observation.cpus is not None:
        usable = min(observation.cpus, observation.cpu_limit or observation.cpus)
        actual = f"{usable:g}"
        if usable < observation.cpus:
            actual += f" (limit of the container, {observation.cpus:g} here)"
        yield finding("warning" if usable < slots else "ok", "cpus", actual, slots=slots)
    if observation.memory_free is not None:
        need = slots * _MEMORY_RANK
        actual = f"{size(observation.memory_free)} free"
        if observation.memory_limit:
            actual += f" of {size(observation.memory_limit)} (limit of the container)"
        level = "warning" if observation.memory_free < need else "ok"
        yield finding(level, "memory", actual, need=size(need))


def _disks(observation: Observation, plan: Plan, rank: int) -> Findings:
    """A run directory that cannot be used is refused; there is no second line about that path."""
    refused = ""
    for disk in observation.disks:
        found = limits.disk(**vars(disk))
        if found.level == "error":
            refused = disk.path
        elif disk.path != refused:
            yield found


def _network(observation: Observation, plan: Plan, rank: int) -> Findings:
    nodes = plan.topology.nodes
    if observation.links:
        yield finding("ok", "interfaces", ", ".join(map(_link, observation.links)))
    elif observation.no_link and len(nodes) > 1 and not _is_loopback(nodes[rank].address or ""):
        yield finding("warning", "interfaces/none", "none but loopback")
    for port in observation.ports:
        actual = f"{port.link} {port.state} {port.rate}".strip()
        level = "ok" if "active" in port.state.lower() else "warning"
        yield finding(level, "rdma", actual, device=port.device, port=port.port)
    if observation.ports and observation.rdma_files == 0:
        yield finding("warning", "rdma-files", f"{len(observation.ports)} ports, no device file")


def _link(link: Link) -> str:
    more = [f"MTU {link.mtu:g}"] if link.mtu else []
    more += [f"{link.speed / 1000:g} Gbit/s"] if link.speed and link.speed > 0 else []
    details = f" ({', '.join(more)})" if more else ""
    return f"{link.name} {link.address}{details}"


def _names(observation: Observation, plan: Plan, rank: int) -> Findings:
    nodes, own = plan.topology.nodes, observation.own
    resolved = [name for name in observation.names if name.addresses]
    for name in observation.names:
        if not name.addresses:
            level = "error" if name.host == plan.topology.leader.host else "warning"
            yield finding(level, "dns/unknown", name.problem or "no address", host=name.host)
    if resolved:
        actual = f"{len(resolved)} of {len(observation.names)} have an address here"
        yield finding("ok", "dns", actual)
    if len(nodes) > 1 and not _is_loopback(nodes[rank].address or ""):
        if own.host and not own.addresses:
            yield finding("warning", "own-name", own.problem or "no address", host=own.host)
        elif _is_loopback(*own.addresses):
            actual = f"resolves to {', '.join(own.addresses)}"
            yield finding("warning", "own-name/loopback", actual, host=own.host)
    for back in observation.reverse:
        yield finding("ok", "reverse-dns", f"{back.name} is {back.value or 'without a name'}")


def _is_loopback(*addresses: str) -> bool:
    return bool(addresses) and all(
        address.startswith("127.") or address == "::1" for address in addresses
    )
