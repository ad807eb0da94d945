"""No launcher: the program itself, once on each node, its arguments untouched."""

from __future__ import annotations

from entrypoint.jobspec import JobSpec
from entrypoint.model import Launch, Program, Roster, Topology

ALSO = ("none", "single", "python")  # what else people call it


def plan(spec: JobSpec, topology: Topology, roster: Roster) -> Launch:
    """The command as it is."""
    return Launch((Program(spec.command),), verdict="first-failure")
