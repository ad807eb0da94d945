"""What all nodes see of themselves -> findings on what differs between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from statistics import median

from entrypoint.check.observed import Observation
from entrypoint.model import Finding, NodeReport, Plan
from entrypoint.plan.limits import CLOCKS_OF_CHECK, clocks_apart

_ROUND_TRIP = 0.01  # seconds: between two sites of one region it is 1 to 3 ms
_SAME_IMAGE = "start all nodes from one image, by its digest"

Get = Callable[[Observation], str]


def _program(name: str) -> Get:
    def version(seen: Observation) -> str:
        found = seen.program(name)
        return found.version if found else ""

    return version


def _library(name: str) -> Get:
    return lambda seen: seen.library(name)


def _cards(seen: Observation) -> str:
    kinds = Counter(each.name for each in seen.cards if each.name)
    return ", ".join(f"{number} x {name}" for name, number in sorted(kinds.items()))


# id, what, what is compared, whether the job would fail, what to do. "" is: not known, and is not
# compared.
_SAME: tuple[tuple[str, str, Get, str, str], ...] = (
    (
        "accelerators",
        "accelerators",
        lambda seen: "" if seen.devices is None else f"{seen.devices:g} {seen.device}",
        "warning",
        (
            "take machines of one kind, and look for a card that fell off; or give each host its"
            " slots: hosts: [a:8, b:7]"
        ),
    ),
    ("accelerator-kinds", "kinds of accelerators", _cards, "warning", "take machines of one kind"),
    ("driver", "driver", lambda seen: seen.driver, "warning", "install one driver on all machines"),
    ("cann", "CANN", lambda seen: seen.cann, "warning", _SAME_IMAGE),
    (
        "image",
        "image",
        lambda seen: f"{seen.system} {seen.packages}".strip(),
        "warning",
        _SAME_IMAGE,
    ),
    (
        "architecture",
        "architecture",
        lambda seen: seen.machine,
        "warning",
        "take machines of one architecture",
    ),
    ("mpirun", "mpirun", _program("mpirun"), "error", _SAME_IMAGE),
    ("mpiexec.hydra", "mpiexec.hydra", _program("mpiexec.hydra"), "error", _SAME_IMAGE),
    ("python", "Python", _program("python"), "warning", _SAME_IMAGE),
    ("torch", "torch", _library("torch"), "warning", _SAME_IMAGE),
    ("torch-cuda", "torch's CUDA", _library("torch cuda"), "warning", _SAME_IMAGE),
    ("nccl", "NCCL of torch", _library("torch nccl"), "error", _SAME_IMAGE),
    ("horovod", "Horovod", _library("horovod"), "warning", _SAME_IMAGE),
    ("python-packages", "Python packages", _library("packages"), "warning", _SAME_IMAGE),
    ("mindspore", "MindSpore", _library("mindspore"), "warning", _SAME_IMAGE),
    (
        "platform",
        "platform",
        lambda seen: seen.platform,
        "warning",
        "see `entrypoint facts` on both",
    ),
    (
        "rdma",
        "active RDMA ports",
        lambda seen: str(sum("active" in each.state.lower() for each in seen.ports)),
        "warning",
        "see that every container has /dev/infiniband, and every port is up",
    ),
)


_PROGRAMS = ("mpirun", "mpiexec.hydra")


def differences(
    observed: Mapping[int, Observation], reports: Mapping[int, NodeReport], plan: Plan
) -> list[Finding]:
    """The findings on nodes that are not like most. `observed` and `reports`: by the node's
    rank."""
    found = [*_clocks(reports, plan), *_late(reports, plan)]
    for id, what, get, level, fix in _SAME:
        if id in _PROGRAMS and id not in plan.launch.start.needs_programs:
            level = "warning"
        found += _compared(
            id, what, {rank: get(seen) for rank, seen in observed.items()}, level, fix, plan
        )
    found += _settings(observed, plan)
    found += _compared(
        "mtu",
        "MTU",
        _mtus(observed, reports),
        "warning",
        "set one MTU on all nodes and switches",
        plan,
    )
    found += _addresses(observed, plan)
    return found


def _compared(
    id: str, what: str, values: Mapping[int, str], level: str, fix: str, plan: Plan
) -> Iterator[Finding]:
    """A line for each value that is not the one of most nodes; of two as frequent, it is the first
    node's."""
    known = {rank: value for rank, value in sorted(values.items()) if value}
    counts = Counter(known.values())
    if len(counts) < 2:
        return
    usual = counts.most_common(1)[0][0]
    like = next(rank for rank, value in known.items() if value == usual)
    needed = f"{usual}, as {_label(plan, like)}"
    if counts[usual] > 1:
        needed += f" and {counts[usual] - 1} more"
    for value in counts:
        if value != usual:
            there = tuple(_label(plan, rank) for rank, own in known.items() if own == value)
            yield Finding(level, f"differs-{id}", f"{what} differs", value, needed, fix, there)


