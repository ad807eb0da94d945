"""Runs the job on this node: as the leader, as a worker, or, where there is nothing to coordinate, as the program."""

from __future__ import annotations

import asyncio

from entrypoint import plan
from entrypoint.errors import EntrypointError, RetryError
from entrypoint.jobspec import JobSpec
from entrypoint.model import Facts, Outcome, Plan, Topology
from entrypoint.run import checks, hooks, keys, place, process
from entrypoint.run.progress import Say


def execute(spec: JobSpec, facts: Facts, topology: Topology, say: Say) -> Outcome:
    """Run the start hooks, then boot and end this node's part of the job. One node and one program needs no boot: we
    become the program.

    Raises EntrypointError when the job cannot start.
    """
    draft = plan.build(spec, facts, topology, plan.assume_roster(topology, facts))
    if draft.alone:
        others = "each node waits for its peers and ends by itself, whatever the others do"
        say(f"no roll call, since {draft.alone}: {others}")
    for words in keys.warnings(spec) if draft.roll_call != "none" else ():
        say(f"warning: {words}")
    unfit = _unfit(spec, facts, draft, say)
    if draft.roll_call != "none":
        draft, unusable = place.settle(spec, facts, draft)
        unfit = unfit or unusable
    if unfit and draft.roll_call == "none":
        return unfit
    if unfit:
        say(f"{unfit.reason}; the roll call tells the other nodes")
    if draft.roll_call == "none" and draft.launcher == "plain":
        (program,) = draft.launch.programs
        return process.replace(program.argv, plan.environment(facts.env, (*draft.env, *program.env)), draft.workdir)
    for attempt in range(1, spec.restarts + 1):
        outcome = asyncio.run(_boot(spec, facts, draft, unfit, say))
        if outcome.status != RetryError.status:
            return outcome
        say(f"attempt {attempt} of {spec.restarts + 1} is over: {outcome.reason}; starting again")
    return asyncio.run(_boot(spec, facts, draft, unfit, say))


def _unfit(spec: JobSpec, facts: Facts, draft: Plan, say: Say) -> Outcome | None:
    """Why this node cannot take part: a start hook that failed, or what its machine lacks."""
    failed = hooks.run(plan.environment(facts.env, draft.env), draft.workdir, say)
    if failed is not None:
        return failed
    unfit, warnings = checks.machine(spec, draft)
    for words in warnings:
        say(f"warning: {words}")
    return unfit


async def _boot(spec: JobSpec, facts: Facts, draft: Plan, unfit: Outcome | None, say: Say) -> Outcome:
    # Imported here, since a worker needs no ssh client and a lone program needs neither.
    if draft.topology.is_leader or draft.roll_call == "none":
        from entrypoint.run.leader import Leader as Role
    else:
        from entrypoint.run.worker import Worker as Role  # type: ignore[assignment]
    try:
        return await Role(spec, facts, draft, unfit, say).run()
    except EntrypointError as error:
        return Outcome(error.status, str(error))
