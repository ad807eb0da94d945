"""No launcher: the program itself, once on each node, its arguments untouched."""

from __future__ import annotations

from entrypoint.model import File, JobSpec, Launch, Roster, Topology


def plan(spec: JobSpec, topology: Topology, roster: Roster) -> Launch:
    """The command as it is."""
    return Launch(argv=spec.command, verdict="first-failure")


def scripts(spec: JobSpec, topology: Topology, roster: Roster, origin: str) -> tuple[File, ...]:
    """Nothing to render: the command is the job."""
    return ()
