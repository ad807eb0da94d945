"""Simulated gates: how long a node checks itself, what comes of it, and whether it says so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from entrypoint.base.model import NodeReport
from entrypoint.base.values import replace
from entrypoint.job import events, messages
from entrypoint.job.failure import unhealthy
from entrypoint.job.membership.quorum import GATE_MARGIN

if TYPE_CHECKING:
    from tests.simulation.world import Container, World

SECONDS = 2.0  # limit of the executables
LIMIT = 4 * SECONDS  # seconds after which each gate has ended
AWAITED = LIMIT + GATE_MARGIN  # seconds for which the leader waits
PROBLEM = "GPU 1: 4 uncorrectable memory errors"
_AGAIN = 0.1  # seconds after which a gate of a frozen node ends


@dataclass(frozen=True)
class Gate:
    """The gate of one node in each attempt."""

    seconds: float = 0.0
    healthy: bool = True
    reports: bool = True  # whether the leader hears of its end


def draw_gates(random: Random, nodes: int) -> tuple[Gate, ...]:
    """Draw the gates of a job's nodes: fast, slow, and at times a node that is not healthy, or does
    not say how its gate has ended."""
    gates = [Gate(random.choice((0.0, 0.2, 1.0, 3.0, LIMIT))) for _ in range(nodes)]
    odd, last = random.randrange(nodes), random.random()
    if last < 0.3:
        gates[odd] = replace(gates[odd], healthy=False)
    elif last < 0.4:
        gates[odd] = Gate(LIMIT, reports=False)
    elif last < 0.5:
        gates[odd] = Gate(LIMIT, healthy=False, reports=False)
    elif last < 0.6:  # the leader starts without its result, which it then reports
        gates[odd] = Gate(AWAITED + 2.0, healthy=False)
    return tuple(gates)


class SimulatedGate:
    """The gate of one boot of a node, as health/gate.py has it."""

    def __init__(self, world: World, container: Container) -> None:
        self._world, self._container = world, container
        gates = world.schedule.gates
        self._gate = gates[container.rank] if gates else Gate()
        self._boot = container.boots
        self._held: list[Callable[[], None]] = []
        self._is_announced = False
        self._begun = world.now
        self.is_open = bool(gates)
        if self.is_open:
            world.after(self._gate.seconds, self._end)

    def report(self, report: NodeReport) -> NodeReport:
        """Return the node's report with what is known of its gate."""
        self._is_announced = self.is_open and not report.not_ready
        if report.not_ready:
            return report
        if not self.is_open and not self._gate.healthy:
            return replace(report, not_ready=unhealthy(PROBLEM))
        return replace(report, checking=self.is_open)

    def problem(self, now: float) -> str:
        """Return why the leader must not start the job, or ""."""
        if not self._gate.reports or now - self._begun > AWAITED:
            return ""
        if self.is_open:
            return "still checks itself"
        return "" if self._gate.healthy else "is not healthy"

    def hold(self, work: Callable[[], None]) -> None:
        """Do this once the gate has ended."""
        if self.is_open:
            self._held.append(work)
        elif not self._gate.healthy:
            self._container.give(events.Faulted(unhealthy(PROBLEM)))
        else:
            work()

    def cancel(self) -> None:
        """The attempt ends."""
        self._held.clear()

    def _end(self) -> None:
        if not self._container.is_boot(self._boot):
            return
        if not self._container.is_awake():
            self._world.after(_AGAIN, self._end)
            return
        self.is_open = False
        problem = "" if self._gate.healthy else PROBLEM
        if self._is_announced and self._gate.reports:
            rank = self._container.rank
            for message in (messages.Checking("memory"), messages.Checked(problem)):
                self._container.give(events.MessageReceived(rank, message))
        held, self._held = self._held, []
        for work in held:
            self.hold(work)
