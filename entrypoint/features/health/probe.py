"""What this node sees of itself, for `check`: every probe in a thread of its own, all of
them within one time limit."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from entrypoint.base.model import Facts, Finding, Plan, Topology
from entrypoint.base.secret import hides, masked
from entrypoint.base.text import from_json
from entrypoint.base.wire import to_json
from entrypoint.features.health import judge, kernel, programs
from entrypoint.features.health.observation import Name, Named, Observation, Refusal
from entrypoint.spec import JobSpec, fields
from entrypoint.system import checks, preflight
from entrypoint.system.network import addresses
from entrypoint.system.threads import in_thread

if TYPE_CHECKING:
    from entrypoint.features.health.report import CheckOptions

Probe = Callable[[], Mapping[str, Any]]  # fields of an Observation

# seconds of a probe without a program; and after a program's own limit, to be done with it
_MARGIN = 2.0
# nodes whose names are looked up: each node asks for others, so that a thousand of them flood no
# server
_NAMES = 64
_REVERSE = 4  # addresses of this node whose names are looked up
_AGAIN = 0.5  # seconds until a name that has no address yet is asked for once more
# What nodes of one job may have each its own way.
_OWN = {
    "node_rank",
    "run_dir",
    "log_dir",
    "workdir",
    "slots",
    "secret_file",
    "command",
    "ssh.host_key",
    "ssh.client_key",
}


async def observe(spec: JobSpec, facts: Facts, plan: Plan) -> Mapping[str, Any]:
    """As `node`, for a node of several, as it travels to the leader."""
    assert plan.inquiry is not None
    result = await node(spec, facts, plan, plan.inquiry.options, patient=True)
    answer: Mapping[str, Any] = from_json(to_json(result))
    return answer


async def node(
    spec: JobSpec, facts: Facts, plan: Plan, options: CheckOptions, patient: bool = False
) -> Observation:
    """All that `check` wants to know of this node. Starts no program of the job, and writes
    nothing.

    `patient`: ask for names until they have an address: the name servers of nodes may learn them
      one after the other.
    """
    begun = time.monotonic()
    limit = options.limit
    probes: dict[str, Probe] = {
        **_cheap(plan),
        "image": kernel.image,
        "what run would refuse": partial(_refused, spec, facts, plan),
        "sshd and mpirun": partial(programs.programs, facts, plan, limit),
        "libraries": partial(programs.libraries, spec, facts, plan, limit),
        "accelerators": partial(programs.accelerators, facts, plan, limit),
        f"own name {facts.hostname}": lambda: {"own": _name(facts.hostname)},
    }
    until = begun + limit if patient else 0.0
    for host in _asked(plan.topology):
        probes[f"the name {host}"] = partial(_lookup, host, until)
    for interface in facts.interfaces[:_REVERSE]:
        probes[f"the name of {interface.address}"] = partial(_reverse, interface.address)
    values = await gather(probes, limit + _MARGIN)
    values |= _job(spec, plan, options.spec_file)
    return Observation(**values, seconds=round(time.monotonic() - begun, 1))


def lacking(plan: Plan) -> list[Finding]:
    """What this node lacks, of what can be seen without starting a program or asking the network,
    within some milliseconds."""
    values = asyncio.run(gather(_cheap(plan), _MARGIN))
    observation = Observation(**values, devices=plan.topology.device.count)
    return judge.cheap(observation, plan, plan.topology.me)


def _cheap(plan: Plan) -> dict[str, Probe]:
    return {
        "shared memory": preflight.shared_memory,
        "locked memory": preflight.locked_memory,
        "limits": kernel.limits,
        "CPUs": kernel.processors,
        "memory": kernel.memory,
        "disks": partial(kernel.disks, plan),
        "interfaces": kernel.links,
        "RDMA": kernel.rdma,
    }


async def gather(probes: Mapping[str, Probe], limit: float) -> dict[str, Any]:
    """Return the results of all probes after `limit` seconds at most; lists of several become one.

    One that fails, or has no end by then (a file system that is gone holds every process that asks
    for it), is named in `unseen`.
    """

    async def result(name: str, probe: Probe) -> Mapping[str, Any]:
        try:
            return await asyncio.wait_for(in_thread(probe), limit)
        except asyncio.TimeoutError:
            why = f"no end within {limit:g}s"
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
        return {"unseen": (Named(name, why),)}

    values: dict[str, Any] = {}
    for part in await asyncio.gather(*(result(*item) for item in probes.items())):
        for key, value in part.items():
            values[key] = values.get(key, ()) + value if isinstance(value, tuple) else value
    return values


def _job(spec: JobSpec, plan: Plan, spec_file: str) -> dict[str, Any]:
    """What was asked for, and by which evidence the platform was known."""
    topology = plan.topology
    device = topology.device
    settings = []
    for path in (field.path for field in fields() if field.path not in _OWN):
        value = spec.value(path)
        if spec.source(path).origin != "default" and not hides(path, str(value)):
            # of variables the names alone
            text = ", ".join(sorted(value)) if path == "env" else masked(str(value))
            settings.append(Named(path, text[:200]))
    evidence = (
        f"{name} from {source}"
        for name, source in topology.origins.items()
        if source.origin != "default"
    )
    return {
        "spec": spec_file,
        "settings": tuple(settings),
        "platform": topology.platform,
        "evidence": tuple(evidence)[:64],
        "device": device.kind,
        "devices": device.count,
        "device_origin": device.origin,
    }


def _refused(spec: JobSpec, facts: Facts, plan: Plan) -> dict[str, Any]:
    _, refused = checks.dry_run(spec, facts, plan, lambda text: None)
    return {"refused": tuple(Refusal(outcome.status, outcome.reason) for outcome in refused)}


def _asked(topology: Topology) -> list[str]:
    """Names of the leader, of this node, and of the next ones, that have no address in the spec."""
    nodes = topology.nodes
    turned = (nodes[0], *nodes[topology.me :], *nodes[: topology.me])
    names = dict.fromkeys(node.host for node in turned[: _NAMES + 1] if not node.address)
    return list(names) if len(nodes) > 1 else []


def _lookup(host: str, until: float) -> dict[str, Any]:
    name = _name(host)
    while not name.addresses and time.monotonic() + _AGAIN < until:
        threading.Event().wait(_AGAIN)  # a name that appears sends no event
        name = _name(host)
    return {"names": (name,)}


def _name(host: str) -> Name:
    try:
        known = dict.fromkeys(str(address[0]) for *_, address in addresses(host, None))
    except LookupError as error:
        return Name(host, problem=str(error))
    return Name(host, tuple(known)[:64])


def _reverse(address: str) -> dict[str, Any]:
    name = ""
    with contextlib.suppress(OSError):
        name = socket.getnameinfo((address, 0), socket.NI_NAMEREQD)[0]
    return {"reverse": (Named(address, name),)}
