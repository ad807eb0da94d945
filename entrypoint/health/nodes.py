"""Compares the probe results of all nodes: findings on what differs between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from statistics import median

from entrypoint.health.observation import Findings, Observation
from entrypoint.model import Finding, NodeReport, Plan
from entrypoint.plan.limits import CLOCKS_OF_CHECK, clocks_apart

_ROUND_TRIP = 0.01  # seconds: between two sites of one region it is 1 to 3 ms
_SAME_IMAGE = "start all nodes from one image, by its digest"

Observed = Mapping[int, Observation]  # by the node's rank, as Reports
Reports = Mapping[int, NodeReport]
Get = Callable[[Observation], str]


def _program(name: str) -> Get:
    return lambda observation: observation.program(name).version


def _library(name: str) -> Get:
    return lambda observation: observation.library(name)


def _cards(observation: Observation) -> str:
    kinds = Counter(card.name for card in observation.cards if card.name)
    return ", ".join(f"{number} x {name}" for name, number in sorted(kinds.items()))


# id, what, what is compared, what to do. "" is: not known, and is not compared.
_SAME: tuple[tuple[str, str, Get, str], ...] = (
    (
        "accelerators",
        "accelerators",
        lambda observation: (
            "" if observation.devices is None else f"{observation.devices:g} {observation.device}"
        ),
        (
            "take machines of one kind, and look for a card that fell off; or give each host its"
            " slots: hosts: [a:8, b:7]"
        ),
    ),
    ("accelerator-kinds", "kinds of accelerators", _cards, "take machines of one kind"),
    (
        "driver",
        "driver",
        lambda observation: observation.driver,
        "install one driver on all machines",
    ),
    ("cann", "CANN", lambda observation: observation.cann, _SAME_IMAGE),
    (
        "image",
        "image",
        lambda observation: f"{observation.system} {observation.packages}".strip(),
        _SAME_IMAGE,
    ),
    (
        "architecture",
        "architecture",
        lambda observation: observation.machine,
        "take machines of one architecture",
    ),
    ("mpirun", "mpirun", _program("mpirun"), _SAME_IMAGE),
    ("mpiexec.hydra", "mpiexec.hydra", _program("mpiexec.hydra"), _SAME_IMAGE),
    ("python", "Python", _program("python"), _SAME_IMAGE),
    ("torch", "torch", _library("torch"), _SAME_IMAGE),
    ("torch-cuda", "torch's CUDA", _library("torch cuda"), _SAME_IMAGE),
    ("nccl", "NCCL of torch", _library("torch nccl"), _SAME_IMAGE),
    ("horovod", "Horovod", _library("horovod"), _SAME_IMAGE),
    ("python-packages", "Python packages", _library("packages"), _SAME_IMAGE),
    ("mindspore", "MindSpore", _library("mindspore"), _SAME_IMAGE),
    (
        "platform",
        "platform",
        lambda observation: observation.platform,
        "see `entrypoint facts` on both",
    ),
    (
        "rdma",
        "active RDMA ports",
        lambda observation: str(sum("active" in port.state.lower() for port in observation.ports)),
        "see that every container has /dev/infiniband, and every port is up",
    ),
)


def differences(observed: Observed, reports: Reports, plan: Plan) -> list[Finding]:
    """The findings on nodes that are not like most."""
    findings = [*_clocks(reports, plan), *_late(reports, plan)]
    fatal = ("nccl", *plan.launch.start.needs_programs)
    for id, what, get, fix in _SAME:
        level = "error" if id in fatal else "warning"
        values = {rank: get(observation) for rank, observation in observed.items()}
        findings += _compared(id, what, values, level, fix, plan)
    findings += _settings(observed, plan)
    fix = "set one MTU on all nodes and switches"
    findings += _compared("mtu", "MTU", _mtus(observed, reports), "warning", fix, plan)
    findings += _addresses(observed, plan)
    return findings


def _compared(
    id: str, what: str, values: Mapping[int, str], level: str, fix: str, plan: Plan
) -> Findings:
    """A line for each value that is not the one of most nodes; of two as frequent, it is the first
    node's."""
    values = {rank: value for rank, value in sorted(values.items()) if value}
    counts = Counter(values.values())
    if len(counts) < 2:
        return
    usual = counts.most_common(1)[0][0]
    like = next(rank for rank, value in values.items() if value == usual)
    needed = f"{usual}, as {_label(plan, like)}"
    if counts[usual] > 1:
        needed += f" and {counts[usual] - 1} more"
    for value in counts:
        if value != usual:
            labels = tuple(_label(plan, rank) for rank, actual in values.items() if actual == value)
            yield Finding(level, f"differs-{id}", f"{what} differs", value, needed, fix, labels)


