"""Whether this node may take part in an attempt: its gate runs beside the roll call, and no program
starts here before it has ended."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from entrypoint.job import events, messages
from entrypoint.job.failure import unhealthy
from entrypoint.model import Facts, NodeReport, Outcome, Plan
from entrypoint.output.log import Callbacks, Logger
from entrypoint.spec import JobSpec
from entrypoint.system.signals import Signals
from entrypoint.text import one_line
from entrypoint.values import replace

if TYPE_CHECKING:
    from entrypoint.health.gate import NodeGate

_REASON = 1000  # characters of what is wrong with a node
# Seconds after the limits of a gate's own steps until it counts as hung, as on a file system that
# does not answer: before the leader gives it up, since nothing starts here until it has ended.
_HUNG = 5.0


async def _check(
    gate: NodeGate, plan: Plan, attempt: int, log: Logger, wait: Callable[[str], None]
) -> str:
    """Return why this node must not take part, or "". A gate that hangs or has a defect stops no
    job."""
    limit = gate.limit + _HUNG
    try:
        # its threads end by themselves, or never
        return one_line(await asyncio.wait_for(gate.check(plan, attempt, wait), limit), _REASON)
    except asyncio.TimeoutError:
        detail = f"no end within {limit:.0f}s"
        hint = "make sure that its file systems answer, such as that of gate.folder"
    except Exception as error:
        detail = f"{type(error).__name__}: {error}"
        hint = "please report it"
    log(f"warning: EP467 this node could not check itself | {detail} | {hint}")
    return ""


class Gate:
    """The gate of this node, for all attempts. It is open if nothing is to be checked."""

    def __init__(self, node: NodeGate | None, log: Logger) -> None:
        self._node = node
        self._log = log

    @classmethod
    def of(cls, spec: JobSpec, facts: Facts, log: Logger) -> Gate:
        """Return the gate that the spec and the site ask for."""
        if not spec.asks_cards and not os.path.isdir(spec.gate.folder):
            return cls(None, log)
        from entrypoint.health.gate import NodeGate  # most jobs have none

        return cls(NodeGate(spec, facts, log), log)

    def before_program(self, plan: Plan, signals: Signals) -> Outcome | None:
        """Return why this node must not become the program. Raises StoppedBySignal."""
        if self._node is None:
            return None

        async def until_stopped(gate: NodeGate) -> str:
            checked = asyncio.ensure_future(_check(gate, plan, 1, self._log, lambda why: None))

            def stop(*_: object) -> None:
                checked.cancel()

            signals.take(stop)
            await asyncio.wait({checked})
            return "" if checked.cancelled() else checked.result()

        with signals.held():
            problem = asyncio.run(until_stopped(self._node))
        return unhealthy(problem) if problem else None

    def admission(self, plan: Plan, attempt: int, callbacks: Callbacks) -> Admission:
        """Begin the check before this attempt. `callbacks.tell` takes an event."""
        return Admission(self._node, plan, attempt, callbacks)


class Admission:
    """The gate of one attempt on this node."""

    def __init__(
        self, gate: NodeGate | None, plan: Plan, attempt: int, callbacks: Callbacks
    ) -> None:
        """`callbacks.tell` takes an event."""
        self._plan = plan
        self._attempt = attempt
        self._log = callbacks.log
        self._tell = callbacks.tell
        self._failed: Outcome | None = None
        self._waits_for = ""
        self._is_announced = False  # whether the leader waits for the end
        self._held: list[Callable[[], None]] = []  # what is to be done after it
        self._task = callbacks.background(self._run(gate)) if gate else None

    @property
    def is_open(self) -> bool:
        """Whether the gate has not ended yet."""
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
        problem = await _check(gate, self._plan, self._attempt, self._log, self._wait)
        self._failed = unhealthy(problem) if problem else None
        self._task = None
        if self._is_announced:
            self._say(messages.Checked(problem))
        held, self._held = self._held, []
        for work in held:
            self.hold(work)

    def _wait(self, why: str) -> None:
        self._waits_for = one_line(why, _REASON)
        self._say_why()

    def _say_why(self) -> None:
        if self._is_announced and self.is_open and self._waits_for:
            self._say(messages.Checking(self._waits_for))

    def _say(self, message: messages.Checking | messages.Checked) -> None:
        self._tell(events.MessageReceived(self._plan.topology.me, message))
