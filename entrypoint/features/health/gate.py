"""The gate before each attempt: what a node checks of itself, its limits, its cards by the driver's
tool, and the executables of a folder. It runs during the roll call, and no program starts here
before it has ended.

A check that is missing or slow never stops a job: it is logged once.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from entrypoint.base.errors import EntrypointError, message_parts
from entrypoint.base.model import Facts, NodeReport, Outcome, Plan
from entrypoint.base.secret import scrubbed
from entrypoint.base.text import Log, one_line, some
from entrypoint.base.values import replace
from entrypoint.features.health import asks_cards, cards
from entrypoint.job import events, messages
from entrypoint.job.failure import ended, unhealthy
from entrypoint.output.log import Callbacks
from entrypoint.plan import environment
from entrypoint.spec import JobSpec
from entrypoint.system import preflight, smi
from entrypoint.system.files import trusted_entries, untrusted
from entrypoint.system.limited import LimitedRun, run
from entrypoint.system.process import tied
from entrypoint.system.signals import Signals
from entrypoint.system.smi import Reading
from entrypoint.system.threads import in_thread, rest

_POLL = 1.0  # seconds between two readings of the memory of the cards
_LEAST = 0.1  # seconds that the last executable has at least
_LINE, _REASON = 4000, 300  # characters of a program's last line that are read, and shown
_TOOL = 5.0  # seconds for a card's tool while its memory is awaited
_NAMED = 4  # cards that one line names
_PROBLEM = 1000  # characters of what is wrong with a node
# Seconds after the limits of a gate's own steps until it counts as hung, as on a file system that
# does not answer: before the leader gives it up, since nothing starts here until it has ended.
_HUNG = 5.0


class NodeGate:
    """The gate of this node, for all attempts: it remembers what was logged, and which cards others
    used before the job."""

    def __init__(self, spec: JobSpec, facts: Facts, log: Log) -> None:
        self._spec = spec.gate
        self._facts = facts
        self._log = log
        self._asks_cards = asks_cards(spec)
        self._has_begun = False
        self._said: set[str] = set()
        # cards that were in use when the first attempt began, which the job then shares
        self._shared: set[str] | None = None

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

    async def check(self, plan: Plan, wait: Callable[[str], None]) -> str:
        """Return why this node must not take part in the next attempt, or "". A gate that hangs or
        has a defect stops no job.

        `wait` gets what is waited for, in words, each time that it changes.
        """
        limit = self._spec.limit + _HUNG
        try:
            # its threads end on their own, or never
            problems = await asyncio.wait_for(self._check(plan, wait), limit)
            return one_line("; ".join(problems), _PROBLEM)
        except asyncio.TimeoutError:
            detail = f"no end within {limit:.0f}s"
            hint = "make sure that its file systems answer, such as that of gate.folder"
        except Exception as error:
            detail = f"{type(error).__name__}: {error}"
            hint = "please report it"
        self._warn("EP465 this node could not check itself", detail, hint)
        return ""

    async def _check(self, plan: Plan, wait: Callable[[str], None]) -> list[str]:
        problems = self._limits(plan)
        readings = await self._read_cards(plan, self._spec.seconds)
        problems += self._health(plan, readings)
        if readings and not problems:
            problems += await self._await_memory(plan, readings, wait)
        return problems + await self._run_folder(plan)

    def _warn(self, summary: str, detail: str, hint: str) -> None:
        """Log a warning, unless this node has logged it in an earlier attempt."""
        if summary not in self._said:
            self._said.add(summary)
            self._log(f"warning: {summary} | {detail} | {hint}")

    def _limits(self, plan: Plan) -> list[str]:
        """Judge once more what was judged before the boot, as an attempt may have used it up."""
        try:
            warnings = [message_parts(warning) for warning in preflight.check(plan)]
        except EntrypointError as error:
            return [": ".join(message_parts(str(error))[:2])]
        if not self._has_begun:  # it was logged at the start
            self._has_begun = True
            self._said.update(summary for summary, _, _ in warnings)
        for warning in warnings:
            self._warn(*warning)
        return []

    # -- cards

    async def _read_cards(self, plan: Plan, seconds: float) -> list[Reading]:
        """Return what the tools say that show any card."""
        readings = await smi.readings(self._facts.env, seconds) if self._asks_cards else []
        seen = [reading for reading in readings if reading.cards]
        silent = [f"{reading.tool}: {reading.problem}" for reading in readings if reading.problem]
        # An image may hold the tool of cards that this machine does not have.
        if silent and not seen and plan.topology.device.count:
            hint = "run it on that node; it may hang in the job, too"
            self._warn("EP465 the health of the cards is unknown", "; ".join(silent), hint)
        return seen

    def _health(self, plan: Plan, readings: Sequence[Reading]) -> Iterator[str]:
        device = plan.topology.device
        number = cards.expected(device.origin, device.count)
        for reading in readings:
            for finding in cards.lost(reading.cards, number, reading.tool):
                yield f"{finding.what}: {finding.detail}"
            for card in reading.cards:
                for finding in cards.health(card):
                    says = f"{card.called(reading.noun)}: {finding.seen}"
                    if finding.level == "error" and not finding.seen.startswith(smi.SLOWED):
                        yield says
                    else:
                        self._warn(
                            f"EP462 a card has a problem: {says}", finding.detail, finding.fix
                        )

    def _held(self, readings: Sequence[Reading]) -> dict[str, str]:
        """Return who uses which card, but for those that were in use before the job."""
        return {
            name: finding.seen
            for reading in readings
            for card in reading.cards
            for finding in cards.in_use(card)
            if (name := card.called(reading.noun)) not in (self._shared or ())
        }

    async def _await_memory(
        self, plan: Plan, readings: list[Reading], wait: Callable[[str], None]
    ) -> list[str]:
        """Wait until the memory of the cards is free, twice `gate.seconds` at most.

        What uses them before the first attempt is not the job's own: the job shares them, as
        without a gate. Later it is what an attempt has left.
        """
        begun, before = time.monotonic(), ""
        most = self._spec.memory_wait
        while held := self._held(readings):
            named = some((f"{name}: {who}" for name, who in held.items()), _NAMED, "; ")
            left = begun + most - time.monotonic()
            if left <= 0:
                break
            if named != before:
                why = f"the memory of cards is not free: {named}"
                self._log(f"{why}; waiting {left:.0f}s at most")
                wait(one_line(why, _PROBLEM))
                before = named
            await rest(min(_POLL, left))
            readings = await self._read_cards(plan, _TOOL)
            if not readings:
                return []  # the tool does not answer any more
        if before and not held:
            self._log(f"the memory of the cards is free after {time.monotonic() - begun:.1f}s")
        is_first, self._shared = self._shared is None, self._shared or {*held}
        if not held:
            return []
        problem = f"memory of cards is not free after {most:.0f}s: {named}"
        if not is_first:
            return [problem]
        hint = "end the process that uses them, or wait longer: gate.seconds, twice"
        self._warn("EP463 the job shares its cards", problem, hint)
        return []

    # -- the folder

    async def _run_folder(self, plan: Plan) -> list[str]:
        """Run the executables of the folder by name. Return what failed, with each one's last
        line."""
        until = time.monotonic() + self._spec.seconds
        folder = Path(self._spec.folder)
        hint = "only root and this user may be able to change the folder and what is in it"
        try:
            entries = await in_thread(partial(_executables, folder))
        except FileNotFoundError:
            return []
        except OSError as error:
            self._warn(f"EP464 {folder} is not used", error.strerror or str(error), hint)
            return []
        problems = []
        env = environment(self._facts.env, plan.env)
        for entry, why in entries:
            if why:
                self._warn(f"EP464 {entry.name} of {folder} is not run", why, hint)
                continue
            result = LimitedRun(None, "", "no time left")
            if (left := until - time.monotonic()) >= _LEAST:
                result = await run(tied((str(entry),)), env, left, merged=True)
            if result.status is None:
                late = (
                    "give the checks more time: gate.seconds; until then the node counts as healthy"
                )
                self._warn(
                    f"EP465 the health check {entry.name} has no result", result.problem, late
                )
            elif result.status:
                last = scrubbed(_last_line(result.output), self._facts.env)
                reason = f"{entry.name}: {last}" if last else ended(entry.name, result.status)
                problems.append(reason)
        return problems


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


def _last_line(output: str) -> str:
    """Return the last line with a text."""
    last = output.rstrip()[-_LINE:].rpartition("\n")[2]
    return one_line(last.strip(), _REASON)


def _executables(folder: Path) -> list[tuple[Path, str]]:
    """Return the files of the folder by name, each with why it must not be run, or "".

    Raises OSError if the folder cannot be read, or if others can change it.
    """
    return [(file, _refused(file)) for file in trusted_entries(folder)]


def _refused(file: Path) -> str:
    try:
        why = untrusted(file)
    except OSError as error:
        return error.strerror or str(error)
    return why if file.is_file() and os.access(file, os.X_OK) else "not an executable file"
