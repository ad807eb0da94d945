"""What must hold in every simulated job, whatever happens: a schedule in, violations out."""

from __future__ import annotations

from entrypoint.base import heartbeat
from entrypoint.features.health.report import MARGIN as CHECK_MARGIN
from entrypoint.features.netcheck.messages import PATIENCE
from entrypoint.job.membership.team import FAULTS
from entrypoint.job.waits import KILL_MARGIN
from entrypoint.ranks.diagnosis import LIMIT as DIAGNOSIS
from tests.simulation.gates import AWAITED, PROBLEM
from tests.simulation.gates import LIMIT as GATE
from tests.simulation.programs import CAUSES
from tests.simulation.schedule import (
    BETWEEN,
    DEAF,
    GRACE,
    HEARTBEAT,
    LAUNCH,
    LIMIT,
    MEASURES,
    MOVED,
    NEVER,
    PEERS,
    SEVER,
    Schedule,
)
from tests.simulation.stalls import wrong_stalls
from tests.simulation.world import World

_AWAY = ("kill", "reboot", "vanish", "cut", SEVER, DEAF, MOVED, "blink", "lie", "forge")
_LOSSES = ("kill", "vanish", "cut", SEVER, "reboot", "freeze", DEAF, MOVED, "blink", "lie")
_STOPS = 5.0  # seconds in which a stop between two attempts has ended all nodes
_MARGIN = 8.0  # seconds for killed programs, the launcher's last words, and the result on its way


def _patience(schedule: Schedule) -> float:
    return heartbeat.patience(HEARTBEAT, schedule.nodes)


def _clock(schedule: Schedule) -> float:
    """Seconds in which a node whose leader is gone has noticed that and ended its ranks."""
    return _patience(schedule) + GRACE + KILL_MARGIN


def bound(schedule: Schedule) -> float:
    """Seconds after which every node has ended: each attempt has its roll call, its job and its
    stop."""
    attempt = PEERS + LAUNCH + schedule.duration + 2 * GRACE + 4 * _patience(schedule) + 2 * _MARGIN
    if schedule.stuck is not None:
        attempt += 30.0  # until the stall is said
    if schedule.gates:
        attempt += AWAITED
    if schedule.measure is not None:  # to get ready, all rounds, one that hangs, all together
        attempt += LAUNCH + MEASURES + 2 * (LAUNCH + PATIENCE + 4 * PATIENCE + 0.1)
    stood_still = sum(fault.seconds for fault in schedule.faults)
    begun = max(start for start in schedule.starts if start < NEVER)
    return begun + (schedule.restarts + 1 + _more_boots(schedule)) * attempt + stood_still + PEERS


def _more_boots(schedule: Schedule) -> int:
    """How often the leader may boot more than the restarts say: it starts again, or a node has
    left."""
    leaves = [fault for fault in schedule.of("stop", "twice", BETWEEN) if fault.node]
    boots = len(schedule.of("kill", "reboot", MOVED))
    return boots + len(leaves) * schedule.goes_on


# of CPU; a schedule of 10,000 nodes took 169 on 2026-11-25
MOST_SECONDS = 600.0


def check(
    schedule: Schedule, keep_log: bool = False, most_seconds: float = MOST_SECONDS
) -> tuple[World, list[str]]:
    """Run it. Returns the world at its end, and what did not hold."""
    world = World(schedule, keep_log)
    world.run(bound(schedule), most_seconds)
    wrong = list(world.violations)
    late = [f"node-{each.rank}" for each in world.containers if not each.over]
    if late and not wrong:
        wrong.append(f"{', '.join(late)} did not end within {bound(schedule):.0f} s")
    if not wrong and schedule.deadline is not None:  # which may come before all else
        return world, [*_one_status(schedule, world), *_overdue(schedule, world)]
    if not wrong:
        wrong += [words for holds in _ALL for words in holds(schedule, world)]
    return world, wrong


