"""Failure analysis: which of the reported ends of ranks and nodes is the cause.

No clock runs here: a function whose answer is not certain yet returns how long to wait for more
reports.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import zip_longest

from entrypoint.base.cause import Cause
from entrypoint.base.errors import (
    CantCreateError,
    DeadlineError,
    HostError,
    RetryError,
    message_parts,
)
from entrypoint.base.model import Members, Node, Outcome, Topology
from entrypoint.base.text import count, duration, one_line, signal_name, spans
from entrypoint.base.values import dataclass, field, frozen, replace

# When one rank fails, the launcher ends the others, and their ends may arrive first: seconds to
# wait for all. Ranks that fail for one reason also print that meanwhile.
_SETTLE = 0.5
# Launchers end ranks by SIGTERM first: they have hardly ended one that SIGKILL has ended, and such
# a rank prints nothing. Seconds to wait for the nodes' answers, after which nothing earlier is to
# come.
KILLED = 128 + 9
_KILLED_SETTLE = 0.2
# A rank often exits with 1, Python's status for any error, only because another rank failed:
# seconds to wait for that rank's own status, which is the cause.
_VAGUE = 1
VAGUE_SETTLE = 2.0
TERMINATED = 128 + 15
# The higher, the less likely the cause: launchers end ranks by SIGTERM, and seldom by SIGKILL.
_BLAME = {TERMINATED: 3, _VAGUE: 2, KILLED: 1}
_LONG = 80  # characters of a value in a sentence
LEFT = "node-left"
UNHEALTHY = Cause("node-unhealthy", "root", "node", "elsewhere", "high", "a node is not healthy")
"""The cause of a job that ends because a node has not passed its gate."""


@frozen
class ProgramExit:
    """The end of a program: its status, its name, a sentence with both, and the last lines it
    printed."""

    status: int
    what: str
    reason: str
    tail: tuple[str, ...] = ()


class Failures(list[ProgramExit]):
    """The failed ends of ranks and programs that were reported so far, oldest first."""

    def of_rank(self, end: ProgramExit) -> float | None:
        """A rank failed. Returns the seconds after which `cause` is the outcome; None if that time
        runs already."""
        self.append(end)
        if len(self) > 1:
            return None
        return _KILLED_SETTLE if end.status == KILLED else _SETTLE

    def of_program(self, end: ProgramExit, others_run: bool) -> float:
        """A program failed. Returns the seconds after which `cause` is the outcome."""
        self.append(end)
        return VAGUE_SETTLE if end.status == _VAGUE and others_run else 0.0

    def cause(self) -> ProgramExit | None:
        """The failure that most likely caused the others; None if nothing failed."""
        return min(self, key=lambda each: _BLAME.get(each.status, 0), default=None)


@dataclass
class RankReports:
    """The nodes' reports of the ranks that a launcher starts: the host of each, and its status once
    it has ended."""

    asked: int = 0  # ranks that the launcher was told to start; 0: not known yet
    placed: dict[int, str] = field(default_factory=dict)  # rank -> host
    ended: dict[int, int] = field(default_factory=dict)  # rank -> status
    # host -> ranks that the hostfile gives it, in its order
    slots: Mapping[str, int] = field(default_factory=dict)
    _first: int = 0  # below it every rank has started
    _failed: int = 0  # ranks that have ended with another status than 0

    def end(self, rank: int, status: int) -> None:
        """A rank that has started has ended with this status."""
        self._failed += bool(status) - bool(self.ended.get(rank))
        self.ended[rank] = status

    def all_started(self) -> bool:
        """Return whether the ranks that were asked for have started."""
        while self._first in self.placed:
            self._first += 1
        return self._first >= self.asked

    def all_well(self) -> bool:
        """Return whether every rank has started and ended with 0: no later end of the launcher
        changes that."""
        return self.all_started() and len(self.ended) >= len(self.placed) and not self._failed

    def above_slots(self, own: str) -> list[str]:
        """The hosts, but for our own, that report more ranks than mpirun gives them where it fills
        the hostfile's slots in order: `b reports 4 ranks and has 2 slots`. Their reports may be
        about other nodes' ranks."""
        left, shares = self.asked, {}
        for host, slots in self.slots.items():
            shares[host] = min(slots, left)
            left -= shares[host]
        reported = Counter(self.placed.values())
        return [
            f"{host} reports {count(reported[host], 'rank')} and has {count(slots, 'slot')}"
            for host, slots in self.slots.items()
            if host != own and reported[host] > shares[host]
        ]

    def words(self) -> str:
        """Return how many ranks were started, and where: `1 of 4 ranks | 1 rank on 1 node: a 0`."""
        ran = placement(self.placed) if self.placed else "none ran"
        return f"{len(self.placed)} of {count(self.asked, 'rank')} | {ran}"

    def not_heard(self) -> str:
        """The first rank that has started and whose end was not reported: `rank 3 on a`."""
        rank = min(self.placed.keys() - self.ended.keys())
        return f"rank {rank} on {self.placed[rank]}"


def by_class(outcome: Outcome) -> Outcome:
    """The outcome of a program's failure with the status of its class (`failures.status: class`):
    71 or 75 if its cause is certainly the infrastructure's, so that a scheduler's retry helps."""
    if not outcome.program or not outcome.cause or not outcome.cause.is_infrastructure:
        return outcome
    kind = HostError if outcome.cause.retry == "elsewhere" else RetryError
    return replace(outcome, status=kind.status, program=False)


def lost(name: str, why: str) -> Outcome:
    """The outcome of a job that has lost the node with this name."""
    says = f"{name} is lost: {why}"
    outcome = RetryError(f"EP602 {says}").outcome
    return replace(outcome, cause=Cause("node-lost", "root", "node", "elsewhere", "high", says))


