"""What a node answers to the leader's questions: the last one only, and for the network check what
torch's process says."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from entrypoint import spec as specs
from entrypoint.base.model import Facts, Inquiry, Interface
from entrypoint.base.values import replace
from entrypoint.features.netcheck.coordinator import inquiry
from entrypoint.job import messages
from entrypoint.job.inquiry import Answers
from entrypoint.output.log import Callbacks, Logger
from entrypoint.plan import settle
from entrypoint.session.respondent import Respondent
from tests.process.bench import executable
from tests.waits import PATIENCE

INTERFACE = Interface("eth0", "10.0.0.2", "10.0.0.0/24")
FACTS = Facts(env={}, hostname="a", cwd="/", uid=1, user="u", home="/", interfaces=(INTERFACE,))
SPEC = specs.load("hosts: [a, b]\nnode_rank: 0\nlauncher: plain\nsecret_file: /none\n", "", {}, {})
SPEC = replace(SPEC, command=("python",))
# Torch's process, which says that the interface is its backend.
TORCH = """
echo '{"kind": "Ready", "backend": "'$GLOO_SOCKET_IFNAME-$OWN'"}'
sleep 1000 & wait
"""


def asked(made: Inquiry, ask: Any) -> list[messages.Reply]:
    """The replies of a node that is asked so."""
    told: list[messages.Reply] = []

    async def node() -> None:
        plan = replace(settle(SPEC, FACTS), inquiry=made)
        callbacks = Callbacks(Logger(), told.append, asyncio.ensure_future)
        respondent = Respondent(FACTS, plan, {"OWN": "own"}, callbacks)
        await ask(respondent)
        respondent.stop()
        await asyncio.wait_for(respondent.close(), PATIENCE)

    asyncio.run(node())
    return told


class Slow(Answers):
    """Answers once it is allowed to, with what it was asked."""

    made = 0
    answered = False

    def __init__(self, *node: Any) -> None:
        Slow.made += 1
        self.may = asyncio.Event()
        asyncio.get_running_loop().call_later(0.05, self.may.set)

    async def answer(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        await self.may.wait()
        Slow.answered = True
        return body


@pytest.mark.parametrize(("stops", "told"), [(False, [1]), (True, [])])
def test_only_the_last_question_is_answered_and_none_after_a_stop(
    stops: bool, told: list[int]
) -> None:
    async def ask(respondent: Respondent) -> None:
        for number in (0, 1):
            respondent.ask(messages.Question(number, {"number": number}))
        if stops:
            respondent.stop()
        while not (Slow.answered or stops):
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)  # for what must not come

    Slow.made, Slow.answered = 0, False
    replies = asked(Inquiry("slow", lambda plan, reports: None, Slow), ask)
    assert [(reply.number, reply.body) for reply in replies] == [(n, {"number": n}) for n in told]
    assert Slow.made == 1


def test_torch_gets_the_environment_of_the_programs_and_ends_with_the_node(tmp_path: Path) -> None:
    executable(tmp_path / "python", TORCH)
    made = inquiry(SPEC, "text")

    def answers(facts: Facts, plan: Any, env: Mapping[str, str]) -> Answers:
        topology = replace(plan.topology, interpreter=str(tmp_path / "python"))
        env = {**env, "PATH": "/usr/bin:/bin"}
        answers: Answers = made.answers(facts, replace(plan, topology=topology), env)
        return answers

    async def ask(respondent: Respondent) -> None:
        respondent.ask(messages.Question(0, {"kind": "Open", "interface": "eth0"}))
        assert respondent._answering
        await respondent._answering

    (reply,) = asked(replace(made, answers=answers), ask)
    assert reply.body == {"kind": "Ready", "backend": "eth0-own"}