def _overdue(schedule: Schedule, world: World) -> list[str]:
    """A job ends soon after its deadline, with 72 if it has not ended before, and for good."""
    assert schedule.deadline is not None
    wrong = [
        f"node-{each.rank} boots again after its deadline"
        for each in world.containers
        for _, outcome in each.outcomes
        if outcome.status == 72 and outcome.again
    ]
    if schedule.faults or not _is_usual(schedule) or NEVER in schedule.starts:
        return wrong
    for each in world.containers:
        ended, status, reason = _final(world, each.rank)
        limit = each.began + schedule.deadline
        by = limit + KILL_MARGIN + _patience(schedule) + GRACE + _MARGIN
        is_late = not each.rank and each.decided > max(limit, each.booted) + 0.01
        if ended > by or is_late:
            wrong.append(
                f"node-{each.rank} ended at {ended:.1f} s, not by {by:.1f} s, with {status}"
                f" ({reason})"
            )
    return wrong


def _first(schedule: Schedule, world: World) -> list[str]:
    """Where nothing goes wrong, a job whose first rank decides ends soon after it."""
    if schedule.after_first is None or schedule.faults or schedule.status or schedule.spares:
        return []
    ended, status, _ = _final(world, 0)
    by = world.began + 2 + schedule.duration + GRACE + schedule.passes + _MARGIN
    return [f"rank 0 has ended, and the job at {ended:.1f} s"] if not status and ended > by else []


def _final(world: World, rank: int) -> tuple[float, int, str]:
    """When a node ended for good, with which status, and why."""
    when, outcome = world.containers[rank].outcomes[-1]
    return when, outcome.status, outcome.reason


def _one_status(schedule: Schedule, world: World) -> list[str]:
    """Whoever was there when the result was told ends with it."""
    boot, said = world.released
    if schedule.of("freeze", *_AWAY) or not boot or said.again:
        return []  # who was away when it was told, or in the next attempt, has a reason of its own
    wrong = []
    signalled = {rank for rank, number in world.signals.items() if number}
    own = {
        schedule.other_version,
        schedule.nonsense,
        *_turned_away(schedule),
        *signalled,
        *world.turned_away,
    }  # that have reasons of their own
    for rank in world.must_hear - own:
        if world.containers[rank].outcomes and _final(world, rank)[1] != said.status:
            seen = _final(world, rank)
            wrong.append(
                f"node-{rank} ends with {seen[1]} ({seen[2]}), the leader with {said.status}"
                f" ({said.reason})"
            )
    return wrong


def _suspended(schedule: Schedule, world: World) -> list[str]:
    """However long nodes are suspended, and whenever: all nodes end with one status. A node that was
    told to stop, or was suspended, may have one of its own, and never a success that others do not
    have."""
    others = {fault.kind for fault in schedule.faults} - {"freeze", "fail", "stop", "user"}
    odd = not _is_usual(schedule) or schedule.look is not None or _is_unfit(schedule)
    odd = odd or schedule.mpirun or schedule.gates or max(schedule.starts) > 30
    if odd or others or not schedule.of("freeze"):
        return []
    stops = [fault.at for fault in schedule.of("stop") if not fault.node]
    if stops and not 0 < world.first_start < stops[0]:
        return []  # before the start it leaves alone, and may come back
    ends = {each.rank: _final(world, each.rank) for each in world.containers if each.outcomes}
    own = {fault.node for fault in schedule.of("freeze", "stop") if fault.node}
    own |= world.turned_away
    if schedule.least:  # one that comes late may find that the job is over
        own |= {it for it, start in enumerate(schedule.starts) if start > world.first_start}
    wrong = []
    for rank, (when, status, reason) in ends.items():
        if status != ends[0][1] and (rank not in own or not status):
            wrong.append(
                f"nodes were suspended, and node-{rank} ends at {when:.1f} s with {status}"
                f" ({reason}), the leader with {ends[0][1]} ({ends[0][2]})"
            )
    return wrong


