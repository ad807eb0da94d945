"""The phases of a node: one list for the machine, the status, the metrics and the timeline; and
which follows which.

A node's own phases follow each other without a gap, so they add up to the time that it was there.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from entrypoint.base.tables import table
from entrypoint.base.values import frozen


class Phase(Enum):
    """A phase of a node: its name in the timeline, its name in the status and the metrics, and
    what it is in the timeline."""

    CONTAINER = "container start", "starting", "until the entrypoint was started in the container"
    FACTS = "facts", "starting", "Python, the spec, what this container is, the plan"
    HOOKS = "hooks", "starting", "start hooks"
    CHECKS = "checks", "starting", "what this machine lacks"
    EARLIER = "earlier attempts", "starting", "attempts before the last one"
    KEYS = "keys", "starting", "the job's keys"
    SSHD = "sshd", "starting", "until sshd listened"
    ROLL_CALL = (
        "roll call",
        "roll call",
        "on worker-0 until all nodes had answered, on others until worker-0 had asked",
    )
    INQUIRY = (
        "inquiry",
        "inquiry",
        "`check --all` and `netcheck`: until the nodes had answered what worker-0 asked",
    )
    FILES = "files", "files", "what the ranks need here was written"
    WAITING = "others", "joined", "this node had answered and waited for the others"
    SPARE = "spare", "spare", "this node waited, to take the place of one that is lost"
    LAUNCHING = "launch", "launching", "until the first program or rank started here"
    OUTPUT = "first output", "running", "until the first program or rank printed"
    RUNNING = "run", "running", "programs and ranks"
    ENDING = "end", "ending", "until nothing of the job ran here"
    STOPPED = "release", "ending", "until all nodes knew the result"
    RELEASED = "release", "released", "until all nodes knew the result"
    ENDED = "", "ended", ""
    MISSING = "", "missing", ""
    LOST = "", "lost", ""

    def __init__(self, timeline: str, status: str, meaning: str) -> None:
        self.timeline = timeline
        self.status = status
        self.meaning = meaning


def _followers(text: str) -> Mapping[Phase, tuple[Phase, ...]]:
    """Return the phases that may follow each phase, from a row for each: `KEYS | SSHD INQUIRY`."""
    return {
        Phase[phase]: tuple([Phase[name] for name in names.split()])
        for phase, names in table(text).items()
    }


ALLOWED = _followers("""
    CHECKS | KEYS FILES
    KEYS | SSHD INQUIRY ENDING ENDED
    SSHD | ROLL_CALL FILES INQUIRY ENDING ENDED
    ROLL_CALL | INQUIRY FILES ENDING ENDED
    INQUIRY | ROLL_CALL FILES LAUNCHING ENDING RELEASED
    FILES | WAITING INQUIRY LAUNCHING ENDING ENDED
    WAITING | ROLL_CALL FILES INQUIRY SPARE LAUNCHING ENDING RELEASED
    SPARE | ENDING RELEASED
    LAUNCHING | OUTPUT RUNNING ENDING RELEASED
    OUTPUT | RUNNING ENDING RELEASED
    RUNNING | ENDING RELEASED
    ENDING | STOPPED RELEASED
    STOPPED | RELEASED ENDED
    RELEASED | ENDED
""")
"""A node's own phases in one attempt, and those that may follow each. A machine that enters another
has a defect."""

ALLOWED_OF_OTHERS = _followers("""
    MISSING | ROLL_CALL WAITING
    ROLL_CALL | MISSING RUNNING ENDING
    WAITING | MISSING SPARE LAUNCHING RUNNING ENDING RELEASED LOST
    SPARE | ENDING RELEASED LOST
    LAUNCHING | RUNNING ENDING LOST
    RUNNING | ENDING RELEASED LOST
    ENDING | RELEASED LOST
    RELEASED | ENDED LOST
    LOST | WAITING
""")
"""The same of another node, as this one believes it to be. Anything else comes too late, and is
ignored."""

DNS = "DNS"
MEANING = {phase.timeline: phase.meaning for phase in Phase if phase.timeline}
"""The names in the timeline in their order, and what each is; DNS is of a peer alone."""
NAMES = (*MEANING, DNS)

UNRESOLVED = "names"
"""The status of a node in the roll call that needs a host name without an address."""
STATUSES = (
    "starting", UNRESOLVED, "roll call", "missing", "joined", "inquiry", "files", "spare",
    "launching", "running", "ending", "released", "lost", "ended",
)  # fmt: skip
"""The names in the status and the metrics in the usual order: docs/reference/status.md has their
meaning."""

UNREACHABLE = (Phase.MISSING.status, Phase.LOST.status)
"""Those of a node that cannot be reached."""


@frozen
class Span:
    """A phase in the timeline, from `start` to `end` in seconds of a node's monotonic clock.

    `about`: the peer or the rank that it is of; "" where it is the node's own.
    """

    name: str
    start: float
    end: float
    about: str = ""

    @property
    def seconds(self) -> float:
        """Return how long it took."""
        return self.end - self.start
