"""Judges the probe results of one node. The limits that `run` checks, too, are judged in
plan/limits.py, cards in cards.py."""

from __future__ import annotations

import re

from entrypoint.errors import message_parts
from entrypoint.health import cards
from entrypoint.health.observation import Findings, Link, Name, Observation
from entrypoint.model import Finding, Plan
from entrypoint.plan import limits
from entrypoint.text import size
from entrypoint.values import replace

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
        replace(finding, nodes=(label,))
        for part in parts
        for finding in part(observation, plan, rank)
    ]


def cheap(observation: Observation, plan: Plan, rank: int) -> list[Finding]:
    """What is wrong, of what can be known without starting a program or asking the network."""
    parts = (_limits, _resources, _disks, _network)
    findings = (finding for part in parts for finding in part(observation, plan, rank))
    # too few CPUs make a job slow, and fail no boot
    return [finding for finding in findings if finding.level != "ok" and finding.id != "cpus"]


def _job(observation: Observation, plan: Plan, rank: int) -> Findings:
    """What was asked for, and why `run` would end."""
    yield Finding("ok", "spec", "spec", observation.spec or "no file: variables and flags alone")
    evidence = f" ({'; '.join(observation.evidence)})" if observation.evidence else ""
    yield Finding("ok", "platform", "platform", f"{observation.platform}{evidence}")
    where = f"{observation.system}, {observation.machine}, Linux {observation.kernel}".strip(", ")
    packages = f", packages {observation.packages}" if observation.packages else ""
    yield Finding("ok", "image", "image", f"{where}{packages}")
    for refusal in observation.refused:
        what, detail, fix = message_parts(refusal.reason)
        fix = fix or f"run would end with {refusal.status}"
        yield Finding("error", "refused", what, detail, "", fix)
    for row in observation.unseen:
        fix = "run it by hand on this node; it may hang in the job, too"
        yield Finding("warning", "unseen", row.name, row.value, "an answer", fix)


def _programs(observation: Observation, plan: Plan, rank: int) -> Findings:
    for program in observation.programs:
        actual = f"{program.version or program.problem or 'no version'} at {program.path}"
        level, needed = ("warning", "a version") if program.problem else ("ok", "")
        fix = "see that it starts: its libraries, its owner"
        yield Finding(level, "program", program.name, actual, needed, fix)
    if plan.no_roll_call and rank == plan.topology.me:
        fix = "remove roll_call, and give all nodes a secret"
        yield Finding(
            "warning", "roll-call", "roll call", plan.no_roll_call, "one result for all", fix
        )
    for name in ("torch", "horovod"):
        if problem := observation.library(f"{name} problem"):
            fix = "see LD_LIBRARY_PATH, and that it was built for this torch and Python"
            yield Finding("warning", name, name, f"cannot be imported: {problem}", "", fix)
    for name in ("torch", "horovod", "mindspore", "tensorflow", "jax"):
        if version := observation.library(name):
            more = ", ".join(
                f"{part.name.removeprefix(f'{name} ')} {part.value}"
                for part in observation.libraries
                if part.name.startswith(f"{name} ") and "problem" not in part.name
            )
            yield Finding("ok", name, name, f"{version}{f'; {more}' if more else ''}")
    version = observation.program("mpiexec.hydra").version
    if len(plan.topology.nodes) > 1 and _OLD_MPICH.match(version):
        fix = (
            "at times it never comes back from MPI_Finalize: take Debian 13's, or `pip install"
            " mpich`"
        )
        yield Finding("warning", "mpich", "MPICH", version, "4.2 or later", fix)


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
        left = observation.pids - (observation.pids_used or 0)
        level, actual = "ok", "no limit"
        if observation.pids != limits.UNLIMITED:
            level = "warning" if left < need else "ok"
            actual = f"{left} left of {observation.pids}"
        fix = "start the container with --pids-limit -1, or raise podPidsLimit of the kubelet"
        yield Finding(level, "pids", "processes and threads", actual, f"about {need}", fix)