def _reported_cause(schedule: Schedule, world: World) -> list[str]:
    """All nodes name one cause, the root of what was reported, and it decides about a restart."""
    wrong = []
    boot, said = world.released
    for rank in world.must_hear if boot and not said.again else ():
        outcome = (
            world.containers[rank].outcomes[-1][1] if world.containers[rank].outcomes else None
        )
        if outcome and outcome.reason == said.reason and outcome.cause != said.cause:
            wrong.append(f"node-{rank} names the cause {outcome.cause}, the leader {said.cause}")
    odd = not _is_usual(schedule) or schedule.empty is not None
    odd = odd or schedule.sick is not None
    if odd or schedule.nonsense is not None or len(schedule.faults) != 1 or not schedule.cause:
        return wrong
    (fault,) = schedule.faults
    if fault.kind != "fail" or not world.failures or max(schedule.starts) > 30:
        return wrong
    in_time = schedule.diagnosis + 4 * schedule.latency < min(DIAGNOSIS, GRACE)
    first = next(outcome for _, outcome in world.containers[0].outcomes)
    expected = CAUSES[schedule.cause] if in_time else first.cause
    name = f"worker-{fault.node} (node-{fault.node})"
    if first.status and (first.cause is None or first.cause.slug != expected.slug) and in_time:
        wrong.append(f"{expected.slug} on {name}, and the cause is {first.cause}")
    if first.cause and first.cause.role == "root" and first.cause.node != name:
        wrong.append(f"the cause is on {name}, and {first.cause.node} is named")
    helps = schedule.cause in ("device", "network") and in_time
    again = {"any": True, "infrastructure": helps, "lost-nodes": False}[schedule.restarts_on]
    if in_time and first.status and first.again != bool(again and schedule.restarts):
        wrong.append(f"after {expected.slug} the job boots again: {first.again}")
    return wrong


def _is_usual(schedule: Schedule) -> bool:
    """Whether each node can take part."""
    odd = (schedule.not_ready, schedule.unwritable, schedule.other_version, schedule.unhealthy)
    return all(node is None for node in odd)


def _turned_away(schedule: Schedule) -> set[int | None]:
    """Return the nodes of an elastic job that come late and cannot join."""
    odd = {schedule.not_ready, schedule.unwritable, schedule.unhealthy}
    return odd if schedule.least else set()


def _restarts(schedule: Schedule, world: World) -> list[str]:
    """No more attempts than were asked for, and none after a program's own failure."""
    leader = world.containers[0]
    wrong = []
    # A node that lies is never started, and tells a leader that has replaced another nothing of
    # earlier attempts.
    lies = schedule.nonsense is not None
    if not lies and leader.boots > schedule.restarts + 1 + _more_boots(schedule):
        wrong.append(
            f"the leader has started {leader.boots} times, with restarts: {schedule.restarts}"
        )
    may_help = schedule.cause in ("device", "network") and schedule.restarts_on == "infrastructure"
    failed_alone = [fault.kind for fault in schedule.faults] == ["fail"] and world.failures
    failed_alone = failed_alone and not (schedule.mpirun or _is_unfit(schedule))
    failed_alone = failed_alone and schedule.unhealthy is None and schedule.stuck is None
    if failed_alone and not may_help and schedule.restarts_on != "any" and leader.boots > 1:
        wrong.append("the job has started again after a program's own failure")
    if (
        schedule.status
        and schedule.restarts_on != "any"
        and not (schedule.faults or schedule.mpirun or _is_unfit(schedule))
        # A spare takes the place of a node that says late that it is not healthy.
        and not (schedule.spares and schedule.all_unhealthy)
        and leader.boots > 1
    ):
        wrong.append("the job has started again after a program's own failure")
    # A boot that starts nothing may tell the stop to nodes that had lost their leader; where none
    # could, there is no such boot.
    has_lost = schedule.of("freeze", *_AWAY)
    last = max(world.attempts, default=0) if has_lost else leader.boots
    if world.told_to_stop and last > max(world.told_to_stop):
        wrong.append(
            "the job has started again, and its leader was told to stop before the result was told"
        )
    boots = len(schedule.of("kill", "reboot", MOVED))
    if world.stopped and last > max(world.stopped) + boots:
        wrong.append("the job has started again after it was told to stop")
    return wrong


def _progress(schedule: Schedule, world: World) -> list[str]:
    """So many attempts in a row without progress end the job with 79, and nothing else does."""
    most, wrong = schedule.without_progress, []
    for each in world.containers:
        for when, outcome in each.outcomes:
            if outcome.status != 79:
                continue
            # what a node saw just before may not have arrived
            seen = {at for at, then in world.progressed.items() if then < when - 3.0}
            last = max((at for at in world.attempts.values()), default=0)
            recent = {*range(last - most + 1, last + 1)}
            if not most or last < most or recent & seen:
                wrong.append(
                    f"node-{each.rank} ends with 79 after {last} attempts, progress {seen}"
                )
    streak = longest = 0
    for attempt in sorted({*world.attempts.values()}):
        streak = 0 if attempt in world.progressed else streak + 1
        longest = max(longest, streak)
    gone = {fault.node for fault in schedule.of("kill", "reboot", MOVED, "vanish", "cut")}
    if most and len(gone) < 2 and longest > most:
        wrong.append(f"{longest} attempts in a row are without progress, with {most} allowed")
    if most and not schedule.faults and not schedule.cause:
        wrong += _crashes(schedule, world)
    return wrong


