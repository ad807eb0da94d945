"""The phases of a node: one list for the machine, the status, the metrics and the timeline; and
which follows which.

A node's own phases follow each other without a gap, so they add up to the time that it was there.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from entrypoint.values import dataclass


class Phase(Enum):
    """A phase of a node: its name in the timeline, and its name in the status and the metrics."""

    CONTAINER = "container start", "starting"
    FACTS = "facts", "starting"
    HOOKS = "hooks", "starting"
    CHECKS = "checks", "starting"
    EARLIER = "earlier attempts", "starting"
    KEYS = "keys", "starting"
    SSHD = "sshd", "starting"
    ROLL_CALL = "roll call", "roll call"
    INQUIRY = "inquiry", "inquiry"
    FILES = "files", "files"
    WAITING = "others", "joined"
    SPARE = "spare", "spare"
    LAUNCHING = "launch", "launching"
    OUTPUT = "first output", "running"
    RUNNING = "run", "running"
    ENDING = "end", "ending"
    STOPPED = "release", "ending"
    RELEASED = "release", "released"
    ENDED = "", "ended"
    MISSING = "", "missing"
    LOST = "", "lost"

    @property
    def timeline(self) -> str:
        """Its name in the timeline; "" where it has none."""
        return self.value[0]

    @property
    def status(self) -> str:
        """Its name in the status and in the metrics."""
        return self.value[1]


ALLOWED: Mapping[Phase, tuple[Phase, ...]] = {
    Phase.CHECKS: (Phase.KEYS, Phase.FILES),
    Phase.KEYS: (Phase.SSHD, Phase.INQUIRY, Phase.ENDING, Phase.ENDED),
    Phase.SSHD: (Phase.ROLL_CALL, Phase.FILES, Phase.INQUIRY, Phase.ENDING, Phase.ENDED),
    Phase.ROLL_CALL: (Phase.INQUIRY, Phase.FILES, Phase.ENDING, Phase.ENDED),
    Phase.INQUIRY: (
        Phase.ROLL_CALL,
        Phase.FILES,
        Phase.LAUNCHING,
        Phase.ENDING,
        Phase.RELEASED,
    ),
    Phase.FILES: (Phase.WAITING, Phase.INQUIRY, Phase.LAUNCHING, Phase.ENDING, Phase.ENDED),
    Phase.WAITING: (
        Phase.ROLL_CALL,
        Phase.FILES,
        Phase.INQUIRY,
        Phase.SPARE,
        Phase.LAUNCHING,
        Phase.ENDING,
        Phase.RELEASED,
    ),
    Phase.SPARE: (Phase.ENDING, Phase.RELEASED),
    Phase.LAUNCHING: (Phase.OUTPUT, Phase.RUNNING, Phase.ENDING, Phase.RELEASED),
    Phase.OUTPUT: (Phase.RUNNING, Phase.ENDING, Phase.RELEASED),
    Phase.RUNNING: (Phase.ENDING, Phase.RELEASED),
    Phase.ENDING: (Phase.STOPPED, Phase.RELEASED),
    Phase.STOPPED: (Phase.RELEASED, Phase.ENDED),
    Phase.RELEASED: (Phase.ENDED,),
}
"""A node's own phases in one attempt, and those that may follow each. A machine that enters another
has a defect."""

ALLOWED_OF_OTHERS: Mapping[Phase, tuple[Phase, ...]] = {
    Phase.MISSING: (Phase.ROLL_CALL, Phase.WAITING),
    Phase.ROLL_CALL: (Phase.MISSING, Phase.RUNNING, Phase.ENDING),
    Phase.WAITING: (
        Phase.MISSING,
        Phase.SPARE,
        Phase.LAUNCHING,
        Phase.RUNNING,
        Phase.ENDING,
        Phase.RELEASED,
        Phase.LOST,
    ),
    Phase.SPARE: (Phase.ENDING, Phase.RELEASED, Phase.LOST),
    Phase.LAUNCHING: (Phase.RUNNING, Phase.ENDING, Phase.LOST),
    Phase.RUNNING: (Phase.ENDING, Phase.RELEASED, Phase.LOST),
    Phase.ENDING: (Phase.RELEASED, Phase.LOST),
    Phase.RELEASED: (Phase.ENDED, Phase.LOST),
    Phase.LOST: (Phase.WAITING,),
}
"""The same of another node, as this one believes it to be. Anything else comes too late, and is
ignored."""

DNS = "DNS"
MEANING: Mapping[str, str] = {
    Phase.CONTAINER.timeline: "until the entrypoint was started in the container",
    Phase.FACTS.timeline: "Python, the spec, what this container is, the plan",
    Phase.HOOKS.timeline: "start hooks",
    Phase.CHECKS.timeline: "what this machine lacks",
    Phase.EARLIER.timeline: "attempts before the last one",
    Phase.KEYS.timeline: "the job's keys",
    Phase.SSHD.timeline: "until sshd listened",
    Phase.ROLL_CALL.timeline: (
        "on worker-0 until all nodes had answered, on others until worker-0 had asked"
    ),
    Phase.INQUIRY.timeline: (
        "`check --all` and `netcheck`: until the nodes had answered what worker-0 asked"
    ),
    Phase.FILES.timeline: "what the ranks need here was written",
    Phase.WAITING.timeline: "this node had answered and waited for the others",
    Phase.SPARE.timeline: "this node waited, to take the place of one that is lost",
    Phase.LAUNCHING.timeline: "until the first program or rank started here",
    Phase.OUTPUT.timeline: "until the first program or rank printed",
    Phase.RUNNING.timeline: "programs and ranks",
    Phase.ENDING.timeline: "until nothing of the job ran here",
    Phase.RELEASED.timeline: "until all nodes knew the result",
}
"""The names in the timeline in their order, and what each is; DNS is of a peer alone."""
NAMES = (*MEANING, DNS)

UNRESOLVED = "names"
"""The status of a node in the roll call that needs a host name without an address."""
STATUSES: Mapping[str, str] = {
    Phase.KEYS.status: "it opens its control endpoint and starts sshd",
    UNRESOLVED: "a host name that it needs has no address yet",
    Phase.ROLL_CALL.status: "the leader calls the others; a worker waits for its call",
    Phase.MISSING.status: (
        "another node that has not answered yet; the detail says what was seen of it"
    ),
    Phase.WAITING.status: "it has answered the roll call",
    Phase.INQUIRY.status: (
        "nodes answer what `check --all` asks, or measure the network between them"
    ),
    Phase.FILES.status: "all nodes are there, and the leader writes what the ranks need",
    Phase.SPARE.status: "it waits, to take the place of a node that is lost",
    Phase.LAUNCHING.status: "it was told to start, and none of its ranks has reported yet",
    Phase.RUNNING.status: "its ranks or programs have started",
    Phase.ENDING.status: "the job's result is known, and its programs are stopped",
    Phase.RELEASED.status: "it was told the job's result",
    Phase.LOST.status: (
        "its session has ended, or it was silent for longer than the heartbeat timeout"
    ),
    Phase.ENDED.status: "its part of the job is over",
}
"""The names in the status and the metrics in the usual order, and what each means."""

UNREACHABLE = (Phase.MISSING.status, Phase.LOST.status)
"""Those of a node that cannot be reached."""


@dataclass(frozen=True)
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
        """How long it took."""
        return self.end - self.start
