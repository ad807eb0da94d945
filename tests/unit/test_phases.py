"""The phases of a node: one list, one table of transitions, one function that changes a phase."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from entrypoint import spec
from entrypoint.base.model import Facts
from entrypoint.base.phases import ALLOWED, ALLOWED_OF_OTHERS, MEANING, STATUSES, Phase
from entrypoint.job import actions
from entrypoint.job.state import JobState
from entrypoint.plan import settle

FACTS = Facts(
    env={}, hostname="node", cwd="/job", uid=1000, user="u", home="/home/u",
    programs={"sshd": "/usr/sbin/sshd", "python3": "/usr/bin/python3"},
)  # fmt: skip
ME = {"ENTRYPOINT_NODE_RANK": "0"}
PACKAGE = Path(__file__).parents[2] / "entrypoint"
# nothing decides anything in these
BEFORE = {Phase.CONTAINER, Phase.FACTS, Phase.HOOKS, Phase.EARLIER}


def state() -> JobState:
    read = spec.load(
        "hosts: [a, b, c]\nlauncher: torchrun\nsecret_file: /none\ncommand: [train]",
        "job.yaml",
        ME,
        {},
    )
    return JobState(read, settle(read, FACTS))


def changes(source: str) -> list[str]:
    """Functions that write to a `_phases`."""
    found = []
    for function in ast.walk(ast.parse(source)):
        if not isinstance(function, ast.FunctionDef) or function.name == "__init__":
            continue
        for node in ast.walk(function):
            targets = node.targets if isinstance(node, ast.Assign) else []
            for target in targets:
                if isinstance(target, ast.Subscript):
                    target = target.value
                if isinstance(target, ast.Attribute) and target.attr == "_phases":
                    found.append(function.name)
    return found


@pytest.mark.textual
@pytest.mark.promise("one function changes the phase of a node, and checks what may follow")
def test_one_function_changes_a_phase() -> None:
    found = {
        path.relative_to(PACKAGE).as_posix(): changes(path.read_text())
        for path in PACKAGE.rglob("*.py")
    }
    assert {name: where for name, where in found.items() if where} == {"job/state.py": ["enter"]}


@pytest.mark.control("one function changes the phase of a node, and checks what may follow")
@pytest.mark.parametrize("phase", [Phase.ROLL_CALL, Phase.RUNNING, Phase.MISSING])
def test_what_may_not_follow_is_refused(phase: Phase) -> None:
    own = state()
    with pytest.raises(ValueError, match=f"CHECKS is not followed by {phase.name}"):
        own.enter(phase)
    assert own.phase is Phase.CHECKS


def test_nothing_follows_the_end() -> None:
    own = state()
    for phase in (Phase.KEYS, Phase.ENDED):
        own.enter(phase)
    with pytest.raises(ValueError, match="ENDED is not followed by ENDING"):
        own.enter(Phase.ENDING)


def test_every_phase_has_its_place() -> None:
    reached = {Phase.CHECKS, *(after for others in ALLOWED.values() for after in others)}
    assert reached == {*Phase} - BEFORE - {Phase.MISSING, Phase.LOST}
    assert {*ALLOWED, Phase.ENDED} == reached, "only the last one has no other behind it"
    of_others = {
        *ALLOWED_OF_OTHERS,
        *(after for others in ALLOWED_OF_OTHERS.values() for after in others),
    }
    assert of_others - reached == {Phase.MISSING, Phase.LOST}
    assert {phase.timeline for phase in Phase} - {""} == {*MEANING}
    assert {phase.status for phase in Phase} | {"names"} == {*STATUSES}


def test_what_others_do_too_late_changes_nothing() -> None:
    own = state()
    own.enter(Phase.WAITING, 1)
    own.enter(Phase.LOST, 1, "its session ended")
    own.enter(Phase.RUNNING, 1)
    assert own.of(1) is Phase.LOST
    own.enter(Phase.WAITING, 7)  # no node of this job
    for phase in (Phase.WAITING, Phase.RELEASED, Phase.ENDED, Phase.LOST):
        own.enter(phase, 2)
    assert own.of(2) is Phase.ENDED


def test_the_first_start_here_and_the_first_output_change_the_phase() -> None:
    own = state()
    for phase in (Phase.FILES, Phase.LAUNCHING):
        own.enter(phase)
    phases = (Phase.OUTPUT, Phase.OUTPUT, Phase.RUNNING)
    for change, phase in zip(("start", "start", "output"), phases, strict=True):
        own.rank_changed(change)
        assert own.phase is phase


def test_who_watches_hears_each_change_once() -> None:
    own = state()

    def changed() -> None:
        own.enter(Phase.KEYS)
        own.enter(Phase.KEYS)
        own.note(1, "")  # as it was
        own.note(1, "no DNS")

    done = own.scheduler.step(changed, print, 1.0)
    assert done == [actions.Entered(0, Phase.KEYS), actions.Entered(1, Phase.MISSING, "no DNS")]
    assert own.has_entered(Phase.CHECKS)
    assert not own.has_started