def _crashes(schedule: Schedule, world: World) -> list[str]:
    """Where nothing but the programs fails, it is known how often they start, and how all end."""
    attempt = streak = 0
    status = None
    while status is None:
        attempt += 1
        streak = 0 if schedule.makes_progress(attempt) else streak + 1
        if attempt > schedule.restarts:
            status = schedule.status
        elif streak >= schedule.without_progress:
            status = 79
    ends = {_final(world, each.rank)[1] for each in world.containers}
    if ends == {status} and world.containers[0].boots == attempt:
        return []
    boots = world.containers[0].boots
    return [f"the job ends with {ends} after {boots} attempts, not with {status} after {attempt}"]


def _phases(schedule: Schedule, world: World) -> list[str]:
    """Of whoever left after a release the leader knows where its time went, unless a session was
    cut."""
    frozen = schedule.of("freeze")
    # One that stands still for so long counts as lost; after a second signal none that stands still
    # is waited for.
    if any(fault.seconds >= HEARTBEAT for fault in frozen) or (frozen and schedule.of("twice")):
        return []
    if schedule.of(*_AWAY):
        return []
    # The others may leave before the last word of one that is far away arrives.
    too_late = (_turned_away(schedule) & {schedule.far}) | world.turned_away
    return [
        f"node-{rank} was released, and its phases are not at the leader"
        for rank, boot in world.last_words
        if rank not in too_late
        and (not schedule.spares or rank in world.there)
        and (not (peer := world.peers[0, boot].get(rank)) or not peer.part)
    ]


def _unwritable(schedule: Schedule, world: World) -> list[str]:
    """A node that fails between its check and its session tells all: they end with its status once
    all are there."""
    odd = (
        schedule.not_ready is not None
        or schedule.other_version is not None
        or schedule.look is not None
    )
    odd = odd or _is_unfit(schedule)
    odd = odd or bool(schedule.gates)  # for which the job waits
    if (
        schedule.unwritable is None
        or odd
        or schedule.least
        or schedule.spares
        or schedule.faults
        or max(schedule.starts) > 30
    ):
        return []
    by, wrong = max(schedule.starts) + _MARGIN, []
    for each in world.containers:
        ended, status, reason = _final(world, each.rank)
        name = f"worker-{schedule.unwritable} (node-{schedule.unwritable})"
        if status != 73 or f"on {name}" not in reason or ended > by:
            wrong.append(f"node-{schedule.unwritable} could not open its session, and node-{each.rank} ended at "
                         f"{ended:.1f} s, not by {by:.1f} s, with {status} ({reason})")  # fmt: skip
    return wrong


def _unhealthy(schedule: Schedule, world: World) -> list[str]:
    """A node that does not pass its gate is named, and the job ends soon with 71; or a spare takes
    its place, and the job ends as it would have."""
    rank = schedule.unhealthy
    if rank is None or schedule.least or schedule.faults or schedule.mpirun:
        return []
    if max(schedule.starts) > 30:
        return []
    if schedule.spares and rank:
        says = all(gate.reports for gate in schedule.gates)
        too_late = schedule.gates[rank].seconds > AWAITED and not schedule.restarts
        if (
            not says
            or too_late
            or schedule.sick is not None
            or _final(world, 0)[1] == schedule.status
        ):
            return []
        return [f"node-{rank} is not healthy, there are spares, and the job does not run"]
    wait = max(GATE, schedule.gates[rank].seconds) if schedule.gates[rank].reports else AWAITED
    by, wrong = max(schedule.starts) + wait + GRACE + _MARGIN, []
    if not all(gate.reports for gate in schedule.gates):
        by += AWAITED
    for each in world.containers:
        ended, status, reason = _final(world, each.rank)
        is_named = PROBLEM in reason and f"node-{rank}" in reason
        # After an attempt has begun, it is the node's own failure.
        is_named = is_named or (rank in (0, each.rank) and PROBLEM in reason)
        # The program may fail before the node says anything.
        is_first = not schedule.gates[rank].reports and 0 != status == schedule.status
        if is_first and ended <= by:
            continue
        if status != 71 or not is_named or ended > by:
            wrong.append(
                f"node-{rank} is not healthy, and node-{each.rank} ended at {ended:.1f} s, not by"
                f" {by:.1f} s, with {status} ({reason})"
            )
    return wrong


