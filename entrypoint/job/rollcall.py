"""The roll call as the leader knows it: who is missing and why, who refuses, and whether all are there."""

from __future__ import annotations

from entrypoint.errors import ConfigError, RefusedError, UnavailableError
from entrypoint.job import actions, events
from entrypoint.job.analysis import named, short
from entrypoint.job.machine import Machine
from entrypoint.model import Topology

HEAR_ALL = 2.0  # seconds to wait, after one node disagrees, for others that disagree too
_SURE = 10.0  # seconds that a peer may show a wrong key (a stale address, an old container) before we believe it


class RollCall:
    """What is known of the peers before all have answered. `over`: nobody is called any more."""

    def __init__(self, machine: Machine) -> None:
        self._act = machine.act
        self._missing: dict[str, str] = {}  # host -> why, in words; "" once it is there
        self._disagreed: dict[str, events.Disagreed] = {}
        self._refused: dict[str, float] = {}  # host -> since when
        self.own_name = False  # whether this node's own name has an address
        self.over = False

    def miss(self, host: str, why: str) -> None:
        """Note why a peer is not there; "" once it is."""
        self._missing[host] = why
        if not why:
            self._refused.pop(host, None)
        self._act(actions.Missing(host, why))

    def missing(self, but: str = "") -> str:
        """All that are missing, in words."""
        return named({host: why for host, why in self._missing.items() if why and host != but})

    def unreached(self, host: str, event: events.Unreached, now: float) -> None:
        """A login failed. Raises RefusedError once it is sure that the peer belongs to another job."""
        self._missing[host] = event.why
        self._act(actions.Missing(host, event.why))
        since = self._refused.setdefault(host, now)
        if not event.refused:
            del self._refused[host]
        elif now - since > _SURE:
            # The message also names all others that are missing, and why.
            also = f"; also missing: {others}" if (others := self.missing(but=host)) else ""
            do = "give all nodes the same secret and job name"
            raise RefusedError(f"{host} is not of this job", f"{event.why}{also}", do)

    def disagreed(self, host: str, event: events.Disagreed) -> None:
        """A peer has answered that it cannot be of this job."""
        self._disagreed[host] = event
        self.miss(host, "")

    def is_complete(self, answered: int, peers: int) -> bool:
        """Whether all are there. Raises ConfigError where all have answered, and some refuse."""
        if self._disagreed and answered + len(self._disagreed) == peers:
            self.disagree()
        return answered == peers and self.own_name

    def disagree(self) -> None:
        """Raise ConfigError that names every node that disagrees. The end of their sessions tells the other nodes."""
        if self.over:
            return
        wrong = list(self._disagreed.values())
        also = f"; also missing: {missing}" if (missing := self.missing()) else ""
        seen = "; ".join(each.seen for each in wrong) + also
        raise ConfigError("; ".join(each.what for each in wrong), seen, wrong[0].do)

    def out_of_time(self, limit: float, own: str, peers: int) -> UnavailableError:
        """Why it failed, once `limit` seconds have passed; `own`: this node's name, among so many peers."""
        if not self.own_name:
            what = f"this node's own name has no address after {limit:.0f}s"
            return UnavailableError(what, own, "see that DNS knows it")
        number = sum(bool(why) for why in self._missing.values())
        what = f"{number} of {peers} peers did not answer within {limit:.0f}s"
        do = "see that they run, or wait longer: ENTRYPOINT_TIMEOUTS_PEERS, in seconds"
        return UnavailableError(what, self.missing(), do)

    def close(self) -> None:
        """Call nobody any more."""
        if not self.over:
            self.over = True
            self._act(actions.StopCalling())


def two_leaders(topology: Topology, theirs: tuple[str, ...]) -> tuple[str, str, str]:
    """What, seen, do: another node with these hosts leads, too; both know the hosts in another order."""
    hosts, theirs = [node.host for node in topology.nodes], theirs or ("another node",)
    seen = f"{short(hosts)} on {topology.this.host}, {short(theirs)} on {theirs[0]}"
    return "two nodes believe to be the first", seen, "give all nodes the same hosts, in the same order"
