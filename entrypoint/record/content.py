"""Content of a node's record file: the job's result, the state of the boot, and its timeline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from entrypoint.cause import BLAMES, CERTAINTIES, LINE, LINES, RETRIES, ROLES, Exclusion
from entrypoint.job import messages
from entrypoint.phases import NAMES
from entrypoint.text import SENTENCE
from entrypoint.values import dataclass, replace
from entrypoint.wire import Invalid, Length, Range, json_object, one_of, read

VERSION = 1  # of a record; of the status that `entrypoint status --json` prints, too

Nodes = Length(1 << 20)
Name = Annotated[str, Length(300)]
Number = Annotated[int, Range(0, 1 << 31)]
Seconds = Annotated[float, Range(0, 1e12)]
Version = Annotated[int, Range(VERSION, VERSION)]
Row = tuple[Annotated[str, one_of(*NAMES)], messages.Time, messages.Time, Name]


@dataclass(frozen=True)
class ResultCause:
    """The fields of a failed job's result that say why it failed."""

    cause: Name
    text: Annotated[str, Length(SENTENCE)]
    role: Annotated[str, one_of(*ROLES)]
    blame: Annotated[str, one_of(*BLAMES)]
    retry: Annotated[str, one_of(*RETRIES)]
    certainty: Annotated[str, one_of(*CERTAINTIES)]
    lines: Annotated[tuple[Annotated[str, Length(LINE)], ...], Length(LINES)]
    fix: Annotated[str, Length(SENTENCE)]


@dataclass(frozen=True)
class ResultNodes:
    """The field of a job's result with the nodes that spares have replaced."""

    excluded: Annotated[tuple[Exclusion, ...], Length(messages.EXCLUDED)]


def _result(value: Any) -> dict[str, Any]:
    """Return the job's result: an object with exactly the fields that docs/reference/exit-codes.md
    lists."""
    fields = dict.fromkeys(("status", "reason", "node", "job", "class"), str) | {"status": int}
    result = json_object(value)
    for name, kind in fields.items():
        if type(result.get(name)) is not kind:
            raise Invalid(f"{name} is missing or of another type", value)
    if not 0 <= result["status"] <= 255:
        raise Invalid("status is not from 0 to 255", value)
    more = vars(read(ResultCause, result)) if "cause" in result else {}
    if "excluded" in result:
        more["excluded"] = [vars(entry) for entry in read(ResultNodes, result).excluded]
    return {name: result[name] for name in fields} | more


@dataclass(frozen=True)
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
    detail: Annotated[str, Length(SENTENCE)]


@dataclass(frozen=True)
class KnownOutcome:
    """The outcome of a job whose programs are being stopped."""

    status: messages.Status
    reason: Annotated[str, Length(SENTENCE)]


@dataclass(frozen=True)
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

    def later(self, seconds: float) -> JobStatus:
        """Return the state so many seconds later, if only time has passed."""

        def add(value: float | None) -> float | None:
            return None if value is None else round(value + seconds, 3)

        nodes = tuple(
            replace(
                node,
                since_seconds=round(node.since_seconds + seconds, 3),
                heartbeat_seconds=add(node.heartbeat_seconds),
                idle_seconds=add(node.idle_seconds),
            )
            for node in self.nodes
        )
        return replace(self, up_seconds=round(self.up_seconds + seconds, 3), nodes=nodes)


@dataclass
class PeerTimes:
    """Worker-0's knowledge of a worker. The times are worker-0's, of the same messages as those in
    `part`."""

    part: messages.Phases | None = None  # the worker's own report
    answered: messages.Time = 0.0
    started: messages.Time = 0.0
    released: messages.Time = 0.0
    told: messages.Time = 0.0
    why: messages.Sentence = ""  # why it is missing, as far as known


@dataclass(frozen=True)
class Recording:
    """The phases of this node until the end of its last attempt, and on worker-0 the times of the
    others."""

    job: Name
    hosts: Annotated[tuple[Name, ...], Nodes]
    me: messages.Rank
    alone: bool  # the nodes held no roll call
    phases: Annotated[tuple[Row, ...], Length(1 << 23)]
    peers: Annotated[Mapping[messages.Label, PeerTimes], Nodes]  # by rank
    # its first phase, in seconds since 1970; 0 where it is not known
    began: Annotated[float, Range(0, 1e11)] = 0.0
    names: Annotated[tuple[Name, ...], Nodes] = ()  # what messages call the nodes, by rank


@dataclass(frozen=True)
class RecordedProcess:
    """The entrypoint's process. Its number is meaningful only in its pid namespace."""

    pid: Number
    started: Annotated[int, Range(0, 1 << 62)]  # clock ticks since the machine's boot (proc(5))
    namespace: Annotated[int, Range(0, 1 << 62)]  # inode


@dataclass(frozen=True)
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
