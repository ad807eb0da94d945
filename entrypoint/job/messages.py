"""The messages between nodes. One class is one message; each field says what may arrive in it.

leader -> worker   worker -> leader
Hello              NodeInfo; or Reject, Taken  the roll call: who can be of this job
                   Checking, Checked         how far its gate is, if it has not ended by then
                   HostsWanted               with a digest of its hosts, which are others here
Start                                        everyone answered
Ping               Steps, Pong               still there; the answer comes after all that it knew
Stacks             RankStacks                stacks of the ranks
StartDaemon        DaemonStarted, Daemon     mpirun's daemon there: its start, its end
                   RankStart, RankEnd        a rank there; Ended: a program of its own
                   Met                       its launcher is one of an elastic job's
                   Limit, Failed, ForceStop  what else happened there
                   Diagnosis                 why a rank or program there failed
Signal             Signal                    SIGUSR1 or SIGUSR2, for the ranks of every node
Question           Reply                     what `check --all` or `netcheck` asks of a node
Progressed         Progressed, Grew          the job has made progress, which counts for restarts
Stop, ReleaseFailedRanks  Stopped            the end of the ranks
Release            Phases, Goodbye           the job's result: leave with it, or boot again
"""

# Annotations are no texts here (`from __future__ import annotations`), which would take each start
# 2 ms to resolve.

import re
from collections.abc import Mapping
from typing import Annotated, Any

from entrypoint.base.cause import Cause, Exclusion, Saved
from entrypoint.base.history import FIRST, History
from entrypoint.base.phases import NAMES
from entrypoint.base.text import SENTENCE
from entrypoint.base.values import frozen
from entrypoint.base.wire import Invalid, Length, Range, json_object, one_of, read, require
from entrypoint.job.stacks import PROCESSES, ProcessStack

LINES, LINE = 20, 1000  # lines that a program printed last, characters in each
EXCLUDED = 64  # nodes in the result that spares have replaced
CAUSES = 16  # causes of one node in an attempt that count: more only repeat the same
PHASES = 4096  # phases of one node; with LABEL characters in each they fit into the longest line
TAKEN = "another leader has it"  # why a node is busy
RUNS = "busy with an attempt"  # that was started there, and may still have to end its ranks
OTHER_JOB = "that is a node of another job"
LABEL = 100  # characters in the name of a host, a rank or a program
# characters in a command: the most that one argument of a program may have (execve(2))
COMMAND = 128 * 1024
MAX_RANKS = 1 << 20
PORTS = 64  # that a node offers
STEPS = 1024  # ranks of one node whose steps count
_EVER = 1e9  # seconds

_NAME = r"[A-Za-z0-9_][A-Za-z0-9_.:@/-]{0,63}"


def _variables(value: Any) -> Mapping[str, str]:
    """Return what a program can be given, byte for byte."""
    if not isinstance(value, dict) or not all(isinstance(each, str) for each in value.values()):
        raise Invalid("not names and texts")
    if any(not name or "=" in name or "\0" in name + text for name, text in value.items()):
        raise Invalid("a name or a text that no variable can have")
    return value


def _known_cause(value: Any) -> Cause:
    """A cause of a kind that the table has, by which the leader compares it with others."""
    from entrypoint.causes.table import KINDS  # only a failure needs it

    cause = read(Cause, value, ".")  # the path goes on behind the field's name
    if cause.slug not in KINDS:
        raise Invalid("slug: no kind of cause", value)
    return cause


# --------------------------------------------------------------------------------------------------
# Types and limits of the fields