def _resources(observation: Observation, plan: Plan, rank: int) -> Findings:
    slots = plan.topology.nodes[rank].slots
    if observation.cpus is not None:
        usable = min(observation.cpus, observation.cpu_limit or observation.cpus)
        actual = f"{usable:g}"
        if usable < observation.cpus:
            actual += f" (limit of the container, {observation.cpus:g} here)"
        fix = (
            "give the container a CPU for each rank (--cpus, resources.limits.cpu), or set fewer"
            " slots"
        )
        level = "warning" if usable < slots else "ok"
        yield Finding(level, "cpus", "CPUs", actual, f"{slots}, one a rank", fix)
    if observation.memory_free is not None:
        need = slots * _MEMORY_RANK
        actual = f"{size(observation.memory_free)} free"
        if observation.memory_limit:
            actual += f" of {size(observation.memory_limit)} (limit of the container)"
        fix = (
            "give the container more memory (--memory, resources.limits.memory), or set fewer slots"
        )
        level = "warning" if observation.memory_free < need else "ok"
        yield Finding(level, "memory", "memory", actual, f"about {size(need)}", fix)


def _disks(observation: Observation, plan: Plan, rank: int) -> Findings:
    """A run directory that cannot be used is refused; there is no second line about that path."""
    refused = ""
    for disk in observation.disks:
        finding = limits.disk(**vars(disk))
        if finding.level == "error":
            refused = disk.path
        elif disk.path != refused:
            yield finding


def _network(observation: Observation, plan: Plan, rank: int) -> Findings:
    nodes = plan.topology.nodes
    if observation.links:
        links = ", ".join(map(_link, observation.links))
        yield Finding("ok", "interfaces", "network interfaces", links)
    elif observation.no_link and len(nodes) > 1 and not _is_loopback(nodes[rank].address or ""):
        what, actual, needed = "network interfaces", "none but loopback", "one that is up"
        yield Finding("warning", "interfaces", what, actual, needed, "see the container's network")
    for port in observation.ports:
        actual = f"{port.link} {port.state} {port.rate}".strip()
        fix = (
            "see the cable, the switch and the subnet manager; if it is to be unused, NCCL leaves"
            " it out by itself"
        )
        what = f"RDMA {port.device} port {port.port}"
        level = "ok" if "active" in port.state.lower() else "warning"
        yield Finding(level, "rdma", what, actual, "ACTIVE", fix)
    if observation.ports and observation.rdma_files == 0:
        actual = f"{len(observation.ports)} ports, no device file"
        fix = "give the container /dev/infiniband, and memlock -1"
        yield Finding(
            "warning", "rdma-files", "RDMA device files", actual, "/dev/infiniband/uverbs*", fix
        )


def _link(link: Link) -> str:
    more = [f"MTU {link.mtu:g}"] if link.mtu else []
    more += [f"{link.speed / 1000:g} Gbit/s"] if link.speed and link.speed > 0 else []
    details = f" ({', '.join(more)})" if more else ""
    return f"{link.name} {link.address}{details}"


def _own_name(own: Name) -> Findings:
    if own.host and not own.addresses:
        actual = own.problem or "no address"
        needed = "an address, for Gloo"
        fix = (
            "give the container a name that it can look up (/etc/hosts, --hostname), or set"
            " network.interface"
        )
    elif _is_loopback(*own.addresses):
        actual = f"leads to {', '.join(own.addresses)}"
        needed = "no loopback address"
        fix = "correct /etc/hosts, for programs that listen where this name leads"
    else:
        return
    yield Finding("warning", "own-name", f"own name {own.host}", actual, needed, fix)


def _names(observation: Observation, plan: Plan, rank: int) -> Findings:
    leader = plan.topology.leader.host
    resolved = [name for name in observation.names if name.addresses]
    for name in observation.names:
        if not name.addresses:
            level = "error" if name.host == leader else "warning"
            actual = name.problem or "no address"
            fix = "make sure that DNS knows it here, or give its address: hosts: [NAME=ADDRESS]"
            yield Finding(level, "dns", f"the name {name.host}", actual, "an address", fix)
    if resolved:
        actual = f"{len(resolved)} of {len(observation.names)} have an address here"
        yield Finding("ok", "dns", "names of the nodes", actual)
    nodes = plan.topology.nodes
    if len(nodes) > 1 and not _is_loopback(nodes[rank].address or ""):
        yield from _own_name(observation.own)
    for back in observation.reverse:
        actual = f"{back.name} is {back.value or 'without a name'}"
        yield Finding("ok", "reverse-dns", "name of its address", actual)


def _is_loopback(*addresses: str) -> bool:
    return bool(addresses) and all(
        address.startswith("127.") or address == "::1" for address in addresses
    )
