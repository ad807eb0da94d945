"""The faults that `entrypoint local` is asked to make: which node, what, and when after the start.

worker-1@5s        a node and a time        worker-2@3s+5s     and for how long
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from entrypoint.errors import UsageError
from entrypoint.values import dataclass

KINDS = {
    "kill": "SIGKILL to a node and all its processes, as if a host is lost",
    "freeze": "SIGSTOP to all processes of a node; with a second time, they continue after that: worker-2@3s+5s",
    "stop": "SIGTERM to a node, as a platform stops a container",
    "late": "start a node that much later than the others",
}
"""The options that name a node and a time, and their help."""

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_TIME = r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h)"
_FAULT = re.compile(rf"worker-([0-9]{{1,4}})@{_TIME}(?:\+{_TIME})?")
_DO = "write NODE@TIME, such as worker-1@5s; times are like 500ms, 5s, 2m"


@dataclass(frozen=True)
class Fault:
    """One fault. `at` is in seconds after the start; a freeze with `ends` (seconds after the start) is over then."""

    kind: str
    node: int
    at: float
    ends: float | None
    given: str  # --kill worker-1@5s


@dataclass(frozen=True)
class Faults:
    """All faults of one run, and the seconds after which names resolve, None where they do from the start."""

    each: tuple[Fault, ...] = ()
    late_dns: float | None = None

    @property
    def late(self) -> dict[int, Fault]:
        """The nodes that start later than the others."""
        return {fault.node: fault for fault in self.each if fault.kind == "late"}


def read(given: Mapping[str, Sequence[str]], late_dns: str | None, nodes: int) -> Faults:
    """What the options ask for, by kind, in a job of so many nodes.

    Raises UsageError that names all that are wrong.
    """
    found: list[Fault] = []
    wrong = []
    for kind, words in given.items():
        for word in words:
            fault = _fault(kind, word, nodes)
            if isinstance(fault, str):
                wrong.append(f"--{kind} {word!r} ({fault})")
            elif kind == "late" and any((other.kind, other.node) == ("late", fault.node) for other in found):
                wrong.append(f"--late {word!r} (worker-{fault.node} is late twice)")
            else:
                found.append(fault)
    dns = None
    if late_dns is not None:
        if (parsed := re.fullmatch(_TIME, late_dns)) is None:
            wrong.append(f"--late-dns {late_dns!r} (not a time, such as 20s)")
        else:
            dns = _seconds(*parsed.groups())
            if nodes == 1:
                wrong.append(f"--late-dns {late_dns!r} (one node asks for no names)")
    if wrong:
        raise UsageError(f"EP020 {len(wrong)} of the faults cannot be made", ", ".join(wrong), _DO)
    return Faults(tuple(sorted(found, key=lambda fault: fault.at)), dns)


def _fault(kind: str, word: str, nodes: int) -> Fault | str:
    """The fault, or what is wrong with it."""
    parsed = _FAULT.fullmatch(word)
    if parsed is None:
        return "not NODE@TIME"
    node, at = int(parsed[1]), _seconds(parsed[2], parsed[3])
    if node >= nodes:
        return f"the nodes are worker-0 to worker-{nodes - 1}" if nodes > 1 else "the only node is worker-0"
    if parsed[4] and kind != "freeze":
        return "only a freeze ends"
    ends = at + _seconds(parsed[4], parsed[5]) if parsed[4] else None
    return Fault(kind, node, at, ends, f"--{kind} {word}")


def _seconds(number: str, unit: str) -> float:
    return float(number) * _UNITS[unit]