Rank = Annotated[int, Range(0, MAX_RANKS)]
Count = Annotated[int, Range(1, MAX_RANKS)]
Number = Annotated[int, Range(0, 1 << 31)]
Size = Annotated[int, Range(0, 1 << 62)]  # bytes
Step = Annotated[int, Range(-1, 1 << 53)]
Port = Annotated[int, Range(1, 65535)]
Status = Annotated[int, Range(0, 255)]
Failure = Annotated[int, Range(1, 255)]
# a node may have been up for less long than its container says
Time = Annotated[float, Range(-_EVER, _EVER)]
Sentence = Annotated[str, Length(SENTENCE)]
Label = Annotated[str, Length(LABEL)]
Host = Annotated[str, Length(300)]
Body = Annotated[Mapping[str, Any], json_object]  # that a feature reads
Tail = Annotated[tuple[Annotated[str, Length(LINE)], ...], Length(LINES)]
UserSignal = Annotated[str, one_of("SIGUSR1", "SIGUSR2")]
# Of a network interface, or its address or network: a word of a command line.
Word = Annotated[
    str, require("no name or address", lambda it: isinstance(it, str) and re.fullmatch(_NAME, it))
]
Command = Annotated[
    str,
    require(
        "no command", lambda it: isinstance(it, str) and 0 < len(it) <= COMMAND and "\0" not in it
    ),
]
KnownCause = Annotated[Cause, _known_cause]
StepRow = tuple[Annotated[int, Range(-1, MAX_RANKS)], Step, Time]
PhaseRow = tuple[Annotated[str, one_of(*NAMES)], Time, Time, Label]


# --------------------------------------------------------------------------------------------------
# Before there is a list of hosts: a session of each node to worker-0, which answers with the list,
# or with Release


@frozen
class CallIn:
    """This node's host name, and its index if it was given one. `own`: tells a worker-0 that it
    has called itself."""

    name: Host
    index: Rank | None
    own: Label = ""


@frozen
class CalledIn:
    """The name and address of each host in rank order, and the caller's index. The address of
    worker-0 is "": the caller has its own way there."""

    hosts: Annotated[tuple[tuple[Host, Label], ...], Length(MAX_RANKS)]
    index: Rank


# --------------------------------------------------------------------------------------------------
# From a worker


@frozen
class NodeInfo:
    """This node's report. `not_ready`: why it cannot take part (status, reason, whether a program
    failed); `unhealthy`: by the gate. `checking`: its gate has not ended, and Checked follows."""

    slots: Count
    mpi: Label
    toolkit: Label
    clock: Annotated[float, Range(-1e12, 1e12)]
    history: History  # as far as it knows
    not_ready: tuple[Failure, Sentence, bool] | None
    interface: tuple[Word, Word, Word] | None  # its name, address and network
    interfaces: Annotated[tuple[Word, ...], Length(1000)]
    # first ports that the launcher's programs can have here; and who has the planned one
    ports: Annotated[tuple[Port, ...], Length(PORTS)] | None = None
    holder: Sentence = ""
    unhealthy: bool = False
    checking: bool = False
    leader_lost: Time = _EVER  # seconds since this node has lost a leader in silence
    cpu_pool: Label = ""  # of its CPUs: nodes with this name share them


@frozen
class Checking:
    """This node's gate is still running. `why`: what it waits for."""

    why: Sentence


@frozen
class Checked:
    """This node's gate has ended. `problem`: why the node must not take part, or ""."""

    problem: Sentence


@frozen
class Taken:
    """This call is not for this node, or not now; the leader calls again."""

    why: Sentence


@frozen
class HostsWanted:
    """The hosts of this question are not this node's: send all of them, for the node to say where
    they differ."""


@frozen
class Reject:
    """This node cannot take part in the leader's job, and why."""

    summary: Sentence
    detail: Sentence
    hint: Sentence


@frozen
class Pong:
    """The answer to ping `number`, sent after all that was known then; `idle` seconds since a rank
    here printed; `failed` ranks of this node's programs, which may start them again; `memory`: what
    this node's container uses, and its limit."""

    idle: Time
    number: Number
    failed: Number = 0
    memory: tuple[Size, Size] | None = None


@frozen
class Steps:
    """The last step of each rank here that has shown one (`stall.line`), and the seconds since. A
    program that is no rank has -1."""

    ranks: Annotated[tuple[StepRow, ...], Length(STEPS)]


@frozen
class Grew:
    """The path in `restarts.progress` has changed on this node since the last scan."""


@frozen
class RankStacks:
    """The stacks of the ranks of this node."""

    stacks: Annotated[tuple[ProcessStack, ...], Length(PROCESSES)]


