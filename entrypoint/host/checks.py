"""What `run` refuses on this node, one function for each moment; `plan` asks them all, since none needs the network."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace

from entrypoint import plan as planning
from entrypoint.errors import EntrypointError
from entrypoint.host import keys, preflight, process, rank_table, sshd
from entrypoint.host.progress import Say
from entrypoint.jobspec import JobSpec
from entrypoint.model import Facts, Launch, Outcome, Plan, Program, Topology


def dry_run(spec: JobSpec, facts: Facts, topology: Topology, say: Say) -> tuple[Plan, list[Outcome]]:
    """The plan as far as it can be known without the other nodes, and everything that `run` would refuse.

    Raises EntrypointError where there can be no plan at all.
    """
    members = planning.assume_members(topology, facts)
    plan, refused = planning.settle(spec, facts, topology, members), []
    if plan.launch.needs_rank_table:
        try:
            cards = rank_table.look(facts, topology, say)
            plan = planning.settle(spec, facts, topology, replace(members, cards=cards))
        except EntrypointError as error:
            refused.append(_outcome(error))
    outcomes = (
        machine(spec, plan)[0],
        login(spec, facts, plan),
        launcher(facts, plan.launch),
        programs(spec, facts, plan),
    )
    return plan, [outcome for outcome in outcomes if outcome] + refused


def machine(spec: JobSpec, plan: Plan) -> tuple[Outcome | None, list[str]]:
    """Before anything starts: what this container lacks, and warnings."""
    try:
        planning.check_device(spec, plan)
        return None, preflight.check(plan)
    except EntrypointError as error:
        return _outcome(error), []


def login(spec: JobSpec, facts: Facts, plan: Plan) -> Outcome | None:
    """Before the roll call: keys that are not there or too weak, or no sshd that could work."""
    if plan.mode != "coordinated":
        return None
    try:
        keys.load(spec, plan.topology)
        sshd.check(facts)
    except EntrypointError as error:
        return _outcome(error)
    return None


def launcher(facts: Facts, launch: Launch) -> Outcome | None:
    """At the roll call: what the launcher itself needs here and cannot be started."""
    path = facts.env.get("PATH", "")
    if mpirun := shutil.which("mpirun", path=path):
        path += f":{os.path.dirname(os.path.realpath(mpirun))}"  # where mpirun looks for its daemon, too
    for name in launch.needs_programs:
        try:
            process.check((name,), {"PATH": path}, os.getcwd())
        except OSError as error:
            return process.cannot_start((name,), error)
    return None


def programs(spec: JobSpec, facts: Facts, plan: Plan) -> Outcome | None:
    """When programs and ranks start: the first of them that cannot."""
    # A program that we become looks for its script itself.
    unread = None if plan.mode == "exec" else process.cannot_read(spec.command, plan.workdir)
    ranks = (Program(spec.command),) if plan.launch.reports == "ranks" else ()  # they start here, whoever starts them
    refused = (program(facts, plan, each) for each in (*plan.launch.programs, *ranks))
    return unread or next(filter(None, refused), None)


def program(facts: Facts, plan: Plan, program: Program) -> Outcome | None:
    """When a program of this node starts: it is not there, cannot be executed, or has no working directory."""
    env = planning.environment(facts.env, (*plan.env, *program.env))
    try:
        process.check(program.argv, env, plan.workdir)
    except OSError as error:
        return process.cannot_start(program.argv, error)
    return None


def _outcome(error: EntrypointError) -> Outcome:
    return Outcome(error.status, str(error))
