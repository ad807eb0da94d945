"""The history of the attempts so far, and what follows from it for the next one: one rule for every
launcher and every node.

The leader sends its history with each start, so all nodes count alike: also a node that was
replaced, and a leader that has replaced a lost one.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import reduce

from entrypoint.base.cause import Saved
from entrypoint.base.errors import NoProgressError, RetryError
from entrypoint.base.history import History
from entrypoint.base.model import Outcome
from entrypoint.base.text import count, duration, one_line
from entrypoint.base.values import replace
from entrypoint.spec.jobspec import JobSpec, RestartsSpec

MINUTES = 10.0  # for which ranks must run to count as progress, if nothing else is declared
_REASON = 2000  # characters of the last failure's reason in that of the job


def latest(own: History, reported: Collection[History], restarts: RestartsSpec) -> History:
    """Return the history of a leader: its own count wins. One that has replaced a lost leader has
    none, and takes over the attempt that at least half of the nodes have seen, with the most
    progress that they report. Nobody has seen more attempts than there can be.
    """
    attempts = sorted((each.attempt for each in reported), reverse=True) or [1]
    attempt = attempts[(len(attempts) - 1) // 2]
    if own.attempt > 1 or attempt <= own.attempt:
        return own
    most = reduce(History.most, (each for each in reported if each.attempt == attempt))
    most = replace(most, leaves=min(most.leaves, restarts.leaves))
    attempt = min(attempt, most.attempts(restarts.most))
    return replace(most, attempt=attempt, without_progress=min(most.without_progress, attempt - 1))


def follow(
    outcome: Outcome, then: History, restarts: RestartsSpec, stop: Outcome | None
) -> Outcome:
    """Return the job's outcome after an attempt; `then` is the history of the attempt that would
    follow. If the job boots again after such a failure, it says `again`, unless somebody asked us
    to `stop`."""
    if then.attempt > then.attempts(restarts.most) or not _is_followed(outcome, restarts.on):
        return outcome
    return stop or replace(outcome, again=True)


def _is_followed(outcome: Outcome, on: str) -> bool:
    """Return whether the job boots again after this outcome. An end by a signal was asked for."""
    if not outcome.program:
        return outcome.status == RetryError.status
    if on == "any":
        return outcome.status != 0
    return on == "infrastructure" and bool(outcome.cause and outcome.cause.is_infrastructure)


def pays_off(then: History, restarts: RestartsSpec) -> bool:
    """Return whether the attempt with this history is made. Only a leader decides that: a worker
    alone does not know what progress the other nodes have seen."""
    return not restarts.without_progress or then.without_progress < restarts.without_progress


def no_progress(outcome: Outcome, then: History, spec: JobSpec) -> Outcome:
    """Return the outcome of a job that was started again and again, and made no progress.
    `outcome` is that of its last attempt."""
    attempts = count(then.without_progress, "attempt")
    summary = f"EP640 no progress in the last {attempts}"
    detail = f"{missing_progress(spec)} | the last one: {one_line(outcome.reason, _REASON)}"
    ended = NoProgressError(summary, detail).outcome
    return replace(outcome, status=ended.status, reason=ended.reason, program=False)


def missing_progress(spec: JobSpec) -> str:
    """Return that there was no progress, in words."""
    path, words = spec.restarts.progress, []
    if path:
        words.append(f"nothing new was finished in {path}")
    if spec.stall.line is not None:
        words.append("most ranks printed no later step (stall.line)")
    return ", and ".join(words) or f"none ran for {MINUTES:g} min"


def save_words(saved: Saved, spec: JobSpec) -> str:
    """Return whether the ranks have saved after SIGTERM, in words."""
    age = abs(saved.seconds or 0.0)
    if saved.name:
        return f"saved {saved.name} {duration(age)} after SIGTERM"
    last = "there is no checkpoint"
    if saved.seconds is not None:
        last = f"the last checkpoint was {duration(age)} old"
    within = f"within the grace of {spec.timeouts.grace:g}s"
    what = f"warning: EP653 nothing was finished in {spec.restarts.progress} {within}"
    return f"{what} | {last} | save more often, on SIGTERM, or raise timeouts.grace"


def is_time_progress(spec: JobSpec) -> bool:
    """Return whether the time that ranks run is progress: if the spec declares nothing else."""
    restarts = spec.restarts
    declared = restarts.progress is not None or spec.stall.line is not None
    return restarts.without_progress > 0 and not declared


def described(then: History, restarts: RestartsSpec) -> str:
    """Return how far a job is from running out of progress, as a part of a line; "" where it is
    not."""
    if not restarts.without_progress or not then.without_progress:
        return ""
    return f" (no progress in {then.without_progress} of {restarts.without_progress} attempts)"
