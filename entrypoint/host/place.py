"""Another place for the few files that sshd needs, where the run directory takes none: a full disk, a read-only one.

A node that nobody can call cannot say why it does not take part; the others would wait for it until their deadline.
"""

from __future__ import annotations

from dataclasses import replace

from entrypoint.errors import EntrypointError
from entrypoint.host.files import Busy, RunDir
from entrypoint.model import Facts, Outcome, Plan
from entrypoint.plan import settle as settle_plan
from entrypoint.spec import JobSpec

_ROOM = 64 * 1024  # bytes: keys, sshd's configuration, and what makes a session of it
# Memory first: an engine gives each container its own, also where all else is read-only.
_PLACES = ("/dev/shm", "/tmp", "/var/tmp", "/run")


def settle(spec: JobSpec, facts: Facts, draft: Plan) -> tuple[Plan, Outcome | None]:
    """The plan, in another run directory where its own cannot be used, and why that is so.

    Where no other can be used either, it is the plan as it was.
    """
    why = _unusable(draft.topology.run_dir)
    if why is None:
        return draft, None
    outcome = Outcome(why.status, str(why))
    # One that is in use tells of another entrypoint in this container, in whose name this one must not speak.
    for place in () if isinstance(why, Busy) else (*_PLACES, facts.home):
        run_dir = f"{place}/entrypoint-{facts.uid}-{draft.topology.this.ssh_port}-{draft.topology.me}"
        if place and _unusable(run_dir) is None:
            return settle_plan(spec, facts, replace(draft.topology, run_dir=run_dir), draft.members), outcome
    return draft, outcome


def _unusable(path: str) -> EntrypointError | None:
    try:
        run_dir = RunDir(path)
        try:
            run_dir.write("room", bytes(_ROOM), 0o600)
        finally:
            run_dir.close()
    except EntrypointError as error:
        return error
    return None