@frozen
class RankStart:
    """A rank started on this node, whose process has this pid."""

    rank: Rank
    pid: Number


@frozen
class RankEnd:
    """A rank of this node ended; where it failed, what it printed last, and why, where that is
    known."""

    rank: Rank
    status: Status
    tail: Tail
    why: Sentence


@frozen
class Ended:
    """A program of this node's own ended; `last`: no other runs."""

    status: Status
    what: Sentence
    reason: Sentence
    tail: Tail
    last: bool


@frozen
class Diagnosis:
    """The cause for which a rank or program of this node has failed. Sent before Stopped."""

    cause: KnownCause


@frozen
class Met:
    """The launcher of this node has met those of the other nodes, and started its first rank."""


@frozen
class DaemonStarted:
    """The command of StartDaemon has ended: with 0 if mpirun's daemon now runs in the
    background."""

    status: Status


@frozen
class Daemon:
    """mpirun's daemon on this node ended."""

    name: Label
    status: Status
    why: Sentence


@frozen
class Limit:
    """This node could not start a process."""

    reason: Sentence


@frozen
class Failed:
    """This node cannot go on; `stop`: it was asked to stop."""

    status: Failure
    reason: Sentence
    program: bool
    stop: bool


@frozen
class ForceStop:
    """A second signal came here: force stop, nobody waits for the grace."""


@frozen
class Stopped:
    """Nothing of the job runs on this node any more. `saved`: the last save of its ranks, if they
    were told to stop."""

    saved: Saved | None = None


@frozen
class Reply:
    """The answer to the question of this number. The feature that asks reads the body."""

    number: Number
    body: Body


@frozen
class Phases:
    """The phases of this node: name, start, end, peer or rank of each, by its own monotonic clock.
    The others are times of that clock: when it answered the roll call, heard Start, heard Release,
    sent this; 0 where it did not."""

    phases: Annotated[tuple[PhaseRow, ...], Length(PHASES)]
    answered: Time
    started: Time
    released: Time
    reported: Time


@frozen
class Goodbye:
    """The node has got the outcome, and sends nothing more. It stays until the leader has ended the
    session. `unsure`: the leader may have lost it before, and must tell a success again."""

    unsure: bool = False


# --------------------------------------------------------------------------------------------------
# From the leader, or from both


@frozen
class Hello:
    """The roll call's question. From another version of the toolkit, only `toolkit` is read: the
    rest may differ. The question of a large job to all its nodes would be long: instead of hosts,
    it first has their digest, which the receiving endpoint replaces by its own node's hosts."""

    toolkit: Label
    hosts: Annotated[tuple[Host, ...], Length(MAX_RANKS)]
    rank: Rank
    launcher: Label
    env: Annotated[Mapping[str, str], _variables]
    heartbeat: Annotated[float, Range(1, _EVER)]
    leader: Label  # which leader asks: a second leader with the same keys has another name
    address: Label  # at which it reached this node
    # Of this leader for this node alone: who calls again with it may replace the session.
    token: Label
    job: Label = ""  # the scheduler's number of the leader's job
    digest: Label = ""  # of the hosts, where they are left out


@frozen
class Start:
    """Everyone answered. `port`: at which the programs meet, where it is not the planned one.
    `replaced`: places in a job with spares, and the nodes that have them instead of the planned.
    `neighbours`: slots of the nodes that share this node's CPUs."""

    history: History = FIRST
    port: Annotated[int, Range(0, 65535)] = 0
    replaced: Annotated[tuple[tuple[Rank, Rank], ...], Length(MAX_RANKS)] = ()
    neighbours: Annotated[tuple[Count, ...], Length(MAX_RANKS)] = ()


@frozen
class StartDaemon:
    """Start mpirun's daemon by this command of a shell, as mpirun's agent was given it."""

    command: Command


@frozen
class Ping:
    """Still there. With a number above 0: report all that you know, then answer with that
    number."""

    number: Number


@frozen
class Stacks:
    """Show what your ranks are doing."""


@frozen
class Progressed:
    """The path in `restarts.progress` has a finished change on this node; or, from the leader, the
    job has made progress, and most ranks are at this training step (-1: no step)."""

    step: Step = -1