def _comes_back(schedule: Schedule, world: World) -> list[str]:
    """A worker whose container starts again before the job begins is called again, and the job
    runs."""
    usual = _is_usual(schedule)
    plain = usual and not schedule.mpirun and schedule.look is None and max(schedule.starts) < 30
    plain = plain and not _is_unfit(schedule) and schedule.sick is None
    if not plain or schedule.least or len(schedule.faults) != 1 or schedule.stuck is not None:
        return []
    (fault,) = schedule.faults
    restarts = (
        fault.kind in ("kill", "reboot")
        and fault.node
        and fault.seconds
        and world.is_disturbed(fault.node)
    )
    # the job may begin before it is missed
    if not restarts or max(schedule.starts) < fault.at + _patience(schedule) + 1:
        return []
    _, status, reason = _final(world, 0)
    if status == schedule.status:
        return []
    return [
        f"node-{fault.node} restarted before the start, and the job ended with {status} ({reason})"
    ]


def _stopped_between(schedule: Schedule, world: World) -> list[str]:
    """A job that is stopped before a later attempt begins ends soon with 143 on every node that
    took no harm."""
    harm = ("kill", "reboot", "vanish", "cut", "blink", "lie", "forge", "freeze", "fault")
    harmed = {fault.node for fault in schedule.of(*harm)}
    if (
        not world.stopped_between
        or 0 in harmed
        or schedule.least
        or _is_unfit(schedule)
        or schedule.not_ready is not None
        or schedule.unwritable is not None
        or schedule.unhealthy is not None
    ):
        return []
    when, rank = world.stopped_between[0]
    if rank in harmed or rank not in world.team:
        return []  # a spare that is stopped leaves, and the others go on
    by, wrong = when + _STOPS + 0.01 * schedule.nodes + 10 * schedule.latency + 0.5, []
    for node in {each.rank for each in world.containers if each.outcomes} - harmed:
        ended, status, reason = _final(world, node)
        if status != 143 or ended > by:
            wrong.append(f"node-{rank} was stopped at {when:.1f} s between two attempts, and node-{node} ended at "
                         f"{ended:.1f} s, not by {by:.1f} s, with {status} ({reason})")  # fmt: skip
    return wrong


