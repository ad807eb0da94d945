"""What a node records of its boot: phases, in seconds of its own monotonic clock.

A node's own phases follow each other without a gap, so they add up to the time that it was there.
"""

from __future__ import annotations

from entrypoint.values import dataclass

CONTAINER, FACTS, HOOKS, CHECKS, EARLIER = "container start", "facts", "hooks", "checks", "earlier attempts"
KEYS, SSHD, ROLL_CALL, FILES, OTHERS = "keys", "sshd", "roll call", "files", "others"
LAUNCH, OUTPUT, RUN, END, RELEASE = "launch", "first output", "run", "end", "release"
DNS = "DNS"
MEANING = {
    CONTAINER: "until the entrypoint was started in the container",
    FACTS: "Python, the spec, what this container is, the plan",
    HOOKS: "start hooks",
    CHECKS: "what this machine lacks",
    EARLIER: "attempts before the last one, and a network check before the program",
    KEYS: "the job's keys",
    SSHD: "until sshd listened",
    ROLL_CALL: "on worker-0 until all nodes had answered, on others until worker-0 had asked",
    FILES: "what the ranks need here was written",
    OTHERS: "this node had answered and waited for the others",
    LAUNCH: "until the first program or rank started here",
    OUTPUT: "until the first program or rank printed",
    RUN: "programs and ranks",
    END: "until nothing of the job ran here",
    RELEASE: "until all nodes knew the result",
}
"""A node's own phases in their order, and what each is; DNS is of a peer alone."""
NAMES = (*MEANING, DNS)


@dataclass(frozen=True)
class Phase:
    """`about`: the peer or the rank that it is of; "" where it is the node's own."""

    name: str
    start: float
    end: float
    about: str = ""

    @property
    def seconds(self) -> float:
        return self.end - self.start
