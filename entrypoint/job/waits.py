"""The rules that leader and worker share without a message: how long one waits for the other, and
which calls are for another node."""

from __future__ import annotations

import math

from entrypoint import __version__
from entrypoint.base.model import Topology
from entrypoint.job.messages import OTHER_JOB, Hello

KILL_MARGIN = 2.0  # seconds after the grace until killed processes are gone
# seconds that a peer may be the wrong one (a stale address, an old container) before we believe it
SURE = 10.0
REJOIN, _REJOIN_EACH = 3.0, 0.01  # seconds, and those for each node: see `rejoin`


def rejoin(nodes: int) -> float:
    """Seconds in which a node that has ended an attempt boots the next one: a stop between the two
    is told to whoever comes until then. With the goodbyes that follow, that is 5 s.
    """
    return REJOIN + _REJOIN_EACH * nodes


class Misdirected:
    """Calls that come here and are for another node of this very job. The leader's address of that
    node may be stale, so only calls that go on show a mistake, such as one index for two nodes.
    """

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._since = math.inf

    @property
    def words(self) -> str:
        """Return what the leader is answered."""
        return f"that is {self._topology.this.label} of this job"

    def why(self, hello: Hello, now: float) -> str:
        """Return why a call is not for this node; "" if it is, or by now is a mistake."""
        job_id = self._topology.job_id
        # The leader's job has the same name and secret, and a node of its own at another port here.
        if job_id and hello.job and hello.job != job_id:
            return OTHER_JOB
        if (
            hello.rank == self._topology.me
            or hello.toolkit != __version__
            or hello.hosts != self._topology.hosts
        ):
            self._since = math.inf
            return ""
        self._since = min(self._since, now)
        return self.words if now - self._since <= SURE else ""
