"""Answers the leader's questions, which a feature understands: its inquiry is in the plan."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

from entrypoint.base.model import Facts, Plan
from entrypoint.job import messages
from entrypoint.output.log import Callbacks

if TYPE_CHECKING:
    from entrypoint.job.inquiry import Answers  # most workers are asked nothing


class Respondent:
    """Answers the last question only, as a question replaces another."""

    _answers: Answers | None = None
    _answering: asyncio.Task[None] | None = None

    def __init__(
        self, facts: Facts, plan: Plan, env: Mapping[str, str], callbacks: Callbacks
    ) -> None:
        """`env`: of this node's programs; `callbacks.tell` takes a message."""
        self._facts = facts
        self._plan = plan
        self._env = env
        self._callbacks = callbacks

    def ask(self, question: messages.Question) -> None:
        """Find the answer, and tell it."""
        self._cancel()
        if self._answers is None:
            assert self._plan.inquiry  # without one no question is taken
            self._answers = self._plan.inquiry.answers(self._facts, self._plan, self._env)
        self._answering = self._callbacks.background(self._reply(question, self._answers))

    async def _reply(self, question: messages.Question, answers: Answers) -> None:
        body = await answers.answer(question.body)
        self._callbacks.tell(messages.Reply(question.number, body))

    def _cancel(self) -> None:
        if self._answering is not None:
            self._answering.cancel()

    def stop(self) -> None:
        """Answer nothing more."""
        self._cancel()
        if self._answers is not None:
            self._answers.stop()

    async def close(self) -> None:
        """Return when nothing is left that an answer has started."""
        if self._answers is not None:
            await self._answers.close()
