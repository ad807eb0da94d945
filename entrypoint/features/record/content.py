"""Content of a node's record file: the job's result, the state of the boot, and its timeline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from entrypoint.base.phases import NAMES
from entrypoint.base.values import dataclass, frozen, replace
from entrypoint.base.wire import Length, Range, one_of, read
from entrypoint.job import messages

VERSION = 1  # of a record; of the status that `entrypoint status --json` prints, too

Nodes = Length(1 << 20)
Name = Annotated[str, Length(300)]
Number = messages.Number
Seconds = Annotated[float, Range(0, 1e12)]
Parts = Annotated[Mapping[Name, Seconds], Length(20)]
Version = Annotated[int, Range(VERSION, VERSION)]
Row = tuple[Annotated[str, one_of(*NAMES)], messages.Time, messages.Time, Name]


@frozen
class _Result:
    """Fields of a job's result, of which docs/reference/exit-codes.md lists all."""

    status: messages.Status
    reason: messages.Sentence
    node: Name
    job: Name


def _result(value: Any) -> Any:
    read(_Result, value)
    return value


@frozen
class NodeStatus:
    """The state of one node, as this node knows it. Durations are seconds; None if unknown."""

    node: Name
    host: Name
    phase: Name
    since_seconds: Seconds
    heartbeat_seconds: Seconds | None  # since it last sent something
    ranks: Number | None  # or programs of a launcher that starts them itself
    ranks_ended: Number
    idle_seconds: Seconds | None  # since one of its ranks printed something
    detail: messages.Sentence


@frozen
class KnownOutcome:
    """The outcome of a job whose programs are being stopped."""

    status: messages.Status
    reason: messages.Sentence


@frozen
class Interruptions:
    """The seconds that failed attempts of one cause or node have cost, by part."""

    count: Number
    seconds: Parts


@frozen
class TimeSpent:
    """The job's time, over all attempts: seconds by part (ettr.PARTS), which add up to it."""

    seconds: Parts
    causes: Annotated[Mapping[Name, Interruptions], Nodes]
    nodes: Annotated[Mapping[Name, Interruptions], Nodes]
    checkpoints: bool  # whether the last checkpoint of every failed attempt is known

    @property
    def whole(self) -> float:
        """Seconds from the start of worker-0's container."""
        return sum(self.seconds.values())

    @property
    def share(self) -> float:
        """Return the share of effective training time (ETTR)."""
        return self.seconds["training"] / self.whole if self.whole else 0.0


@frozen
class JobStatus:
    """The state of a boot: printed by `entrypoint status --json`, and the source of the metrics."""

    version: Version
    toolkit: Name
    job: Name
    node: Name
    host: Name
    launcher: Name
    attempt: Number
    phase: Name
    up_seconds: Seconds
    boot_seconds: Seconds | None  # until this node's ranks ran
    job_nodes: Number
    roll_call: Name
    outcome: KnownOutcome | None
    nodes: Annotated[tuple[NodeStatus, ...], Nodes]
    spent: TimeSpent | None = None  # on worker-0

    def later(self, seconds: float) -> JobStatus:
        """Return the state so many seconds later, if only time has passed."""

        def add(value: float | None) -> Any:
            return None if value is None else round(value + seconds, 3)

        times = ("since_seconds", "heartbeat_seconds", "idle_seconds")
        nodes = tuple(
            replace(node, **{name: add(vars(node)[name]) for name in times}) for node in self.nodes
        )
        return replace(self, nodes=nodes, up_seconds=add(self.up_seconds))


@dataclass
class PeerTimes:
    """The times at which messages of the roll call and the release passed between worker-0 and a
    worker, by the clock of the node that notes them; on worker-0 also what else it knows of the
    worker."""

    part: messages.Phases | None = None  # the worker's own report
    answered: messages.Time = 0.0
    started: messages.Time = 0.0
    released: messages.Time = 0.0
    reported: messages.Time = 0.0
    why: messages.Sentence = ""  # why it is missing, as far as known


@frozen
class Recording:
    """The phases of this node until the end of its last attempt, and on worker-0 the times of the
    others."""

    job: Name
    names: Annotated[tuple[Name, ...], Nodes]  # what messages call the nodes, by rank
    me: messages.Rank
    alone: bool  # the nodes held no roll call
    phases: Annotated[tuple[Row, ...], Length(1 << 23)]
    peers: Annotated[Mapping[messages.Label, PeerTimes], Nodes]  # by rank
    began: Annotated[float, Range(0, 1e11)]  # its first phase, in seconds since 1970


@frozen
class RecordedProcess:
    """The entrypoint's process. Its number is meaningful only in its pid namespace."""

    pid: Number
    started: messages.Size  # clock ticks since the machine's boot (proc(5))
    namespace: messages.Size  # inode


@frozen
class Record:
    """The content of the file."""

    version: Version
    toolkit: Name
    result: Annotated[Mapping[str, Any], _result] | None = None  # once the job has ended here
    process: RecordedProcess | None = None
    at: messages.Time = 0.0  # when `status` was true, by the machine's monotonic clock
    pause: Seconds = 0.0  # seconds until the next write at the latest
    # None if the boot never began, or if the process has become the program
    status: JobStatus | None = None
    timeline: Recording | None = None  # once an attempt is over
    command: Annotated[str, Length(1 << 17)] = ""  # that was started, in one line without secrets
