"""Runs the job on this node: as the leader, as a worker, or, where there is nothing to coordinate, as the program."""

from __future__ import annotations

import asyncio

from entrypoint.errors import EntrypointError
from entrypoint.host import checks, hooks, keys, place, process
from entrypoint.host.progress import Say
from entrypoint.host.signals import Signals
from entrypoint.host.speaker import Speaker
from entrypoint.model import Facts, Outcome, Plan
from entrypoint.plan import environment
from entrypoint.spec import JobSpec


def execute(spec: JobSpec, facts: Facts, draft: Plan, signals: Signals, say: Speaker) -> Outcome:
    """Run the start hooks, then boot and end this node's part of the job. One node and one program needs no boot: we
    become the program.

    Raises EntrypointError when the job cannot start, Stopped when a signal says that it is not to.
    """
    if draft.no_roll_call:
        others = "each node waits for its peers and ends by itself, whatever the others do"
        say(f"no roll call, since {draft.no_roll_call}: {others}")
    for words in keys.warnings(spec) if draft.mode == "coordinated" else ():
        say(f"warning: {words}")
    unfit = _unfit(spec, facts, draft, signals, say)
    if draft.mode == "coordinated":
        draft, unusable = place.settle(spec, facts, draft)
        unfit = unfit or unusable
    if unfit and draft.mode != "coordinated":
        return unfit
    if unfit:
        say(f"{unfit.reason}; the roll call tells the other nodes")
    if draft.mode == "exec":
        (program,) = draft.launch.programs
        return process.replace(program.argv, environment(facts.env, (*draft.env, *program.env)), draft.workdir)
    signals.hold()
    attempt = 1
    while True:
        outcome, attempt = asyncio.run(_boot(spec, facts, draft, unfit, attempt, signals, say))
        if not outcome.again:
            return outcome
        over = f"attempt {attempt} of {spec.restarts + 1} is over: {outcome.reason}"
        if signals.stopped:
            status = 128 + signals.stopped
            return Outcome(status, process.ended("this node", status, over))
        say(f"{over}; starting again")
        attempt += 1


def _unfit(spec: JobSpec, facts: Facts, draft: Plan, signals: Signals, say: Say) -> Outcome | None:
    """Why this node cannot take part: a start hook that failed, or what its machine lacks."""
    with signals.held():
        failed = asyncio.run(
            hooks.run(environment(facts.env, draft.env), draft.workdir, spec.timeouts.grace, signals, say)
        )
    if failed is not None:
        return failed
    unfit, warnings = checks.machine(spec, draft)
    for words in warnings:
        say(f"warning: {words}")
    return unfit


async def _boot(
    spec: JobSpec, facts: Facts, draft: Plan, unfit: Outcome | None, attempt: int, signals: Signals, say: Speaker
) -> tuple[Outcome, int]:
    """One attempt's outcome, and its number: the leader may have counted further than we."""
    # Imported here, since a worker needs no ssh client and a lone program needs neither.
    if draft.topology.is_leader or draft.mode != "coordinated":
        from entrypoint.run.leader import Leader as Role
    else:
        from entrypoint.run.worker import Worker as Role  # type: ignore[assignment]
    try:
        role = Role(spec, facts, draft, unfit, attempt, signals, say)
        return await role.run(), role.attempt
    except EntrypointError as error:
        return Outcome(error.status, str(error)), attempt
