"""Compares the probe results of all nodes: findings on what differs between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from statistics import median

from entrypoint.base.model import Finding, NodeReport, Plan
from entrypoint.features.health.findings import Findings, finding
from entrypoint.features.health.observation import Observation
from entrypoint.plan.limits import CLOCKS_OF_CHECK, clocks_apart

Observed = Mapping[int, Observation]  # by the node's rank, as Reports
Reports = Mapping[int, NodeReport]

_ROUND_TRIP = 0.01  # seconds: between two sites of one region it is 1 to 3 ms
# Id of a difference -> the library that differs.
_LIBRARIES = {
    "torch": "torch",
    "torch-cuda": "torch cuda",
    "nccl": "torch nccl",
    "horovod": "horovod",
    "python-packages": "packages",
    "mindspore": "mindspore",
}


def differences(observed: Observed, reports: Reports, plan: Plan) -> list[Finding]:
    """The findings on nodes that are not like most."""
    findings = [*_clocks(reports, plan), *_late(reports, plan)]
    values = {rank: _values(observation) for rank, observation in observed.items()}
    for id in _values(Observation()):
        findings += _compared(id, {rank: of_node[id] for rank, of_node in values.items()}, plan)
    settings = {
        rank: {setting.name: setting.value for setting in observation.settings}
        for rank, observation in observed.items()
    }
    for name in sorted({name for of_node in settings.values() for name in of_node}):
        given = {rank: of_node.get(name, "not given") for rank, of_node in settings.items()}
        findings += _compared("setting", given, plan, name)
    mtus = {rank: _mtu(observation, reports.get(rank)) for rank, observation in observed.items()}
    return [*findings, *_compared("mtu", mtus, plan), *_addresses(observed, plan)]


def _values(observation: Observation) -> dict[str, str]:
    """What is compared, by the id of its difference; "" is not known, and is not compared."""
    devices = observation.devices
    kinds = Counter(card.name for card in observation.cards if card.name)
    active = sum("active" in port.state.lower() for port in observation.ports)
    return {
        "accelerators": "" if devices is None else f"{devices:g} {observation.device}",
        "accelerator-kinds": ", ".join(f"{kinds[name]} x {name}" for name in sorted(kinds)),
        "driver": observation.driver,
        "cann": observation.cann,
        "image": f"{observation.system} {observation.packages}".strip(),
        "architecture": observation.machine,
        **{name: observation.version(name) for name in ("mpirun", "mpiexec.hydra", "python")},
        **{id: observation.library(name) for id, name in _LIBRARIES.items()},
        "platform": observation.platform,
        "rdma": str(active),
    }


def _mtu(observation: Observation, report: NodeReport | None) -> str:
    """Of the interface that the roll call came over; else of the only one."""
    names = {link.name for link in observation.links}
    if report and report.interface:
        names = {report.interface.name}
    mtus = (link.mtu for link in observation.links if names == {link.name} and link.mtu)
    return next((f"{mtu:g}" for mtu in mtus), "")


def _compared(id: str, values: Mapping[int, str], plan: Plan, name: str = "") -> Findings:
    """A line for each value that is not the one of most nodes; of two as frequent, it is the first
    node's. A launcher's own program and NCCL must be the same."""
    level = "error" if id in ("nccl", *plan.launch.needs_programs) else "warning"
    alike: dict[str, list[int]] = {}
    for rank, value in sorted(values.items()):
        if value:
            alike.setdefault(value, []).append(rank)
    if len(alike) > 1:
        usual = max(alike, key=lambda value: len(alike[value]))
        first, *more = alike.pop(usual)
        usual += f", as {plan.topology.nodes[first].label}"
        usual += f" and {len(more)} more" if more else ""
        for value, ranks in alike.items():
            labels = _labels(ranks, plan)
            yield finding(level, f"differs-{id}", value, labels, usual=usual, name=name)


def _clocks(reports: Reports, plan: Plan) -> Findings:
    clocks = {rank: report.clock for rank, report in reports.items()}
    for rank, by in clocks_apart(clocks, CLOCKS_OF_CHECK).items():
        yield finding("warning", "clock", by, _labels([rank], plan), limit=CLOCKS_OF_CHECK)


def _late(reports: Reports, plan: Plan) -> Findings:
    """Nodes whose packets take long to worker-0 and back: worker-0 itself, where those of several
    others all do."""
    trips = {
        rank: report.round_trip for rank, report in sorted(reports.items()) if report.round_trip > 0
    }
    late = {rank: trip for rank, trip in trips.items() if trip > _ROUND_TRIP}
    leader = plan.topology.leader.rank
    many = len(trips) > 1
    if many and len(late) == len(trips):
        late = {leader: median(trips.values())}
    for rank, trip in late.items():
        peer = "to worker-0" if rank != leader else "to the others"
        actual = f"{trip * 1000:.0f} ms {peer} and back"
        # of two nodes nobody can tell which
        labels = _labels([rank] if many else [leader, rank], plan)
        yield finding("warning", "latency", actual, labels, limit=_ROUND_TRIP * 1000)


def _addresses(observed: Observed, plan: Plan) -> Findings:
    """Names that lead elsewhere on another node, or to an address that their node does not have."""
    # name -> its addresses, on each node that has looked it up
    answers: dict[str, dict[int, str]] = {}
    for rank, observation in observed.items():
        for name in observation.names:
            if name.addresses:
                answers.setdefault(name.host, {})[rank] = ", ".join(sorted(name.addresses))
    for node in plan.topology.nodes:
        of_peers = answers.get(node.host, {})
        of_peers.pop(node.rank, None)  # its own /etc/hosts may have another address
        yield from _compared("dns", of_peers, plan, node.host)
        links = observed[node.rank].links if node.rank in observed else ()
        own = {link.address for link in links}
        values = list(of_peers.values())
        usual = max(values, key=values.count, default="")
        if own and usual and not own & set(usual.split(", ")):
            actual = f"{node.host} resolves to {usual}, the node has {', '.join(sorted(own))}"
            yield finding("warning", "dns-elsewhere", actual, (node.label,))


def _labels(ranks: Iterable[int], plan: Plan) -> tuple[str, ...]:
    return tuple(plan.topology.nodes[rank].label for rank in ranks)
