"""Simulated stalls: what ranks report of their steps and stacks, and what must then be said."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from entrypoint.base.history import FIRST
from entrypoint.job import actions, events, messages
from entrypoint.job.stacks import Frame, ProcessStack
from tests.simulation.schedule import GRACE, JOIN, NEVER, Schedule

if TYPE_CHECKING:
    from tests.simulation.world import World

LIMIT = 5.0  # seconds without a step
HANGS = 3.0  # seconds after the start of the ranks, when one of them hangs
SPEC = f"stall: {{minutes: {LIMIT / 60}, line: 'step {{step}}/', action: stop}}\n"
STEPS = 1000  # of an attempt that makes progress in a job whose programs fail again and again
_MARGIN = 15.0  # seconds from the limit to the verdict
_WAITS = (
    Frame("all_reduce", "site-packages/torch/distributed/distributed_c10d.py", 9, True),
    Frame("main", "train.py", 88, False),
)
_READS = (Frame("read", "data.py", 31, False), Frame("main", "train.py", 80, False))


def answers(
    world: World, rank: int, starts: dict[int, float], message: Any, showed: bool
) -> list[Any]:
    """Return what a node reports when it is pinged or asked for stacks. `starts` are its ranks that
    run, and when each has started; `showed`: whether its last report of steps had any."""
    schedule = world.schedule
    if schedule.liar == rank and starts:
        return lies(schedule.nodes, isinstance(message, messages.Stacks))
    if isinstance(message, messages.Stacks):
        frames = _READS if schedule.stuck == rank else _WAITS
        own = [ProcessStack(each, f"rank {each}", 9, False, "S", "", "", frames) for each in starts]
        return [messages.RankStacks(tuple(own))]
    if not schedule.stalls or not (starts or showed):
        return []
    if schedule.without_progress:  # they begin anew at the step that is known already
        machine = world.containers[rank].machine
        known = machine.state.history if machine else FIRST
        step = known.step + STEPS * (known.attempt in world.progressed)
        return [messages.Steps(tuple((each, step, 0.0) for each in starts if step >= 0))]
    rows = []
    for each, start in starts.items():
        end = world.began + HANGS if schedule.stuck is not None else world.now
        step = max(0, int(min(world.now, end) - start))
        rows.append((each, step, world.now - start - step))
    return [messages.Steps(tuple(rows))]


def lies(nodes: int, stacks: bool) -> list[Any]:
    """Return what a node says of other nodes' ranks."""
    stack = [ProcessStack(each, f"rank {each}", 9, False, "T", "", "") for each in range(nodes)]
    rows = tuple((each, 1000, 0.0) for each in range(min(nodes, messages.STEPS)))
    return [messages.RankStacks(tuple(stack[:48])) if stacks else messages.Steps(rows)]


def ask(world: World) -> None:
    """A user asks worker-0 what the ranks do."""
    leader = world.containers[0]
    if leader.is_awake():
        world.unanswered.append(world.now)
        leader.give(events.StacksWanted())


def watch_answer(world: World, action: actions.ShowStacks) -> None:
    """Each request is answered once, in time, by what ranks do or by why nobody knows it."""
    if not world.unanswered or bool(action.lines) == bool(action.why):
        world.violate(f"nobody has asked for {action}")
        return
    asked = world.unanswered.pop(0)
    frozen = sum(fault.seconds for fault in world.schedule.of("freeze"))
    if world.now > asked + _MARGIN + frozen + 0.01:
        world.violate(f"a user waits for {world.now - asked:.1f} s to know what ranks do")


def unanswered(world: World) -> list[str]:
    """Who still waits, though worker-0 runs on, and has had the time."""
    leader = world.containers[0]
    if leader.boots > 1 or not leader.outcomes:
        return []
    ended = leader.outcomes[-1][0]
    left = [asked for asked in world.unanswered if asked + 2 * _MARGIN < ended]
    return [f"a user asked at {left[0]:.1f} s, and was never answered"] if left else []


def has_hung(world: World) -> bool:
    """Whether a rank hangs by now, and with it the others."""
    return world.schedule.stuck is not None and world.began > 0 and world.now >= world.began + HANGS


def wrong_stalls(schedule: Schedule, world: World) -> list[str]:
    """A job without a rank that hangs has not stalled; where one hangs, it is named in time."""
    said = [
        (when, outcome)
        for each in world.containers
        for when, outcome in each.outcomes
        if "EP610" in outcome.reason
    ]
    if schedule.liar is not None:
        known = [outcome.reason for _, outcome in world.containers[0].outcomes]
        honest = [reason for reason in known if "it sent an invalid message" not in reason]
        is_started = world.began and not schedule.restarts
        return (
            [f"node-{schedule.liar} spoke for the others: {honest}"]
            if honest and is_started
            else []
        )
    if waiting := unanswered(world):
        return waiting
    if schedule.stuck is None:
        # A node that is gone reports nothing until it is lost.
        slow = schedule.of("cut", "vanish", "reboot", "kill")
        words = [*world.shown_stalls, *(outcome.reason for _, outcome in said)]
        return [f"no rank hangs, and it is said: {words[0]}"] if words and not slow else []
    name = f"rank {schedule.stuck} on worker-{schedule.stuck} (node-{schedule.stuck}) is in read()"
    if unnamed := [outcome.reason for _, outcome in said if name not in outcome.reason]:
        return [f"{name}, and it is said: {unnamed[0]}"]
    is_usual = (schedule.not_ready, schedule.unwritable, schedule.other_version) == (None,) * 3
    if (
        schedule.faults
        or not is_usual
        or not schedule.has_port
        or max(schedule.starts) >= NEVER
        or not world.began
    ):
        return []
    statuses = {each.outcomes[-1][1].status for each in world.containers if each.outcomes}
    if statuses != {75} or not said:
        return [f"{name}, and the job ends with {sorted(statuses)}"]
    last = max(when for when, _ in said)
    soon = world.began + HANGS + LIMIT + _MARGIN + GRACE + JOIN
    return [f"{name}, which is said at {last:.1f} s, not by {soon:.1f} s"] if last > soon else []