def left(name: str) -> Outcome:
    """The outcome of an attempt that ends since the node with this name leaves."""
    says = f"{name} leaves: it was told to stop (SIGTERM)"
    outcome = RetryError(f"EP611 {says}").outcome
    return replace(outcome, cause=Cause(LEFT, "root", "platform", "elsewhere", "high", says))


def unhealthy(problem: str) -> Outcome:
    """The outcome of a node that has not passed its gate: only a retry on other nodes may help."""
    return replace(HostError("EP460 a node is not healthy", problem).outcome, cause=UNHEALTHY)


def is_unhealthy(outcome: Outcome) -> bool:
    """Return whether a node has not passed its gate: the job may run if another one takes its
    place."""
    return outcome.cause is not None and outcome.cause.slug == UNHEALTHY.slug


def reopens(not_ready: Outcome | None, failure: Outcome) -> bool:
    """Return whether a node that could not be opened for logins, for this reason, opens in another
    run directory.

    Else the other nodes would hear nothing of the failure, and wait for it. What was known before
    is the reason still.
    """
    return not_ready is None and failure.status == CantCreateError.status


def ended(what: str, status: int, why: str = "") -> str:
    """Return how something ended, in words; `why` may be a whole message. Of a status above 128
    nobody knows whether a signal has ended it, or a command of its shell, or it has exited with
    that."""
    if why.startswith("EP"):
        return why
    name = signal_name(status - 128)
    signal = name and f" (128 + {name})"
    return f"{what} exited with {status}{signal}{why and f', {why}'}"


def stopped(what: str, signum: int, over: str = "") -> Outcome:
    """The outcome of what has received this signal; `over`: what has ended before."""
    status = 128 + signum
    name = signal_name(signum)
    return Outcome(status, f"EP611 {what} was ended by {name} ({status}){over and f', {over}'}")


def of_program(end: ProgramExit) -> Outcome:
    """The job's outcome by the end of a program; a failure has a message id, unless its sentence
    brings one. A log that cannot be written is no failure of the program's own."""
    id = (
        ""
        if not end.status or end.reason.startswith("EP")
        else "EP601 "
        if signal_name(end.status - 128)
        else "EP600 "
    )
    is_own = not end.reason.startswith("EP410")
    return Outcome(end.status, f"{id}{end.reason}", program=is_own)


def short(value: object) -> str:
    """A value as part of a sentence."""
    return one_line(
        ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value), _LONG
    )


def difference(ours: object, here: str, theirs: object, there: str) -> str:
    """Two nodes' values; of two lists also the first entry that differs, since long ones are
    cut."""
    words = f"{here} has {short(ours)}; {there} has {short(theirs)}"
    if not isinstance(ours, tuple) or not isinstance(theirs, tuple):
        return words
    pairs = zip_longest(ours, theirs, fillvalue="none")
    place, (one, other) = next((at, pair) for at, pair in enumerate(pairs) if pair[0] != pair[1])
    return f"{words}; they first differ in entry {place}: {short(one)}, {short(other)}"


def placement(placed: Mapping[int, str]) -> str:
    """Return where the ranks run, from rank -> host: `4 ranks on 2 nodes: a 0-1, b 2-3`."""
    used: dict[str, list[int]] = {}
    for rank, host in sorted(placed.items()):
        used.setdefault(host, []).append(rank)
    words = ", ".join(f"{host} {','.join(spans(ranks))}" for host, ranks in used.items())
    return f"{count(len(placed), 'rank')} on {count(len(used), 'node')}: {words}"


def not_ready(topology: Topology, members: Members) -> Outcome | None:
    """Return the outcome of a job whose nodes cannot all take part, with each one's reason."""
    failed = [
        (each.not_ready, topology.name(each.rank)) for each in members.reports if each.not_ready
    ]
    if not failed:
        return None
    first, host = failed[0]
    return replace(
        first,
        reason="; ".join(_placed(why.reason, host) for why, host in failed),
        cause=first.cause and replace(first.cause, node=host),
    )


def on_node(end: ProgramExit, host: str, where: str) -> ProgramExit:
    """A node's end as the job's, whose sentence names a place, unless that is ""."""
    reason = end.reason
    if where:
        reason = _placed(reason, where) if end.status else f"{reason} on {where}"
    return replace(end, what=f"{end.what} on {host}", reason=reason)


def _placed(reason: str, where: str) -> str:
    """Return a message with its place: before its verb, if that is the end of a program, else
    before its hint, which is not for that place alone."""
    subject, verb, rest = reason.partition(" exited with ")
    if rest:
        return f"{subject} on {where}{verb}{rest}"
    summary, detail, hint = message_parts(reason)
    if hint:
        return f"{summary} | {detail} on {where} | {hint}"
    return f"{reason} on {where}"


def out_of_time(limit: float | str | None) -> DeadlineError:
    """Return the error of a job whose `timeouts.job` is over."""
    words = limit if isinstance(limit, str) else duration(limit or 0.0)
    hint = "start it again to go on from its last checkpoint, or raise timeouts.job"
    return DeadlineError("EP652 the job's deadline has passed", words, hint)


def everywhere(nodes: Sequence[Node], awaited: Sequence[int] | None) -> str:
    """Return where a successful job ran: `all 2 nodes`, `worker-0` if only its end counts, or `all
    3 workers`."""
    counted = nodes if awaited is None else [nodes[rank] for rank in awaited]
    if len(counted) == 1:
        return counted[0].label
    return f"all {len(counted)} {'nodes' if len(counted) == len(nodes) else 'workers'}"
