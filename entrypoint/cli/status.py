"""`entrypoint status`: show the state of the boot in this container."""

from __future__ import annotations

import argparse
import os
from typing import Any

from entrypoint.base.model import node_name
from entrypoint.base.text import columns, duration, json_document, one_line
from entrypoint.cli.parser import RUN_DIR, Command
from entrypoint.output.log import Logger, answer
from entrypoint.system.descriptors import write_all

_EVERY = 1.0  # seconds between two requests of --watch
_HEAD = ("node", "host", "phase", "since", "heartbeat", "ranks", "idle", "detail")
_TOP = "\x1b[H"  # cursor to the top
_REST = "\x1b[K"  # clear the rest of the line
_BELOW = "\x1b[J"  # clear all below


COMMAND = Command(
    "show the boot in this container: each node's phase, its duration, and its last heartbeat",
    options=(
        "--watch, -w  update every second, until the job ends",
        "--json  print JSON, durations in seconds; with --watch one line each",
        RUN_DIR,
    ),
    is_of_job=False,
    details=""" On worker-0 it shows all nodes,
on a worker that node and the leader. Run it in the container of the boot:
docker exec CONTAINER entrypoint status.

Exit status: 0 while the boot runs; the job's own once it has ended; 66 if there is no boot;
69 if the entrypoint has not written its state in time, or was killed, or a program that
replaced it has ended; 77 if the record belongs to another user; 64 if there are several boots.""",
)


def act(args: argparse.Namespace, log: Logger) -> int:
    """Print the state. Returns 0 while the boot runs, and the job's status once it has ended."""
    from entrypoint.features.record import status

    if args.watch:
        try:
            return _watch(args.run_dir, args.json)
        except BrokenPipeError:  # the reader has closed the pipe
            return 0
    try:
        state = status.ask(status.find(args.run_dir))
    except status.Starting as error:
        state = error.state
    answer(json_document(state) if args.json else _text(state) + _command(state))
    return int(state.get("status", 0))


def _watch(where: str | None, as_json: bool) -> int:
    """Print it every second until it has ended: on a terminal in the same place, elsewhere only
    changes.

    Raises BrokenPipeError if nobody reads it any more.
    """
    import json

    from entrypoint.features.record import status

    run_dir = None
    before: list[str] = []
    while True:
        try:
            run_dir = run_dir or status.find(where)
            state = status.ask(run_dir)
        except status.Silent as error:  # it may go on
            state = error.state
        if as_json:
            text = json.dumps(state) + "\n"
        elif os.isatty(1):
            rest = _text(state, os.get_terminal_size(1).lines - 4).replace("\n", f"{_REST}\n")
            text = f"{_TOP}{rest}{_BELOW}"
        else:
            up = f"{_time(state['up_seconds'])} " if "nodes" in state else ""
            lines = _changing(state)
            text = "".join(f"{up}{line}\n" for line in lines if line not in before)
            before = lines
        write_all(1, text.encode("utf-8", "backslashreplace"))
        if "status" in state:
            return int(state["status"])
        status.pause(_EVERY)


# --------------------------------------------------------------------------------------------------
# As text


def _text(state: dict[str, Any], most: int = 0) -> str:
    """Return the state as a table; `most`: rows that fit, 0 for all."""
    if "nodes" not in state:
        end = f"; exit {state['status']}" if "status" in state else ""
        return (
            f"{state['phase']}: {one_line(state.get('reason') or state.get('detail', ''))}{end}\n"
        )
    title = (
        f"job {state['job']}, launcher {state['launcher']}, attempt {state['attempt']},"
        f" up {_time(state['up_seconds'])}, seen from {node_name(state['node'], state['host'])}"
    )
    nodes = state["nodes"]
    left = 0
    if 0 < most < len(nodes):  # nodes in rare phases first
        phases = [node["phase"] for node in nodes]
        left = len(nodes) - most
        nodes = sorted(nodes, key=lambda node: phases.count(node["phase"]))[:most]
    if state.get("roll_call") == "none" and state.get("job_nodes", 1) > 1:
        title += f"; of its {state['job_nodes']} nodes only this one is known: no roll call"
    lines = columns([_HEAD, *(_row(node) for node in nodes)])
    if left:
        lines.append(f"and {left} more")
    if ended := state["outcome"]:
        lines.append(one_line(f"ending: {ended.get('reason')}; exit {ended.get('status')}"))
    return "\n".join([one_line(title), *lines]) + "\n"


def _command(state: dict[str, Any]) -> str:
    """Return the line with the command that was started; "" if it is not known."""
    return f"command: {one_line(state['command'])}\n" if state.get("command") else ""


def _row(node: dict[str, Any]) -> tuple[str, ...]:
    ranks = "-" if node["ranks"] is None else str(node["ranks"])
    if node["ranks_ended"]:
        ranks += f" ({node['ranks_ended']} ended)"
    times = {name: _time(node[f"{name}_seconds"]) for name in ("since", "heartbeat", "idle")}
    cells = {**node, **times, "ranks": ranks}
    return tuple(one_line(cells[name]) for name in _HEAD)


def _changing(state: dict[str, Any]) -> list[str]:
    """Return the lines that are printed if they change: everything except times."""
    if "nodes" not in state:
        return [_text(state).rstrip()]
    rows = map(_row, state["nodes"])
    return [": ".join(filter(None, (node_name(*row[:2]), row[2], row[-1]))) for row in rows]


def _time(seconds: float | None) -> str:
    """Return a duration in whole seconds, `-` for None."""
    return "-" if seconds is None else duration(int(seconds))
