"""Admission of this node to an attempt: its gate runs during the roll call, and no program starts
here before it has ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from entrypoint.base.model import NodeReport, Outcome, Plan
from entrypoint.base.values import replace
from entrypoint.features.health.gate import NodeGate
from entrypoint.job import events, messages
from entrypoint.job.failure import unhealthy
from entrypoint.output.log import Callbacks
from entrypoint.system.signals import Signals


class HealthGate(NodeGate):
    """The gate of this node, as the core asks for it."""

    def before_program(self, plan: Plan, signals: Signals) -> Outcome | None:
        """Return why this node must not become the program. Raises StoppedBySignal."""

        async def until_stopped() -> str:
            checked = asyncio.ensure_future(self.check(plan, lambda why: None))

            def stop(*_: object) -> None:
                checked.cancel()

            signals.take(stop)
            await asyncio.wait({checked})
            return "" if checked.cancelled() else checked.result()

        with signals.held():
            problem = asyncio.run(until_stopped())
        return unhealthy(problem) if problem else None

    def admission(self, plan: Plan, callbacks: Callbacks) -> HealthAdmission:
        """Begin the check before an attempt. `callbacks.tell` takes an event."""
        return HealthAdmission(self, plan, callbacks)


class HealthAdmission:
    """The gate of one attempt on this node."""

    def __init__(self, gate: NodeGate, plan: Plan, callbacks: Callbacks) -> None:
        """`callbacks.tell` takes an event."""
        self._plan = plan
        self._tell = callbacks.tell
        self._failed: Outcome | None = None
        self._waits_for = ""
        self._is_announced = False  # whether the leader waits for the end
        self._held: list[Callable[[], None]] = []  # what is to be done after it
        self._task: asyncio.Task[None] | None = callbacks.background(self._run(gate))

    @property
    def is_open(self) -> bool:
        """Return whether the gate has not ended yet."""
        return self._task is not None

    def report(self, report: NodeReport) -> NodeReport:
        """Return this node's report with what is known of the gate."""
        self._is_announced = self.is_open and not report.not_ready
        if report.not_ready:
            return report
        if self.is_open:
            asyncio.get_running_loop().call_soon(self._say_why)  # after the report
        return replace(report, not_ready=self._failed, checking=self.is_open)

    def hold(self, work: Callable[[], None]) -> None:
        """Do this once the gate has ended, or now; never if this node has not passed, which is then
        a failure of it."""
        if self.is_open:
            self._held.append(work)
        elif self._failed:
            self._tell(events.Faulted(self._failed))
        else:
            work()

    def cancel(self) -> None:
        """The attempt ends: nothing that was held is done any more."""
        self._held.clear()
        if self._task:
            self._task.cancel()

    async def _run(self, gate: NodeGate) -> None:
        problem = await gate.check(self._plan, self._wait)
        self._failed = unhealthy(problem) if problem else None
        self._task = None
        if self._is_announced:
            self._say(messages.Checked(problem))
        held, self._held = self._held, []
        for work in held:
            self.hold(work)

    def _wait(self, why: str) -> None:
        self._waits_for = why
        self._say_why()

    def _say_why(self) -> None:
        if self._is_announced and self.is_open and self._waits_for:
            self._say(messages.Checking(self._waits_for))

    def _say(self, message: messages.Checking | messages.Checked) -> None:
        self._tell(events.MessageReceived(self._plan.topology.me, message))