def _cause(schedule: Schedule, world: World) -> list[str]:
    """Where one thing went wrong, it is the reason, and everybody ends soon."""
    usual = _is_usual(schedule)
    plain = usual and not schedule.mpirun and max(schedule.starts) < 5 and schedule.has_port
    plain = plain and not schedule.without_progress
    plain = plain and schedule.stuck is None and schedule.liar is None
    if not plain or schedule.least or len(schedule.faults) > 1 or not world.containers[0].outcomes:
        return []
    if schedule.spares:
        return []  # see _spares
    ended, status, reason = _final(world, 0)
    if schedule.measure is not None and _is_unfit(schedule):
        if schedule.faults or (status == 75 and f"-{_is_unfit(schedule)}" in reason):
            return []
        return [f"the network is not fit, and the status is {status} ({reason})"]
    if world.hit_inquiry and not schedule.restarts:
        return _in_inquiry(schedule, world)
    if not schedule.faults and schedule.hangs is not None:
        return (
            []
            if status == 78
            else [f"node-{schedule.hangs} did not look, and the status is {status} ({reason})"]
        )
    if not schedule.faults:
        return (
            []
            if status == schedule.status
            else [f"nothing went wrong, and the status is {status} ({reason})"]
        )
    if schedule.after_first is not None and not status and world.all_well():
        return []  # before the leader knew of it
    (fault,) = schedule.faults
    blamed = [
        outcome.reason
        for _, outcome in world.containers[0].outcomes
        if "is lost: nothing heard" in outcome.reason
    ]
    if fault.kind == "freeze" and not fault.node and blamed:
        return [f"the leader stood still, and blames: {blamed[0]}"]
    name = f"node-{fault.node}"
    if (
        schedule.status
        or schedule.restarts
        or not world.began
        or fault.at < world.began
        or not world.hit_running
    ):
        return []  # before the start, after the end, or in another attempt
    wrong = []
    right = (status == 75 and name in reason) or (status == 0 and world.all_well())
    if fault.kind in ("kill", "reboot", "vanish", "cut") and fault.node and not right:
        wrong.append(f"{name} was lost, and the job ended with {status} ({reason})")
    if fault.kind == "forge" and not right:
        wrong.append(f"{name} spoke for the others, and the job ended with {status} ({reason})")
    if fault.kind == "freeze" and fault.seconds < HEARTBEAT and status:
        wrong.append(
            f"EP603 {name} was suspended for {fault.seconds:.1f} s, and the job ended with {status}"
            f" ({reason})"
        )
    expected = {fault.status, 143} if fault.status in (1, 143) else {fault.status}
    if fault.kind == "fail" and world.failures and status not in expected:
        wrong.append(
            f"{name} failed with {fault.status}, and the job ended with {status} ({reason})"
        )
    if fault.kind in ("stop", "twice") and status != 143:
        wrong.append(f"{name} was told to stop, and the job ended with {status} ({reason})")
    if (
        fault.kind == "daemon"
        and schedule.launcher == "mpirun"
        and world.gone
        and not (status == 75 and name in reason)
    ):
        wrong.append(
            f"mpirun's daemon was killed on {name}, and the job ended with {status} ({reason})"
        )
    if fault.kind == "fault" and status != 71:
        wrong.append(f"{name} failed with 71, and the job ended with {status} ({reason})")
    if fault.kind in ("user", "stranger") and status:
        wrong.append(f"nothing went wrong, and the status is {status} ({reason})")
    if fault.kind in ("kill", "reboot") and not fault.node:
        return wrong  # another one has started in its place, and waits for the others
    soon = fault.at + fault.seconds + GRACE + _patience(schedule) + _MARGIN
    if fault.kind == "twice" and world.signals[fault.node] > 1:  # else it had left after the first
        soon = fault.at + fault.seconds + 5 + 10 * schedule.latency
    has_failed = fault.kind != "fail" or world.failures  # nothing fails that does not run yet
    if fault.kind not in ("freeze", "user", "stranger", "daemon") and has_failed and ended > soon:
        wrong.append(
            f"{fault.kind} at {fault.at:.1f} s, and the leader ended at {ended:.1f} s, not by"
            f" {soon:.1f} s"
        )
    return wrong


def _is_unfit(schedule: Schedule) -> str:
    """Return the number of the node that does not pass a network check; "" if all do."""
    if schedule.measure is None:
        return ""
    return next(
        (
            str(node)
            for node in (schedule.slow, schedule.nonsense, schedule.hangs)
            if node is not None
        ),
        "",
    )


def _in_inquiry(schedule: Schedule, world: World) -> list[str]:
    """What happens while the nodes are asked ends the job on all of them soon, and is the
    reason."""
    (fault,) = schedule.faults
    statuses = {"stop": 143, "twice": 143, "fault": 71} | dict.fromkeys(
        ("kill", "reboot", "vanish", "cut", "lie"), 75
    )
    if fault.kind not in statuses or (not fault.node and fault.kind not in ("stop", "twice")):
        return []
    silent = fault.kind in ("vanish", "cut")
    heard = fault.at + (_patience(schedule) if silent else 5 * schedule.latency)
    if world.inquired < heard:
        return []  # its result stands
    wrong = []
    soon = (
        fault.at
        + GRACE
        + _patience(world.schedule)
        + _MARGIN
        + (LIMIT + CHECK_MARGIN if schedule.look is not None else 0)
    )
    for each in world.containers:
        ended, status, reason = (
            _final(world, each.rank) if each.outcomes else (0.0, statuses[fault.kind], "")
        )
        its_own = each.rank == fault.node and fault.kind not in ("stop", "twice")
        if not its_own and (status != statuses[fault.kind] or ended > soon):
            wrong.append(
                f"{fault.kind} on node-{fault.node} during an inquiry, and node-{each.rank} ended at "
                f"{ended:.1f} s, not by {soon:.1f} s, with {status} ({reason})"
            )
    return wrong


