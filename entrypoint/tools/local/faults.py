"""The faults that `entrypoint local` injects: the node, the kind, and the time after the start.

worker-1@5s        a node and a time        worker-2@3s+5s     and the duration
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from entrypoint.base.errors import UsageError
from entrypoint.base.tables import table
from entrypoint.base.values import frozen

KINDS = table("""
    kill   | kill a node and all its processes (SIGKILL), as if its host were lost; with a second \
        time, the node starts again after that: worker-1@3s+5s
    freeze | suspend all processes of a node (SIGSTOP); with a second time, they continue after \
        that: worker-2@3s+5s
    stop   | stop a node as a platform stops a container (SIGTERM)
    late   | start a node that much later than the others
""")
"""The options that name a node and a time, and their help."""

_ENDING = ("freeze", "kill")  # kinds that may have a second time
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_TIME = r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h)"
_FAULT = re.compile(rf"worker-([0-9]{{1,4}})@{_TIME}(?:\+{_TIME})?")
_HINT = "write NODE@TIME, such as worker-1@5s; times are like 500ms, 5s, 2m"


@frozen
class Fault:
    """One fault. `at` is in seconds after the start, and so is `ends`, when a frozen node continues
    or a killed one starts again."""

    kind: str
    node: int
    at: float
    ends: float | None
    option: str  # --kill worker-1@5s


def read(options: Mapping[str, Sequence[str]], nodes: int) -> list[Fault]:
    """Return the faults of these options, by kind, in a job of so many nodes; the earliest first.

    Raises UsageError that names all invalid ones.
    """
    faults: list[Fault] = []
    problems = []
    for kind, texts in options.items():
        for text in texts:
            fault = _fault(kind, text, nodes)
            if isinstance(fault, str):
                problems.append(f"--{kind} {text!r} ({fault})")
            elif kind == "late" and any(
                (other.kind, other.node) == ("late", fault.node) for other in faults
            ):
                problems.append(f"--late {text!r} (worker-{fault.node} is late twice)")
            else:
                faults.append(fault)
    if problems:
        raise UsageError(
            f"EP020 {len(problems)} of the faults cannot be injected", ", ".join(problems), _HINT
        )
    return sorted(faults, key=lambda fault: fault.at)


def _fault(kind: str, text: str, nodes: int) -> Fault | str:
    """Return the fault, or what is wrong with it."""
    parsed = _FAULT.fullmatch(text)
    if parsed is None:
        return "not NODE@TIME"
    node = int(parsed[1])
    at = float(parsed[2]) * _UNITS[parsed[3]]
    if node >= nodes:
        return (
            f"the nodes are worker-0 to worker-{nodes - 1}"
            if nodes > 1
            else "the only node is worker-0"
        )
    if parsed[4] and kind not in _ENDING:
        return "only a freeze and a kill end"
    ends = at + float(parsed[4]) * _UNITS[parsed[5]] if parsed[4] else None
    return Fault(kind, node, at, ends, f"--{kind} {text}")
