"""Simulated jobs whose time is known: `python -m tests.simulation.replay` prints the truth and what
`entrypoint report` makes of the record, side by side.

The truth is the schedule's: when each fault was made and each checkpoint written, when ranks ran.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import Any

from entrypoint.base.cause import Saved
from entrypoint.base.model import Outcome
from entrypoint.base.text import columns, from_json
from entrypoint.base.wire import read, to_json
from entrypoint.extensions import LoopView
from entrypoint.features.record.content import Record, TimeSpent
from entrypoint.features.record.ettr import PARTS
from entrypoint.features.record.timeline import merge
from entrypoint.job import actions, events
from tests.simulation import stalls
from tests.simulation.schedule import Fault, Schedule
from tests.simulation.world import Container, World

JOBS = 50
# What is made, and the cause that the report has to name.
CAUSES = {"kill": "node-lost", "reboot": "node-lost", "freeze": "node-lost", "blink": "node-lost",
          "fail": "program", "stop": "node-left", "stall": "stall"}  # fmt: skip
_CHECKPOINTS = (40.0, 150.0)  # seconds from one to the next


@dataclass
class Truth(World):
    """A world that notes its own times: of worker-0's attempts, and of what is made in them."""

    schedule: Schedule
    every: float  # seconds between two checkpoints
    seconds: Counter[str] = field(default_factory=lambda: Counter(dict.fromkeys(PARTS, 0.0)))
    why: Counter[str] = field(default_factory=Counter)
    where: Counter[str] = field(default_factory=Counter)
    ran: float | None = None  # since when ranks run in this attempt
    kept: float | None = None  # when the last checkpoint was finished
    _over = _waited = _opened = 0.0

    def __post_init__(self) -> None:
        super().__init__(self.schedule, keep_log=False)

    def watch_rank(self, container: Container) -> None:
        """Ranks run."""
        super().watch_rank(container)
        self.ran = self.now if self.ran is None else self.ran

    def log(self, rank: int, what: Any) -> None:
        """Worker-0 waits from when it listens until it has all answers."""
        if rank == 0 and isinstance(what, events.EndpointReady):
            self._opened = self.now
        elif rank == 0 and isinstance(what, actions.Prepare):
            self._waited = self.now - self._opened

    def fault(self) -> tuple[float, str, int] | None:
        """Return when this attempt was hit, by what, and where."""
        ran = self.now if self.ran is None else self.ran
        if self.schedule.stuck is not None:
            return self.began + stalls.HANGS, "stall", self.schedule.stuck
        hits = [each for each in self.schedule.faults if ran <= each.at <= self.now]
        return (hits[0].at, hits[0].kind, hits[0].node) if hits else None

    def saved(self, rank: int) -> Saved:
        """Checkpoints are written while ranks run, until something hits them."""
        ran, hit = self.now if self.ran is None else self.ran, self.fault()
        trained = (hit[0] if hit else self.now) - ran
        if number := int(trained / self.every):
            self.kept = ran + number * self.every
        stop = self.containers[rank].programs._stop_began
        return Saved("", None if self.kept is None else round(min(0.0, self.kept - stop), 1))

    def watch_end(self, container: Container, outcome: Outcome) -> None:
        """Note the attempt."""
        super().watch_end(container, outcome)
        if container.rank:
            return
        decided, hit = container.decided, self.fault() if outcome.status else None
        assert self.ran is not None
        fault = hit[0] if hit else decided
        lost = min(fault - self.ran, fault - (self.kept or 0.0)) if hit else 0.0
        start = "restarting" if self._over else "boot"
        self.seconds[start] += self.ran - self._over - self._waited
        parts = {"waiting": self._waited, "training": fault - self.ran - lost, "lost": lost,
                 "detection": decided - fault, "stopping": self.now - decided}  # fmt: skip
        self.seconds.update(parts)
        if hit:
            self.why[CAUSES[hit[1]]] += 1
            if hit[1] != "stall":  # its sentence alone names the node
                self.where[f"worker-{hit[2]} (node-{hit[2]})"] += 1
        self._over = self.now
        self.ran = None

    def reported(self) -> TimeSpent:
        """Return what the report has, from worker-0's record as it is written and read."""
        now, outcome = self.containers[0].outcomes[-1]
        observer = self.containers[0].observer
        status = observer.status(now, LoopView(1, outcome, 0.0, ""))
        record = Record(1, "", status=status, timeline=observer.recording(now, 1e9))
        spent = merge(read(Record, from_json(to_json(record)))).spent
        assert spent is not None
        return spent


def replay(seed: int) -> tuple[Truth, TimeSpent]:
    """Simulate a job with up to four faults: its truth, and its report."""
    random, at, faults = Random(seed), 0.0, []
    hangs = seed % 10 == 9
    for _ in range(0 if hangs else random.randint(1, 4)):
        at += random.uniform(150.0, 500.0)
        kind = random.choice([kind for kind in CAUSES if kind != "stall"])
        away = {"kill": 25.0, "reboot": 25.0, "stop": 25.0, "freeze": 30.0}.get(kind, 0.0)
        away = random.uniform(10.0, away) if away else 0.0
        node = random.randint(kind != "fail", 2)
        faults.append(Fault(at, kind, node, away, 7))
        at += 60.0  # until ranks run again
    schedule = Schedule(
        nodes=3, launcher=random.choice(("mpirun", "torchrun")), restarts=2 if hangs else 6,
        starts=(0.0, random.uniform(0.0, 20.0), 0.5), restarts_on="any", duration=600.0,
        save=(random.uniform(0.0, 8.0),) * 3, faults=tuple(faults), stalls=hangs,
        stuck=random.randint(1, 2) if hangs else None,
    )  # fmt: skip
    usual, stalls.HANGS = stalls.HANGS, 300.0
    try:
        world = Truth(schedule, random.uniform(*_CHECKPOINTS))
        world.run(10_000.0, 60.0)
    finally:
        stalls.HANGS = usual
    assert not world.violations, world.violations
    return world, world.reported()


def error(truth: Truth, spent: TimeSpent) -> float:
    """Return the largest error of a part, and of the share, over the job's time."""
    whole = sum(truth.seconds.values())
    return max(abs(spent.seconds[name] - truth.seconds[name]) / whole for name in PARTS)


def main() -> int:
    """Print all of them."""
    rows, worst, faults = [["job", "", *PARTS, "share", "error"]], 0.0, 0
    for seed in range(JOBS):
        truth, spent = replay(seed)
        worst = max(worst, wrong := error(truth, spent))
        faults += sum(truth.why.values())
        for name, seconds, last in (
            ("truth", truth.seconds, ""),
            ("report", spent.seconds, f"{100 * wrong:.2f} %"),
        ):
            share = 100 * seconds["training"] / sum(seconds.values())
            parts = [f"{seconds[part]:.1f}" for part in PARTS]
            rows.append([str(seed), name, *parts, f"{share:.2f} %", last])
    print(*columns(rows, range(2, len(PARTS) + 4)), sep="\n")
    print(f"{JOBS} jobs with {faults} faults; the largest error is {100 * worst:.2f} %")
    return 0


if __name__ == "__main__":
    sys.exit(main())