def _elastic(schedule: Schedule, world: World) -> list[str]:
    """Where nothing went wrong, a node that comes while the others end has their status, and holds
    up nobody."""
    usual = _is_usual(schedule)
    usual = usual and not _is_unfit(schedule)
    if (
        not usual
        or schedule.look is not None
        or not world.meetings
        or schedule.faults
        or NEVER in schedule.starts
    ):
        return []
    wrong = []
    for rank in range(schedule.nodes):
        _, status, reason = _final(world, rank)
        if status != schedule.status and "did not call within" not in reason:
            wrong.append(
                f"node-{rank} ends with {status} ({reason}), and the programs with"
                f" {schedule.status}"
            )
    ends = max(meeting.ends or 0.0 for meeting in world.meetings.values())
    if not schedule.status and world.done > ends + _MARGIN:
        wrong.append(
            f"the programs end at {ends:.1f} s, and the result is told at {world.done:.1f} s"
        )
    return wrong


def _spares(schedule: Schedule, world: World) -> list[str]:
    """A job with a spare goes on after the loss of one node, or with a sick one, and ends as it
    would have."""
    usual = _is_usual(schedule)
    if not schedule.spares or not usual or max(schedule.starts) > 5 or schedule.status:
        return []
    if not world.containers[0].outcomes:
        return []
    _, status, reason = _final(world, 0)
    if schedule.sick is not None and not schedule.faults:
        enough = schedule.restarts >= FAULTS
        right = status == 0 or (not enough and status)
        return [] if right else [f"node-{schedule.sick} is sick, and the job ends with {status}"]
    if schedule.measure is not None and not schedule.faults:
        asked = (schedule.hangs, schedule.nonsense)
        named = schedule.slow is not None and (schedule.slow >= world.needed or world.needed > 2)
        wrong = status and named and asked == (None, None) and not schedule.gates
        return [f"node-{schedule.slow} is slow, and the job ends with {status}"] if wrong else []
    own = [fault for fault in schedule.faults if (fault.kind, fault.node) != ("freeze", 0)]
    team = world.containers[0].team
    alone = not own and schedule.sick is None and schedule.measure is None
    if team and team.reasons and alone:
        return [f"only the leader was suspended, and {sorted(team.reasons)} are replaced"]
    if schedule.sick is not None or _is_unfit(schedule):
        return []
    # Where the leader stands still.
    others = [fault for fault in schedule.faults if fault not in own]
    waits = all(fault.seconds < HEARTBEAT for fault in others)
    only_spares = all(fault.node >= world.needed and fault.kind in _LOSSES for fault in own)
    if own and only_spares and waits:
        boots = world.containers[0].boots
        if boots > 1 or (status and max(schedule.starts) < own[0].at):
            return [f"only spares were lost, and the job ends with {status} after {boots} attempts"]
    if len(schedule.faults) != 1:
        return []
    (fault,) = schedule.faults
    if fault.kind not in ("kill", "vanish", "cut", "reboot", MOVED, DEAF) or not fault.node:
        return []
    if fault.at < world.first_start + 1 or not world.hit_running:
        return []
    wrong = []
    if status:
        wrong.append(f"node-{fault.node} was lost, and the job ends with {status} ({reason})")
    boot, told = world.told.get(fault.node, (0, 0))
    node = world.containers[fault.node]
    if boot == node.boots and node.outcomes and _final(world, fault.node)[1] != told:
        wrong.append(f"node-{fault.node} was told {told}, and ends with {node.outcomes[-1][1]}")
    if fault.node >= world.needed and world.containers[0].boots > 1:
        wrong.append(f"node-{fault.node}, a spare, was lost, and the job has started again")
    unheard = 0.0 if fault.kind in ("kill", DEAF) else _patience(schedule)
    if fault.node < world.needed:
        unheard += _clock(schedule)
    late = fault.at + unheard + min(GRACE, max(schedule.save)) + 2 * schedule.passes
    late += schedule.duration + 6 + 10 * schedule.latency + (AWAITED if schedule.gates else 0.0)
    ended = _final(world, 0)[0]
    if ended > late:
        wrong.append(f"node-{fault.node} was lost, and the job ends at {ended:.1f} s, not by"
                     f" {late:.1f} s")  # fmt: skip
    return wrong