def _clocks(reports: Reports, plan: Plan) -> Findings:
    clocks = {rank: report.clock for rank, report in reports.items()}
    needed = f"within {CLOCKS_OF_CHECK:.0f}s"
    fix = "set the machine's clock by NTP: logs, certificates and checks for new files go wrong"
    for rank, by in clocks_apart(clocks, CLOCKS_OF_CHECK).items():
        yield Finding("warning", "clock", "clock", by, needed, fix, (_label(plan, rank),))


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
    needed = f"within {_ROUND_TRIP * 1000:.0f} ms"
    fix = (
        "`entrypoint netcheck` measures all pairs: look for a machine in another zone, or a bad"
        " link"
    )
    for rank, trip in late.items():
        peer = "to worker-0" if rank != leader else "to the others"
        actual = f"{trip * 1000:.0f} ms {peer} and back"
        ranks = (rank,) if many else (leader, rank)  # of two nodes nobody can tell which
        labels = tuple(_label(plan, rank) for rank in ranks)
        yield Finding("warning", "latency", "round trip", actual, needed, fix, labels)


def _settings(observed: Observed, plan: Plan) -> Findings:
    settings = {
        rank: {setting.name: setting.value for setting in observation.settings}
        for rank, observation in observed.items()
    }
    for name in sorted({name for of_node in settings.values() for name in of_node}):
        values = {rank: of_node.get(name, "not given") for rank, of_node in settings.items()}
        fix = "give all nodes the same spec, variables and flags"
        yield from _compared("setting", f"setting {name}", values, "warning", fix, plan)


def _mtus(observed: Observed, reports: Reports) -> dict[int, str]:
    """Of the interface that the roll call came over; else of the only one."""
    mtus = {}
    for rank, observation in observed.items():
        report = reports.get(rank)
        names = {link.name for link in observation.links}
        if report and report.interface:
            names = {report.interface.name}
        links = [link for link in observation.links if names == {link.name} and link.mtu]
        mtus[rank] = f"{links[0].mtu:g}" if links else ""
    return mtus


def _addresses(observed: Observed, plan: Plan) -> Findings:
    """Names that lead elsewhere on another node, or to an address that their node does not have."""
    # name -> its addresses, on each node that has looked it up
    answers: dict[str, dict[int, str]] = {}
    for rank, observation in observed.items():
        for name in observation.names:
            if name.addresses:
                answers.setdefault(name.host, {})[rank] = ", ".join(sorted(name.addresses))
    for node in plan.topology.nodes:
        answers_of_peers = answers.get(node.host, {})
        answers_of_peers.pop(node.rank, None)  # its own /etc/hosts may have another address
        fix = "see /etc/resolv.conf and /etc/hosts of the nodes: they ask different name servers"
        what = f"the address of {node.host}"
        yield from _compared("dns", what, answers_of_peers, "warning", fix, plan)
        links = observed[node.rank].links if node.rank in observed else ()
        addresses = {link.address for link in links}
        usual = Counter(answers_of_peers.values()).most_common(1)
        if addresses and usual and not addresses & set(usual[0][0].split(", ")):
            actual = (
                f"{node.host} leads to {usual[0][0]}, the node has {', '.join(sorted(addresses))}"
            )
            fix = (
                "a name must lead to the container itself (in Kubernetes a headless Service): ranks"
                " call each other"
            )
            what = "name leads elsewhere"
            needed = "its own address"
            yield Finding("warning", "dns-elsewhere", what, actual, needed, fix, (node.label,))


def _label(plan: Plan, rank: int) -> str:
    return plan.topology.nodes[rank].label
