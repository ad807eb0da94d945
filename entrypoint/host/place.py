"""Another place for the few files that sshd needs, if the run directory cannot be written (full or read-only).

A node without sshd could not tell the others why it is not ready; they would wait for it until their deadline.
"""

from __future__ import annotations

from dataclasses import replace

from entrypoint.errors import EntrypointError
from entrypoint.host.files import Busy, RunDir
from entrypoint.model import Facts, Outcome, Plan
from entrypoint.plan import settle as settle_plan
from entrypoint.spec import JobSpec

_ROOM = 64 * 1024  # bytes: keys, sshd's configuration, and the files for a session
# /dev/shm first: each container has its own, and can write it even if all else is read-only.
_PLACES = ("/dev/shm", "/tmp", "/var/tmp", "/run")


def settle(spec: JobSpec, facts: Facts, draft: Plan) -> tuple[Plan, Outcome | None]:
    """The plan, with another run directory if its own cannot be used, and why it cannot.

    If no other can be used either, the plan stays as it was.
    """
    why = _unusable(draft.topology.run_dir)
    if why is None:
        return draft, None
    outcome = Outcome(why.status, str(why))
    # If the run directory is in use, another entrypoint runs in this container; this one must not answer for it.
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
