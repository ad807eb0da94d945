"""The time of a job by part, over all its attempts on worker-0, and the share of effective training
time (ETTR): training whose result was kept, divided by the job's time.

The parts of an attempt follow each other, so those of all attempts add up to the job's time:

    began ─ boot, waiting ─ ran ─ training, lost ─ fault ─ detection ─ decided ─ stopping ─ over

Pure: the observer's events and actions in, seconds out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from entrypoint.base.errors import CLASSES
from entrypoint.base.model import Outcome, Topology
from entrypoint.base.phases import Phase
from entrypoint.base.tables import table
from entrypoint.base.text import columns, count, duration, escaped
from entrypoint.base.values import dataclass, field
from entrypoint.features.record.content import Interruptions, TimeSpent
from entrypoint.job import actions, events, messages

PARTS = table("""
    boot       | until the first rank ran, without waiting
    waiting    | the roll calls: until all nodes had answered
    training   | ranks ran, and what they did was kept
    lost       | ranks ran, and it was lost: after the last finished checkpoint of a failed attempt
    detection  | from a fault until it was noticed
    stopping   | until nothing of an attempt ran
    restarting | from a failed attempt until ranks ran again, without waiting
""")
_START = ("waiting", "restarting")
_END = ("lost", "detection", "stopping")
_UNKNOWN = (
    "The last checkpoint of a failed attempt is not known (set restarts.progress), so its training"
    " does not count as lost."
)
_RUNS = (Phase.OUTPUT, Phase.RUNNING)
_GONE = (Phase.LOST, Phase.RELEASED)
_ENDS = (Phase.ENDING, Phase.RELEASED, Phase.ENDED)


@dataclass
class AttemptTimes:
    """One attempt. Times are seconds of the observer's clock; None: not yet, or unknown."""

    began: float
    is_first: bool
    waited: float = 0.0  # seconds of its roll calls that are over
    called: float | None = None  # since when the nodes are called
    ran: float | None = None  # when the first rank did
    fault: float | None = None  # what has ended it
    decided: float | None = None  # when its outcome was known
    over: float | None = None
    node: str = ""  # of the fault
    outcome: Outcome | None = None

    @property
    def has_failed(self) -> bool:
        """Return whether it has ended with another status than 0."""
        return self.outcome is not None and self.outcome.status != 0

    @property
    def has_saved(self) -> bool:
        """Return whether it is known what its ranks have saved."""
        return self.outcome is not None and self.outcome.saved is not None

    @property
    def cause(self) -> str:
        """Return why it has failed: the cause's name, or who can fix it."""
        assert self.outcome is not None
        if self.outcome.cause:
            return self.outcome.cause.slug
        if _has_stalled(self.outcome):
            return "stall"
        if self.outcome.status > 128 and not self.outcome.program:
            return "stopped"
        return "program" if self.outcome.program else CLASSES.get(self.outcome.status, "job")

    def parts(self, now: float) -> dict[str, float]:
        """Return its seconds by part, until it is over or `now`."""
        over = now if self.over is None else self.over
        decided = over if self.decided is None else self.decided
        ran = decided if self.ran is None else min(self.ran, decided)
        waited = self.waited + (0.0 if self.called is None else now - self.called)
        fault = decided if self.fault is None else min(max(self.fault, ran), decided)
        lost = fault - min(max(self._saved(fault), ran), fault) if self.has_failed else 0.0
        return {
            "boot" if self.is_first else "restarting": ran - self.began - waited,
            "waiting": waited,
            "training": fault - ran - lost,
            "lost": lost,
            "detection": decided - fault,
            "stopping": over - decided,
        }

    def _saved(self, unknown: float) -> float:
        """Return when the last finished checkpoint was written; `unknown` if nobody looks there."""
        saved = self.outcome.saved if self.outcome else None
        if saved is None or self.decided is None:
            return unknown
        return self.began if saved.seconds is None else self.decided + saved.seconds


def _has_stalled(outcome: Outcome) -> bool:
    return "EP610 " in outcome.reason


def account(attempts: Sequence[AttemptTimes], now: float) -> TimeSpent:
    """Return the time of these attempts, until `now`. What a failed attempt has lost, and the start
    of the next one, count for its cause and its node."""
    seconds = dict.fromkeys(PARTS, 0.0)
    causes: dict[str, Interruptions] = {}
    nodes: dict[str, Interruptions] = {}
    known = True
    before: AttemptTimes | None = None
    for attempt in attempts:
        parts = attempt.parts(now)
        for name, spent in parts.items():
            seconds[name] += spent
        for failed, names, number in ((before, _START, 0), (attempt, _END, 1)):
            if failed and failed.has_failed:
                cost = {name: parts[name] for name in names}
                _add(causes, failed.cause, cost, number)
                _add(nodes, failed.node, cost, number)
        if attempt.has_failed and attempt.ran is not None:
            known = known and attempt.has_saved
        before = attempt
    seconds = {name: round(spent, 3) for name, spent in seconds.items()}
    return TimeSpent(seconds, causes, nodes, known)


