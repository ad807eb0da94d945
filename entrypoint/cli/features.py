"""The features of `run`, `check` and `netcheck`, put together for the core."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

from entrypoint.base.model import Facts, Inquiry, Plan
from entrypoint.base.values import replace
from entrypoint.extensions import Extensions
from entrypoint.features.health.admission import HealthGate
from entrypoint.features.record.file import RecordFile
from entrypoint.features.record.live import LiveRecord
from entrypoint.job import messages
from entrypoint.output.log import Callbacks, Logger
from entrypoint.plan import network
from entrypoint.spec import JobSpec

if TYPE_CHECKING:
    from entrypoint.features.netcheck.process import TorchProcess


def extensions(spec: JobSpec, record: RecordFile, log: Logger) -> Extensions:
    """Return what the core asks of features."""
    return Extensions(
        LiveRecord(spec, record, log), HealthGate.of, InquiryRespondent, _before_program
    )


def _before_program(spec: JobSpec) -> Inquiry | None:
    if spec.netcheck.when != "before":
        return None
    from entrypoint.features.netcheck.messages import inquiry  # most jobs ask nothing

    return inquiry(spec, "before")


class InquiryRespondent:
    """Answers the leader's questions by the feature that asks: the last one only, as a question
    replaces another."""

    def __init__(
        self,
        spec: JobSpec,
        facts: Facts,
        plan: Plan,
        env: Mapping[str, str],
        callbacks: Callbacks,
    ) -> None:
        self._spec = spec
        self._facts = facts
        self._plan = plan
        self._env = env
        self._tell = callbacks.tell
        self._background = callbacks.background
        self._answering: asyncio.Task[None] | None = None
        # that measures the network, once it was asked for
        self._torch: TorchProcess | None = None

    def ask(self, question: messages.Question) -> None:
        """Find the answer, and tell it."""
        self._cancel()
        self._answering = self._background(self._reply(question))

    async def _reply(self, question: messages.Question) -> None:
        assert self._plan.inquiry
        # A job that runs needs neither of these modules.
        if self._plan.inquiry.name == "check":
            from entrypoint.features.health.probe import observe

            body = await observe(self._spec, self._facts, self._plan)
        else:
            from entrypoint.features.netcheck.process import TorchProcess

            self._torch = self._torch or TorchProcess(
                self._plan.topology.interpreter, self._network_env, self._spec.timeouts.launch
            )
            body = await self._torch.reply(question.body)
        self._tell(messages.Reply(question.number, body))

    def _network_env(self, name: str) -> Mapping[str, str]:
        """Return the environment that programs get where the roll call came over this interface."""
        own = self._plan.members.reports[self._plan.topology.me]
        interface = next((each for each in self._facts.interfaces if each.name == name), None)
        report = replace(own, interface=interface)
        variables = network(self._spec, self._facts, report)
        return {**{var.name: var.value for var in variables}, **self._env}

    def _cancel(self) -> None:
        if self._answering is not None:
            self._answering.cancel()

    def stop(self) -> None:
        """Answer nothing more."""
        self._cancel()
        if self._torch is not None:
            self._torch.end()

    async def close(self) -> None:
        """Return when torch's process has ended."""
        if self._torch is not None:
            await self._torch.close()