def _is_plain(schedule: Schedule) -> bool:
    """Whether all nodes are there from the start, each can take part, and the programs succeed."""
    odd = (schedule.empty, schedule.sick, schedule.stuck, schedule.measure)
    odd = any(each is not None for each in odd) or schedule.mpirun or schedule.without_progress
    usual = _is_usual(schedule) and schedule.has_port and not schedule.status
    return usual and not odd and max(schedule.starts) <= 5


def _succeeds(schedule: Schedule, world: World) -> list[str]:
    """A job whose worker-0 alone was lost while ranks ran, and has come back, starts again once
    they have ended, and ends as it would have."""
    faults = [(fault.kind, fault.node) for fault in schedule.faults]
    if faults not in ([("kill", 0)], [("reboot", 0)], [(MOVED, 0)]) or not schedule.restarts:
        return []
    (fault,) = schedule.faults
    if not _is_plain(schedule) or schedule.gates or not world.hit_running:
        return []
    ends = world.first_start + schedule.duration
    if not world.first_start + 1 < fault.at < ends or not 0 < fault.seconds < PEERS / 2:
        return []
    noticed = fault.at + _patience(schedule) * (fault.kind != "kill")
    started = max(fault.at + fault.seconds + schedule.join, noticed + _clock(schedule))
    by = started + schedule.duration + 2 * schedule.passes + 10 * schedule.latency + _MARGIN
    ended, status, reason = _final(world, 0)
    if not status and ended < by:
        return []
    return [f"worker-0 was lost and came back, and the job ends at {ended:.1f} s, not by {by:.1f} s,"
            f" with {status} ({reason})"]  # fmt: skip


def _leaves(schedule: Schedule, world: World) -> list[str]:
    """A job whose workers leave goes on with the others, with those that come back, or with a
    spare, ends as it would have, and counts no failure; each of them ends with 143."""
    leavers = [fault.node for fault in schedule.of("stop")]
    gone = {fault.node for fault in schedule.faults if not fault.seconds}
    few = schedule.nodes - len(gone) < (schedule.least or schedule.nodes - schedule.spares)
    others = len(leavers) < len(schedule.faults) or 0 in leavers
    if few or others or not leavers or len({*leavers}) < len(leavers) or not schedule.goes_on:
        return []
    if not _is_plain(schedule) or schedule.after_first is not None or not world.first_start:
        return []
    wrong = []
    by = max(fault.at + fault.seconds for fault in schedule.faults) + GRACE + schedule.join
    by += schedule.duration + 2 * schedule.passes + 20 * schedule.latency + _MARGIN
    by += AWAITED if schedule.gates else 0.0
    ended, status, reason = _final(world, 0)
    if status or ended > by:
        wrong.append(f"nodes {leavers} left, and the job ends at {ended:.1f} s, not by {by:.1f} s,"
                     f" with {status} ({reason})")  # fmt: skip
    ends = {node: [it.status for _, it in world.containers[node].outcomes] for node in leavers}
    told = filter(world.signals.get, leavers)
    return wrong + [f"node-{it} left: {ends[it]}" for it in told if not {0, 143} & {*ends[it]}]


def _stopped_everywhere(schedule: Schedule, world: World) -> list[str]:
    """All nodes of a job that are told to stop end with 143, in whatever order they hear of it, and
    nothing starts after the last one has."""
    stops = schedule.of("stop")
    others = [fault for fault in schedule.faults if fault.kind not in ("stop", "user")]
    if len({fault.node for fault in stops}) < schedule.nodes or others or schedule.status:
        return []
    back = any(fault.seconds for fault in stops)
    if back or not _is_usual(schedule) or min(world.signals.values()) < 1:
        return []
    wrong = []
    if world.began > max(fault.at for fault in stops) + 10 * schedule.latency:
        wrong.append(f"an attempt starts at {world.began:.1f} s, after all nodes were told to stop")
    ends = {each.rank: _final(world, each.rank) for each in world.containers}
    if {status for _, status, _ in ends.values()} != {143} and ends[0][1]:
        wrong.append(f"all nodes were told to stop, and end with {ends}")
    return wrong


# What must hold at the end.
_ALL = (
    _one_status, _suspended, _first, _cause, wrong_stalls, _reported_cause, _elastic, _restarts,
    _progress, _phases, _stopped_between, _comes_back, _unwritable, _unhealthy, _spares,
    _succeeds, _leaves, _stopped_everywhere,
)  # fmt: skip
