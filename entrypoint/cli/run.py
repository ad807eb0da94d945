"""`entrypoint run`: boot this node's part of the job."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from entrypoint.base.model import Facts, Outcome, Topology
from entrypoint.base.values import replace
from entrypoint.cli import has_own_start, inputs
from entrypoint.cli.parser import NAMES, PROGRAM, Command
from entrypoint.output.log import Logger
from entrypoint.spec import JobSpec

if TYPE_CHECKING:
    from entrypoint.cli.features import Finish, Record

_OF_TORCH = ("ENTRYPOINT_TORCH_", "MASTER_PORT", "TORCHRUN_", "TORCHLAUNCH_")

COMMAND = Command(
    "boot this node's part of the job, and exit with the job's status",
    PROGRAM,
    ("--passthrough  if nothing describes a job, run only PROGRAM, unchanged",),
)


def act(args: argparse.Namespace, log: Logger) -> int:
    """Boot this node. Returns its exit status in the job."""
    if (started := _image_start(log)) is not None:
        return started
    from entrypoint.cli.features import finishing, recorded
    from entrypoint.system import process
    from entrypoint.system.signals import StoppedBySignal

    process.show(process.WAITING)
    done = ""  # what is logged of a success
    try:
        with finishing(log) as finish, recorded(log) as record:
            finish.record = record
            outcome, done = _boot(args, record, finish, log)
    except StoppedBySignal as stop:
        outcome = stop.outcome
    _log_cause(outcome, log)
    if outcome.status:
        log(f"{outcome.reason}; exit {outcome.status}")
    elif done:
        log(f"{done}: {outcome.reason}")
    return outcome.status


def _boot(
    args: argparse.Namespace, record: Record, finish: Finish, log: Logger
) -> tuple[Outcome, str]:
    """Boot this node, and end its record. Return the outcome, and the words for a success, if it
    is worth a line. Raises EntrypointError and StoppedBySignal."""
    from entrypoint.cli.features import after_failure, extensions
    from entrypoint.system import process
    from entrypoint.system.signals import Signals

    signals = Signals(log)
    signals.watch()  # before anything slow
    from entrypoint.plan import located, settle
    from entrypoint.system.facts import of_job, read

    spec, facts = inputs.with_program(args, inputs.spec(args)[0]), read()
    log.shape(spec.logs)
    process.hide_memory()  # not before: then only root reads /proc/self/environ
    if args.passthrough and not _describes_job(spec, facts):
        outcome = process.replace(spec.command, facts.env, facts.cwd)
        record.end(outcome)
        hint = f" | did you mean: entrypoint {spec.command[0]}?" if spec.command[0] in NAMES else ""
        return replace(outcome, reason=f"{outcome.reason}{hint}"), ""
    spec, topology = located(spec, facts)
    finish.about(spec, topology, signals)
    of_this_job = of_job(facts)  # mpirun answers while we import
    from entrypoint.node import deadline, execute

    signals.deadline = deadline(spec, topology.ends)
    facts = of_this_job()
    spec, topology = inputs.assembled(spec, facts, topology, signals, log)
    finish.about(spec, topology, signals)
    record.about(topology)
    _name_lines(log, spec, topology)
    draft = settle(spec, facts, topology)
    finish.begins(facts, draft)
    outcome = execute(spec, facts, draft, signals, log, extensions(spec, record, log))
    record.end(outcome)
    if outcome.status:
        after_failure(outcome, spec, facts, draft, log)
    done = "this node's part is done" if spec.roll_call == "none" else "done"
    return outcome, done if len(topology.nodes) > 1 else ""


def _image_start(log: Logger) -> int | None:
    """Run the image's own start first, if it has one that has not run: a scheduler may start this
    without the image's ENTRYPOINT. Returns its status, or None if it has none to run."""
    if not has_own_start():
        return None
    from entrypoint.system.image.start import run_first

    return run_first(("entrypoint", *sys.argv[1:]), log)


def _log_cause(outcome: Outcome, log: Logger) -> None:
    """Log why the job failed, if that is known."""
    if outcome.cause:
        from entrypoint.causes.phrase import as_json, phrase

        fields = as_json(outcome.cause)
        del fields["text"]  # each line has one
        log(f"cause: {phrase(outcome.cause)}", fields)


def _name_lines(log: Logger, spec: JobSpec, topology: Topology) -> None:
    """Let each line of the log name this node, as `prefix` asks."""
    this = topology.this
    log.about(topology)
    if spec.prefix == "job":
        log.name = f"{topology.job} {this.label} {this.host}"
    elif len(topology.nodes) > 1:
        log.name = this.label


def _describes_job(spec: JobSpec, facts: Facts) -> bool:
    """Return whether anything but the program is given: a spec, a setting, or a platform's
    variables."""
    from entrypoint import spec as specs
    from entrypoint.plan.topology import starts_any_program

    # Torch's own variables do not count: programs that start on their own have MASTER_PORT and the
    # like, too.
    given, secrets = specs.given(spec)
    settings = [name for name in given if not name.startswith(_OF_TORCH)]
    if settings or specs.settings_in(inputs.environ()) or secrets:
        return True
    return not starts_any_program(facts)
