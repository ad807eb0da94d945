"""Checks of this node with which `run` refuses to start, one function for each moment.

`plan` calls all but `run_dir`, which writes. None needs the network.
"""

from __future__ import annotations

import errno
import os

from entrypoint.base import interfaces
from entrypoint.base.errors import ConfigError, EntrypointError
from entrypoint.base.model import Facts, Launch, Outcome, Plan, Program
from entrypoint.base.text import Log
from entrypoint.base.values import replace
from entrypoint.plan import environment, settle, warnings, with_installed
from entrypoint.spec import JobSpec
from entrypoint.system import keys, preflight, process, sshd
from entrypoint.system.files import RunDir, RunDirTaken, explained

# bytes in the run directory: keys, sshd's configuration, and the files for a session
_ROOM = 64 * 1024
_FILES = 16  # number of these files, pipes and sockets
# Other folders for it. /dev/shm first: each container has its own, writable even if the rest is
# read-only.
_PLACES = ("/dev/shm", "/tmp", "/var/tmp", "/run")


def dry_run(spec: JobSpec, facts: Facts, plan: Plan, log: Log) -> tuple[Plan, list[Outcome]]:
    """Return the plan as far as it is known without the other nodes, and everything that `run`
    would refuse."""
    refused = []
    if plan.launch.needs_rank_table:
        from entrypoint.ranktable import NotReady
        from entrypoint.system import rank_table

        try:
            cards = rank_table.look(facts, plan.topology, log)
            plan = settle(spec, facts, plan.topology, replace(plan.members, cards=cards))
        except NotReady:
            pass  # the run waits for it
        except EntrypointError as error:
            refused.append(error.outcome)
    outcomes = (
        machine(spec, facts, plan, lambda text: None),
        login(spec, facts, plan),
        launcher(facts, plan.launch),
        programs(spec, facts, plan),
    )
    return plan, [*filter(None, outcomes), *refused]


def machine(spec: JobSpec, facts: Facts, plan: Plan, log: Log) -> Outcome | None:
    """Return why this container cannot take part, before anything starts. Warnings are only
    logged."""
    try:
        _check_device(spec, plan)
        _check_interface(spec, facts, plan)
        for warning in (*preflight.check(plan), *warnings(spec, plan)):
            log(f"warning: {warning}")
    except EntrypointError as error:
        return error.outcome
    return None


def run_dir(spec: JobSpec, facts: Facts, draft: Plan) -> tuple[Plan, Outcome | None]:
    """Return the plan, with another run directory if its own is unusable, and why that is, before
    the roll call.

    A node without sshd could not report why it is not ready; the others would wait for it until
    their deadline. If no other directory can be used either, the plan is unchanged.
    """
    error = _unusable(draft.topology.run_dir)
    if error is None:
        return draft, None
    # If another entrypoint runs in this container, this one must not answer for it.
    other = None if isinstance(error, RunDirTaken) else elsewhere(spec, facts, draft)
    return other or draft, error.outcome


def elsewhere(spec: JobSpec, facts: Facts, draft: Plan) -> Plan | None:
    """Return the plan with another run directory that can be used; None if there is none."""
    topology = draft.topology
    for place in (*_PLACES, facts.home):
        other = f"{place}/entrypoint-{facts.uid}-{topology.this.ssh_port}-{topology.me}"
        if place and other != topology.run_dir and _unusable(other) is None:
            plan = settle(spec, facts, replace(topology, run_dir=other), draft.members)
            return replace(plan, inquiry=draft.inquiry)
    return None


def login(spec: JobSpec, facts: Facts, plan: Plan) -> Outcome | None:
    """Check the keys and sshd, before the roll call."""
    if plan.mode != "coordinated":
        return None
    try:
        keys.load(spec, plan.topology)
        sshd.check(facts)
    except EntrypointError as error:
        return error.outcome
    return None


