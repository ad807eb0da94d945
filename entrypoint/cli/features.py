"""The features of `run`, `check` and `netcheck`, put together for the core."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

from entrypoint.base.model import Facts, Inquiry, Plan
from entrypoint.base.values import dataclass, replace
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


@dataclass
class InquiryRespondent:
    """Answers the leader's questions by the feature that asks: the last one only, as a question
    replaces another. `env`: of this node's programs."""

    spec: JobSpec
    facts: Facts
    plan: Plan
    env: Mapping[str, str]
    callbacks: Callbacks
    answering: asyncio.Task[None] | None = None
    torch: TorchProcess | None = None  # that measures the network, once it was asked for

    def ask(self, question: messages.Question) -> None:
        """Find the answer, and tell it."""
        self._cancel()
        self.answering = self.callbacks.background(self._reply(question))

    async def _reply(self, question: messages.Question) -> None:
        assert self.plan.inquiry
        # A job that runs needs neither of these modules.
        if self.plan.inquiry.name == "check":
            from entrypoint.features.health.report import observe

            body = await observe(self.spec, self.facts, self.plan, self.plan.inquiry.options)
        else:
            from entrypoint.features.netcheck.process import TorchProcess

            self.torch = self.torch or TorchProcess(
                self.plan.topology.interpreter, self._network_env, self.spec.timeouts.launch
            )
            body = await self.torch.reply(question.body)
        self.callbacks.tell(messages.Reply(question.number, body))

    def _network_env(self, name: str) -> Mapping[str, str]:
        """Return the environment that programs get where the roll call came over this interface."""
        own = self.plan.members.reports[self.plan.topology.me]
        interface = next((each for each in self.facts.interfaces if each.name == name), None)
        report = replace(own, interface=interface)
        variables = network(self.spec, self.facts, report)
        return {**{var.name: var.value for var in variables}, **self.env}

    def _cancel(self) -> None:
        if self.answering is not None:
            self.answering.cancel()

    def stop(self) -> None:
        """Answer nothing more."""
        self._cancel()
        if self.torch is not None:
            self.torch.end()

    async def close(self) -> None:
        """Return when torch's process has ended."""
        if self.torch is not None:
            await self.torch.close()