def _add(sums: dict[str, Interruptions], key: str, cost: Mapping[str, float], number: int) -> None:
    if key:
        before = sums.get(key, Interruptions(0, {}))
        seconds = {name: before.seconds.get(name, 0.0) + spent for name, spent in cost.items()}
        seconds = {name: round(spent, 3) for name, spent in seconds.items()}
        sums[key] = Interruptions(before.count + number, {**before.seconds, **seconds})


@dataclass
class Ledger:
    """Notes the times of all attempts, from what worker-0 observes."""

    topology: Topology
    since: float  # when this node's first phase began
    attempts: list[AttemptTimes] = field(default_factory=list)
    # Of this attempt: when and where a rank or program failed first, a session ended last, a node
    # was lost last, and what each node knew when it last made progress.
    _failed: tuple[float, int] | None = None
    _cut: tuple[float, int] | None = None
    _lost: tuple[float, int] | None = None
    _printed: dict[int, float] = field(default_factory=dict)
    _stepped: dict[int, float] = field(default_factory=dict)

    def begin(self, topology: Topology, now: float) -> None:
        """Begin an attempt: its time begins when the one before it is over."""
        self.topology = topology
        began = self.since
        if self.attempts:
            before = self.attempts[-1]
            before.over = began = now if before.over is None else before.over
        self.attempts.append(AttemptTimes(began, not self.attempts))
        self._failed = self._cut = self._lost = None
        self._printed.clear()
        self._stepped.clear()

    def saw(self, what: Any, now: float, heard: float | None) -> None:
        """See an event or an action; `heard`: when its node last sent something before this."""
        attempt = self.attempts[-1]
        match what:
            case actions.Entered():
                self._entered(attempt, what, now, heard)
            case events.SessionLost():
                self._cut = now, what.node
            case events.MessageReceived() if attempt.decided is None:
                self._received(what.node, what.message, now)
            case actions.EndNode():
                attempt.outcome = what.outcome
                self._blame(attempt)

    def _entered(
        self, attempt: AttemptTimes, what: actions.Entered, now: float, heard: float | None
    ) -> None:
        if attempt.ran is None and what.phase in _RUNS:
            attempt.ran = now
        if what.node != self.topology.me:
            if what.phase in _GONE and attempt.decided is None:
                self._gone(what.node, now if heard is None else heard, now)
            return
        if attempt.called is not None:
            attempt.waited += now - attempt.called
        attempt.called = now if what.phase is Phase.ROLL_CALL else None
        if attempt.decided is None and what.phase in _ENDS:
            attempt.decided = now
        if what.phase is Phase.ENDED:
            attempt.over = now

    def _gone(self, node: int, heard: float, now: float) -> None:
        """A node is lost or turned away, and the others may go on. One in silence was lost when it
        was last heard."""
        cut, other = self._cut or (0.0, -1)
        self._lost = now if other == node and cut >= heard else heard, node
        self._stepped.pop(node, None)
        self._forget(node)

    def _forget(self, node: int) -> None:
        if self._failed and self._failed[1] == node:
            self._failed = None

    def _received(self, node: int, message: Any, now: float) -> None:
        match message:
            case messages.RankStart():
                self._forget(node)
            case messages.RankEnd() | messages.Ended() | messages.Failed() if message.status:
                self._failed = self._failed or (now, node)
            case messages.Pong():
                self._printed[node] = now - message.idle
            case messages.Steps(ranks=ranks) if ranks:
                self._stepped[node] = now - max(age for _, _, age in ranks)

    def _blame(self, attempt: AttemptTimes) -> None:
        """Find when and where the fault was that has ended the attempt."""
        outcome = attempt.outcome
        assert outcome is not None
        if not outcome.status:
            return
        cause, fault = outcome.cause, self._failed
        if cause and cause.slug == "node-lost":
            fault = self._lost
        elif _has_stalled(outcome):
            fault = None
            attempt.fault = max(self._printed.values(), default=None)
            attempt.fault = min(self._stepped.values(), default=attempt.fault)
        if fault:
            attempt.fault, attempt.node = fault[0], self.topology.name(fault[1])
        attempt.node = (cause.node if cause else "") or attempt.node


def headline(spent: TimeSpent) -> str:
    """Return the share of effective training time, as a sentence."""
    failed = count(sum(each.count for each in spent.causes.values()), "failed attempt")
    return (
        f"Effective training time: {100 * spent.share:.2f} % of {duration(spent.whole)}, with"
        f" {failed}."
    )


def lines(spent: TimeSpent) -> list[str]:
    """Return the share, and a table of the job's seconds by part, by cause and by node."""
    rows = [["seconds", *PARTS, "sum"], _row("job", spent.seconds)]
    for kind, sums in (("cause", spent.causes), ("node", spent.nodes)):
        rows += [
            _row(f"{kind} {escaped(name)}: {each.count}", each.seconds)
            for name, each in sums.items()
        ]
    unknown = [] if spent.checkpoints else [_UNKNOWN]
    return [headline(spent), *columns(rows, range(1, len(PARTS) + 2)), *unknown]


def _row(name: str, seconds: Mapping[str, float]) -> list[str]:
    cells = [f"{seconds[part]:.3f}" if part in seconds else "-" for part in PARTS]
    return [name, *cells, f"{sum(seconds.values()):.3f}"]
