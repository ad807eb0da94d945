"""Transcripts: what a machine answers to what it is told, as a story in tests/transcripts/.

A story begins with a line `## TITLE`. Below it are blocks: commands, a line `----`, and what the
machine has answered; `#` begins a comment. What stands above the first story comes before each.
`make golden` writes the answers anew.

    leader {launcher: elastic}     this node is the leader of a, b, c (machine.py); its settings, and
                                   of the last attempt `attempt`, `team` and the nodes `expected`
    worker {me: 2}                 this node is a worker
    answer 1 2                     these nodes answer the roll call
    prepared                       this node's files are written
    wait 2                         seconds pass, in which every node answers
    idle 150 1 150                 ranks of each node have printed nothing for so many seconds
    states S S T                   the state of a rank of each node, as its stacks show it
    steps (0, 9, 900.0)            rank, its step, and the seconds since it printed that
    pause 40                       seconds pass, in which nothing comes and this node does nothing
    until Stop                     time passes until the machine sends or does this; `until Stop unread`:
                                   and what the launcher prints is not read
    0 1: Met()                     these nodes say this: messages of entrypoint.job.messages, and
                                   `end(7)`, `starts(0, 1)`, `ends(0, 1, status=7)`
    SessionLost(2)                 an event of entrypoint.job.events

What is only for those who watch is left out (`SILENT`), as are heartbeats; of an action or message
the fields that have their defaults.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import yaml

from entrypoint import __version__
from entrypoint.base.history import History
from entrypoint.base.model import Members, NodeReport, Outcome
from entrypoint.base.values import fields, is_dataclass, replace
from entrypoint.job import actions, events, messages
from entrypoint.job.membership.team import Team
from tests import TREE
from tests.unit.machine import Node, ends, starts

FOLDER = TREE / "tests/transcripts"
SILENT = (actions.Entered, actions.ShowLine, actions.CheckOutputProgress)


def stories() -> Iterator[tuple[str, str, str]]:
    """Yield the name of each story, what stands above all of its file, and its text."""
    for file in sorted(FOLDER.glob("*.txt")):
        head, *told = _split(file)
        for story in told:
            yield f"{file.stem}: {story.partition(chr(10))[0][3:]}", head, story


def _split(file: Path) -> list[str]:
    """Return what stands above the stories of a file, then each story."""
    return re.split(r"\n(?=## )", file.read_text())


def play(head: str, story: str) -> str:
    """Return a story with the answers that the machine gives."""
    title, *blocks = story.strip("\n").split("\n\n")
    told: list[str] = [title]
    node, _ = _block(None, head)
    for block in blocks:
        commands = block.partition("\n----")[0]
        node, done = _block(node, commands)
        told.append("\n".join([commands, "----", *_shown(done, node)]))
    return "\n\n".join(told) + "\n"


def _block(node: Any, commands: str) -> tuple[Any, list[Any]]:
    """Do these commands; return the machine, and what it has answered."""
    done: list[Any] = []
    for command in filter(None, commands.splitlines()):
        word, _, rest = command.partition(" ")
        if word in ("leader", "worker"):
            node = _machine(**{"me": int(word == "worker"), **(yaml.safe_load(rest) or {})})
        elif word != "#":
            before = len(node.done)
            _do(node, command)
            done += node.done[before:]
    return node, done


def _machine(attempt: int = 0, team: Sequence[int] = (), **settings: Any) -> Node:
    """Return a machine with these settings, and what the last attempt has left to this one."""
    expected, may_run = settings.pop("expected", None), settings.pop("may_run", {})
    left = {node: (until, is_silent) for node, (until, is_silent) in may_run.items()}
    if team:
        nodes = frozenset((0, 1, 2) if expected is None else expected)
        reasons = dict.fromkeys(left, "lost")
        settings["team"] = Team(tuple(team), nodes, reasons=reasons, may_run=left)
    node = Node(**settings)
    if attempt:
        node.machine.state.history = replace(node.machine.state.history, attempt=attempt)
    return node


def _do(node: Node, command: str) -> None:
    """Have a machine do one command."""
    word, _, rest = command.partition(" ")
    numbers = map(int, re.findall(r"\d+", rest if word == "answer" else command.partition(":")[0]))
    if word == "answer":
        node.answers(*numbers)
    elif word == "wait":
        node.waits(float(rest))
    elif word == "until":
        _until(node, *rest.split())
    elif word == "idle":
        node.idle = [float(seconds) for seconds in rest.split()]
    elif word == "states":
        node.states = rest.split()
    elif word == "steps":
        node.steps = [*eval(f"({rest},)")]
    elif word == "pause":
        node.now += float(rest)
    elif word == "prepared":
        node.told(events.Prepared(node.launch.ranks.reported, node.launch.awaited))
    elif re.match(r"[\d ]+:", command):
        said = _value(node, command.partition(":")[2].strip())
        for number in numbers:
            node.hears(*(said if isinstance(said, list) else [said]), sender=number)
    else:
        node.told(_value(node, command))


def _until(node: Node, kind: str, read: str = "") -> None:
    """Have time pass until the machine sends such a message, or does this; note how much."""
    begun, done = node.now, list[Any]()
    while not any(kind in (type(each).__name__, _sent(each)) for each in done):
        node.now = max(node.now, node.machine.wake)
        done = node.told(events.TimerFired())
        for _ in [each for each in done if isinstance(each, actions.CheckOutputProgress)]:
            done = done + node.told(events.OutputProgress(100, not read))
    node.done.append(f"after {node.now - begun:.1f} s")


def _sent(action: Any) -> str:
    return type(getattr(action, "message", None)).__name__


def _value(node: Node, text: str) -> Any:
    """Return the event, or the messages, that a command names."""

    def end(status: int, last: bool = True) -> messages.Ended:
        name = node.hello.launcher
        return messages.Ended(status, name, f"{name} exited with {status}", (), last)

    def report(rank: int, attempt: int = 1, **more: Any) -> NodeReport:
        return NodeReport(rank, 2, __version__, "4.1.4", history=History(attempt), **more)

    names = {
        "end": end,
        "starts": starts,
        "ends": ends,
        "report": report,
        "Outcome": Outcome,
        "replace": replace,
    }
    return eval(text, {**vars(messages), **vars(events), **names, "hello": node.hello})


def _shown(done: Sequence[Any], node: Node) -> Iterator[str]:
    """Yield a line for each answer, one for a message to several nodes; then how the job ends."""
    beat = messages.Ping(0)
    heard = [
        each
        for each in done
        if not isinstance(each, SILENT) and getattr(each, "message", None) != beat
    ]
    for _, group in groupby(heard, lambda each: getattr(each, "message", id(each))):
        first, *more = group
        if isinstance(first, (actions.Log, str)):
            yield first if isinstance(first, str) else f"log {first.text}"
        elif isinstance(first, actions.Send):
            nodes = " ".join(str(each.node) for each in (first, *more))
            yield f"{nodes} < {_brief(first.message)}"
        else:
            yield _brief(first)
    if outcome := node.outcome:
        of = " of the program" * outcome.program + ", and starts again" * outcome.again
        yield f"ends with {outcome.status}{of}: {outcome.reason}"
        if outcome.cause:
            yield _brief(outcome.cause)
    else:
        yield "goes on"


def _brief(value: Any) -> str:
    """Return an action or message with those of its fields that have no default value."""
    if not is_dataclass(value):
        return repr(value)
    given = ((field, getattr(value, field.name)) for field in fields(value))
    shown = [
        f"{field.name}={_brief(own)}"
        for field, own in given
        if own != field.default and not isinstance(own, Members)
    ]
    return f"{type(value).__name__}({', '.join(shown)})"


def main() -> None:
    """Write the answers of all stories anew."""
    for file in FOLDER.glob("*.txt"):
        head, *told = _split(file)
        file.write_text("\n".join([head, *(play(head, story) for story in told)]))


if __name__ == "__main__":
    main()
