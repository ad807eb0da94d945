"""Defects that are put into the machines on purpose: each must be found, or the simulation proves nothing."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from entrypoint.job import (
    actions,
    analysis,
    board,
    ending,
    leader,
    messages,
    peers,
    ranks,
    rollcall,
    survey,
    talk,
    worker,
)
from entrypoint.model import Outcome
from entrypoint.programs import below
from entrypoint.values import replace

Plant = Callable[[], Any]  # a context in which the defect is there


def _swap(owner: Any, name: str, new: Any) -> Plant:
    return lambda: mock.patch.object(owner, name, new)


def _swap_handler(table: Any, key: type, new: Any) -> Plant:
    return lambda: mock.patch.dict(table, {key: new})


def _decide_again(self: leader.Leader, outcome: Outcome) -> None:
    first, self.outcome = self.outcome, None
    if first is None or not self._talk.over:
        _decide(self, outcome)
    if first is not None:
        self._ending._outcome = outcome


_decide = leader.Leader._decide
_release = ending.Ending._release
_outside = below.outside
_signalled = leader.Leader._on_signalled
_complete = rollcall.RollCall.is_complete


def _release_all_but_one(self: ending.Ending) -> None:
    forgotten = self._peers.popitem() if len(self._peers) > 1 else None
    _release(self)
    if forgotten:
        self._peers[forgotten[0]] = forgotten[1]


def _ignored_in_a_restart(self: leader.Leader, event: Any) -> None:
    if self.attempt == 1:
        _signalled(self, event)


def _stop_at_once(self: leader.Leader, outcome: Outcome) -> None:
    self._ending.stop = self._ending.stop or outcome
    self._decide(outcome)


def _leave_at_once(self: worker.Worker) -> None:
    assert self.outcome is not None
    self._machine.end(self.outcome)


def _no_grace(self: worker.Worker) -> None:
    self._stopping = True
    self._do(messages.Stop(0))


def _nobody(self: Any, *args: Any, **kwargs: Any) -> None:
    """Do nothing."""


def _one_missing(self: rollcall.RollCall, answered: int, peers: int) -> bool:
    return _complete(self, answered + (peers > 2), peers)


def _always_again(outcome: Outcome, attempt: int, restarts: int, stop: Outcome | None) -> Outcome:
    return stop or replace(outcome, again=outcome.status == 75)


def _own_75_again(outcome: Outcome, attempt: int, restarts: int, stop: Outcome | None) -> Outcome:
    return outcome if outcome.status != 75 or attempt > restarts else stop or replace(outcome, again=True)


def _again_after_stop(outcome: Outcome, attempt: int, restarts: int, stop: Outcome | None) -> Outcome:
    if outcome.status not in (75, 143) or outcome.program or attempt > restarts:
        return outcome
    return replace(outcome, again=True)


DEFECTS: dict[str, list[Plant]] = {
    "the leader looks at no heartbeat": [_swap(peers.Peers, "look", lambda self, now: [])],
    "a worker looks at no heartbeat": [_swap(worker.Worker, "_look_for_silence", _nobody)],
    "the leader decides twice": [_swap(leader.Leader, "_decide", _decide_again)],
    "one worker is forgotten at the release": [_swap(ending.Ending, "_release", _release_all_but_one)],
    "the last failure is taken for the cause": [
        _swap(analysis.AwaitedEnds, "cause", lambda self: self.failures[-1] if self.failures else None)
    ],
    "SIGTERM is ignored during a restart": [
        _swap_handler(leader._HANDLERS, leader.events.Signalled, _ignored_in_a_restart)
    ],
    "a worker that has lost its leader leaves its programs no grace": [_swap(worker.Worker, "_finish", _no_grace)],
    "a worker that has lost its leader stops no program": [_swap(worker.Worker, "_finish", _leave_at_once)],
    "any leader may take a running job's worker": [_swap(worker.Worker, "busy", lambda self, message, now: "")],
    "ranks are started before all have answered": [_swap(rollcall.RollCall, "is_complete", _one_missing)],
    "restarts have no limit": [
        _swap(ending, "follow", _always_again),
    ],
    "a program's own 75 is tried again": [_swap(ending, "follow", _own_75_again)],
    "a job that was stopped is tried again": [_swap(ending, "follow", _again_after_stop)],
    "a leader that stood still blames a worker": [_swap(peers.Peers, "notice_own_gap", _nobody)],
    "a worker's own failure is not told": [_swap(worker.Worker, "_tell_failure", _nobody)],
    "a second signal hurries nobody": [_swap(ending.Ending, "force", _nobody)],
    "a failed rank is not told to the leader": [
        _swap_handler(leader._MESSAGES, messages.RankEnd, _nobody),
        _swap_handler(leader._MESSAGES, messages.Ended, _nobody),
    ],
    "who leaves before the start is not called again": [_swap(leader.Leader, "_lose", _nobody)],
    "a lost node's answer is awaited for ever": [
        _swap(talk.Outbox, "lose", _nobody),
        _swap(talk.Outbox, "end", _nobody),
    ],
    "mpirun hears nothing of its daemons": [_swap(ranks.LaunchMonitor, "daemon_started", _nobody)],
    "a worker leaves before its last word has arrived": [_swap(worker.Worker, "_say_last", worker.Worker._tell_leader)],
    "a worker is kept after its last word": [_swap(actions, "CloseSession", lambda node: actions.ShowLine())],
    "a lost node is not shown as lost": [_swap_handler(board._ACTIONS, actions.NodeLost, _nobody)],
    "an end is not shown": [_swap_handler(board._ACTIONS, actions.EndNode, _nobody)],
    "a check runs the job": [_swap(survey.Inquiry, "begin", lambda self, failed=None: False)],
    "a node that hangs holds up a check for ever": [_swap(survey, "MARGIN", 1e6)],
    "a member is believed about the others": [_swap(leader.Leader, "_wrong", lambda self, node, message: "")],
    "a node of an elastic job counts before its launcher has met the others": [
        _swap(analysis.AwaitedEnds, "counts", lambda self, node: True)
    ],
    "the end of an elastic job does not wait for who has just met the others": [
        _swap(talk.Outbox, "ask_all_they_know", lambda self, then: then())
    ],
    "a node that comes at the end of an elastic job is told nothing": [_swap(ending.Ending, "came", _nobody)],
    "a leader that is stopped between two attempts tells only those that are there": [
        _swap(leader.Leader, "_stop", _stop_at_once)
    ],
    "a worker that is stopped between two attempts leaves before the leader calls": [
        _swap(worker.Worker, "_await_call", worker.Worker._decide)
    ],
    "a stop between two attempts waits for a node that is gone": [_swap(rollcall, "REJOIN", 1e6)],
    "a node that fails between its check and its session tells nobody": [
        _swap(analysis, "reopens", lambda not_ready, failure: False)
    ],
    "the end waits for no output": [_swap(ending.Ending, "progress", lambda self, *seen: self.launchers_gone())],
    "ranks in a process group of their own never hear SIGTERM": [_swap(below, "outside", lambda *given: [])],
    "ranks behind a wrapper hear SIGTERM twice": [
        _swap(below, "outside", lambda found, pids, group: [*pids, *_outside(found, pids, group)])
    ],
    "a failure is 0": [
        _swap(ending, "follow", lambda outcome, *rest: replace(outcome, status=0)),
    ],
}


@contextlib.contextmanager
def planted(name: str | None) -> Iterator[None]:
    """The defect of this name is there; without one, nothing is."""
    with contextlib.ExitStack() as stack:
        for plant in DEFECTS[name] if name else ():
            stack.enter_context(plant())
        yield