def launcher(facts: Facts, launch: Launch) -> Outcome | None:
    """Check that this node has what the launcher needs, at the roll call."""
    if (
        launch.needs_ipv4
        and facts.interfaces
        and all(":" in interface.address for interface in facts.interfaces)
    ):
        summary, hint = launch.needs_ipv4
        hint = f"give the containers IPv4 addresses, too, {hint}"
        return ConfigError(f"EP405 {summary}", _addresses(facts), hint).outcome
    path = with_installed(facts, launch.ranks.name).get("PATH", "")
    for name in launch.needs_programs:
        if refused := process.check((name,), {"PATH": path}, os.getcwd()):
            return replace(refused, reason=f"{refused.reason} (`launcher: plain` needs none)")
        if file := process.which(name, path):
            # it also searches this folder for its programs
            path += f":{os.path.dirname(os.path.realpath(file))}"
    return None


def programs(spec: JobSpec, facts: Facts, plan: Plan) -> Outcome | None:
    """Return the outcome of the first program or rank that cannot start, when they start."""
    # In mode exec this process becomes the program, which reports a missing script itself.
    unread = None if plan.mode == "exec" else process.cannot_read(spec.command, plan.workdir)
    # they start here, too
    ranks = (Program(spec.command),) if plan.launch.ranks.kind.by_daemons else ()
    refused = (program(facts, plan, entry) for entry in (*plan.launch.programs, *ranks))
    return unread or next(filter(None, refused), None)


def program(facts: Facts, plan: Plan, program: Program) -> Outcome | None:
    """Check that a program of this node and its working directory exist, and it can be executed."""
    return process.check(
        program.argv, environment(facts.env, (*plan.env, *program.env)), plan.workdir
    )


def _check_device(spec: JobSpec, plan: Plan) -> None:
    """Refuse a node without the device that was asked for, or with fewer accelerators than ranks
    that need one each.

    On a CPU such a job would run for days before anybody notices.
    """
    topology = plan.topology
    device = topology.device
    give = (
        "give the container its devices (docker run --gpus all, --device /dev/davinci0; in"
        " Kubernetes a resource)"
    )
    # Platforms give a parameter server no device.
    if spec.device and spec.device != "cpu" and not device.count and topology.this.task != "ps":
        summary = (
            f"EP400 device {spec.device} is requested but not in this container"
            f" ({spec.source('device')})"
        )
        raise ConfigError(summary, device.origin, f"{give}, or set device: cpu")
    slots = topology.this.slots
    # With a rank table, ranks and devices are compared when the table is complete.
    if (
        0 < device.count < slots
        and plan.launch.ranks.count is not None
        and not plan.launch.needs_rank_table
    ):
        summary = (
            f"EP401 {slots} ranks on this node, but fewer accelerators ({topology.origin('slots')})"
        )
        hint = f"{give}, set slots to {device.count}, or set device: cpu if ranks share them"
        raise ConfigError(summary, f"{device.count} of device {device.kind}: {device.origin}", hint)


def _check_interface(spec: JobSpec, facts: Facts, plan: Plan) -> None:
    """Refuse a node without the configured network interface: its ranks would wait for the others,
    or fail."""
    name = spec.network.asked
    if name and interfaces.pick(facts.interfaces, name) is None:
        summary = (
            f"EP403 {plan.topology.name(plan.topology.me)} has no network interface {name}"
            f" ({spec.source('network.interface')})"
        )
        hint = (
            "name one that is up and has an address, by its network where nodes have other names"
            " for it, or none"
        )
        raise ConfigError(
            summary, f"it has {_addresses(facts) or 'none that is up and has an address'}", hint
        )


def _addresses(facts: Facts) -> str:
    return ", ".join(f"{interface.name} {interface.address}" for interface in facts.interfaces)


def _unusable(path: str) -> EntrypointError | None:
    try:
        directory = RunDir(path)
        try:
            directory.write("room", bytes(_ROOM), 0o600)
            with explained(directory.path / "room"):
                about = os.statvfs(path)
                # some file systems have no fixed number, and report none
                if about.f_files and about.f_favail < _FILES:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finally:
            directory.close()
    except EntrypointError as error:
        return error
    return None