def _clocks(reports: Mapping[int, NodeReport], plan: Plan) -> Iterator[Finding]:
    clocks = {rank: each.clock for rank, each in reports.items()}
    for rank, by in clocks_apart(clocks, CLOCKS_OF_CHECK).items():
        fix = "set the machine's clock by NTP: logs, certificates and checks for new files go wrong"
        yield Finding(
            "warning",
            "clock",
            "clock",
            by,
            f"within {CLOCKS_OF_CHECK:.0f}s",
            fix,
            (_label(plan, rank),),
        )


def _late(reports: Mapping[int, NodeReport], plan: Plan) -> Iterator[Finding]:
    """Nodes whose packets take long to worker-0 and back: worker-0 itself, where those of several
    others all do."""
    trips = {rank: each.round_trip for rank, each in sorted(reports.items()) if each.round_trip > 0}
    late = {rank: trip for rank, trip in trips.items() if trip > _ROUND_TRIP}
    leader, many = plan.topology.leader.rank, len(trips) > 1
    if many and len(late) == len(trips):
        late = {leader: median(trips.values())}
    needed = f"within {_ROUND_TRIP * 1000:.0f} ms"
    fix = (
        "`entrypoint netcheck` measures all pairs: look for a machine in another zone, or a bad"
        " link"
    )
    for rank, trip in late.items():
        words = (
            f"{trip * 1000:.0f} ms {'to worker-0' if rank != leader else 'to the others'} and back"
        )
        there = (rank,) if many else (leader, rank)  # of two nodes nobody can tell which
        yield Finding(
            "warning",
            "latency",
            "round trip",
            words,
            needed,
            fix,
            tuple(_label(plan, it) for it in there),
        )


def _settings(observed: Mapping[int, Observation], plan: Plan) -> Iterator[Finding]:
    given = {
        rank: {each.name: each.value for each in seen.settings} for rank, seen in observed.items()
    }
    for name in sorted({name for each in given.values() for name in each}):
        values = {rank: each.get(name, "not given") for rank, each in given.items()}
        fix = "give all nodes the same spec, variables and flags"
        yield from _compared("setting", f"setting {name}", values, "warning", fix, plan)


def _mtus(observed: Mapping[int, Observation], reports: Mapping[int, NodeReport]) -> dict[int, str]:
    """Of the interface that the roll call came over; else of the only one."""
    found = {}
    for rank, seen in observed.items():
        report = reports.get(rank)
        names = {each.name for each in seen.links}
        name = (
            report.interface.name
            if report and report.interface
            else names.pop()
            if len(names) == 1
            else ""
        )
        found[rank] = next(
            (f"{each.mtu:g}" for each in seen.links if each.name == name and each.mtu), ""
        )
    return found


def _addresses(observed: Mapping[int, Observation], plan: Plan) -> Iterator[Finding]:
    """Names that lead elsewhere on another node, or to an address that their node does not have."""
    asked: dict[str, dict[int, str]] = {}  # name -> what it is on each node that has looked it up
    for rank, seen in observed.items():
        for each in seen.names:
            if each.addresses:
                asked.setdefault(each.host, {})[rank] = ", ".join(sorted(each.addresses))
    for node in plan.topology.nodes:
        there = asked.get(node.host, {})
        there.pop(node.rank, None)  # its own /etc/hosts may say another thing
        fix = "see /etc/resolv.conf and /etc/hosts of the nodes: they ask different name servers"
        yield from _compared("dns", f"the address of {node.host}", there, "warning", fix, plan)
        own = (
            {each.address for each in observed[node.rank].links} if node.rank in observed else set()
        )
        usual = Counter(there.values()).most_common(1)
        if own and usual and not own & set(usual[0][0].split(", ")):
            words = f"{node.host} leads to {usual[0][0]}, the node has {', '.join(sorted(own))}"
            fix = (
                "a name must lead to the container itself (in Kubernetes a headless Service): ranks"
                " call each other"
            )
            yield Finding(
                "warning",
                "dns-elsewhere",
                "name leads elsewhere",
                words,
                "its own address",
                fix,
                (node.label,),
            )


def _label(plan: Plan, rank: int) -> str:
    return plan.topology.nodes[rank].label