@frozen
class Signal:
    """A signal for the ranks."""

    name: UserSignal


@frozen
class Stop:
    """End your ranks, within `grace` seconds."""

    grace: Annotated[float, Range(0, _EVER)]


@frozen
class Question:
    """A question of a feature, before the start: see Inquiry in model.py. It replaces the one
    before it."""

    number: Number
    body: Body


@frozen
class ReleaseFailedRanks:
    """Ranks that failed may leave mpirun."""


@frozen
class Release:
    """The job's outcome: leave with it, or start the next attempt (`again`)."""

    status: Status
    reason: Sentence
    program: bool
    again: bool
    cause: KnownCause | None = None
    excluded: Annotated[tuple[Exclusion, ...], Length(EXCLUDED)] = ()
    saved: Saved | None = None


# --------------------------------------------------------------------------------------------------
# Who may say what: a node is believed about itself, its own ranks and its own programs, and about
# nothing else

# Conditions of a message, as they are said of one that does not meet them.
CALL = "outside the roll call"
CALLED = "before the roll call"
STARTED = "before the start"
WORKS = "of a node that waits as a spare"
TEAM = "of a team that the job cannot have"
RANKS = "in a job whose launcher starts no ranks on all nodes"
OWN_RANK = "of a rank that does not run there"
OWN_RANKS = "of ranks that do not run there"
OWN_PROGRAM = "of the leader's launcher"
ELASTIC = "in a job that is not elastic"
ASKED = "to a question that it was not asked"
CHECKING = "of a gate whose end it has not announced, or has reported"
INQUIRY = "in a job that asks nothing, or after its start"
SUCCESS = "of a success before the start"
WELL = "of a success after a failure there"

# Every message that a worker may send, and every one that the leader may, with what must hold for
# it. Any node may stop the job, or have its ranks get a user signal: it may be the only one that
# was told to.
WORKER_SAYS: Mapping[type, tuple[str, ...]] = {
    **dict.fromkeys((NodeInfo, Taken, HostsWanted, Reject), (CALL,)),
    **dict.fromkeys((Pong, Stopped, Phases, Goodbye, Failed, ForceStop, Signal), ()),
    Steps: (STARTED, WORKS, OWN_RANKS),
    RankStacks: (STARTED, OWN_RANKS),
    **dict.fromkeys((RankStart, RankEnd), (STARTED, WORKS, RANKS, OWN_RANK)),
    Ended: (STARTED, WORKS, OWN_PROGRAM),
    **dict.fromkeys((Diagnosis, Progressed, Grew), (STARTED, WORKS)),
    Met: (STARTED, ELASTIC),
    DaemonStarted: (STARTED, WORKS, RANKS),
    Daemon: (RANKS,),
    Limit: (STARTED, WORKS, RANKS),
    Reply: (ASKED,),
    **dict.fromkeys((Checking, Checked), (CHECKING,)),
}
LEADER_SAYS: Mapping[type, tuple[str, ...]] = {
    Hello: (CALL,),
    Start: (CALLED, TEAM),
    **dict.fromkeys((Ping, Stacks, Signal, Stop, ReleaseFailedRanks), (CALLED,)),
    StartDaemon: (CALLED, STARTED, RANKS),
    Progressed: (CALLED, STARTED),
    Question: (CALLED, INQUIRY),
    Release: (CALLED, SUCCESS, WELL),
}
FROM_WORKER, FROM_LEADER = tuple(WORKER_SAYS), tuple(LEADER_SAYS)


def wrong(message: Any, says: Mapping[type, tuple[str, ...]], holds: Mapping[str, bool]) -> str:
    """Return why the sender may not send this message, such as `rank_end of a rank that does not
    run there`; "" if it may."""
    return next(
        (f"{kind_of(type(message))} {each}" for each in says[type(message)] if not holds[each]), ""
    )


def kind_of(message: type) -> str:
    """Return what a message is called on the network, such as `rank_end`."""
    return "".join(f"_{each.lower()}" if each.isupper() else each for each in message.__name__)[1:]
