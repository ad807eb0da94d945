"""A gigabyte of output through mpirun: its rate, whether all of it arrives, and our memory
meanwhile."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from tests.containers import docker

from ..engine import Bare, Failed, bare, create_job, ended, processes, said
from ..figures import Goal
from ..page import About
from ..table import Row, Table
from .idle import of

OURS, BARE, FLOOR = "entrypoint", "bare mpirun", "bare mpirun, each rank below script(1)"
_RANKS = 4
_MOST, _MORE = "our memory on worker-{}, at most", "our memory on worker-{}, growth"
_UNITS = {OURS: "MB/s", "bytes lost": "bytes"} | {
    each.format(rank): "MB" for rank in (0, 1) for each in (_MOST, _MORE)
}


def measure(table: Table) -> None:
    """1 GB through 4 ranks on 2 nodes, into a program that counts it."""
    size = (16 << 20) if table.quick else 1_000_000_000
    each = size // _RANKS
    case, network = f"{size // 1_000_000} MB, 4 ranks on 2 nodes", table.engine.network()
    with bare(table.engine, table.image, 2) as floor:
        for _ in range(table.runs):
            table.take(case, BARE, "MB/s", _by_hand, floor, _program(each), each)
            below = f"script -qec 'stty raw; {_program(each)}' /dev/null"
            # it adds some characters of its own
            table.take(case, FLOOR, "MB/s", _by_hand, floor, below, each, 99)
            table.take_all(case, _UNITS, _by_toolkit, table, network, each)


def _program(each: int) -> str:
    return f"python3 /bench/rank.py lines {each}"


def _by_hand(floor: Bare, program: str, each: int, more: int = 0) -> float:
    script = f"set -o pipefail; {floor.line(program, 2)} | python3 /bench/inside.py count 2>&1"
    found = json.loads(
        docker("exec", floor.names[0], "bash", "-c", script, timeout=300).splitlines()[-1]
    )
    if (lost := _lost(found, each)) > more:
        raise Failed(f"{lost} bytes are not there")
    return _rate(found)


def _by_toolkit(table: Table, network: str, each: int) -> dict[str, float]:
    env = {"ENTRYPOINT_LAUNCHER": "mpirun", "ENTRYPOINT_SLOTS": "2"}
    script = f"set -o pipefail; image-entry {_program(each)} | python3 /bench/inside.py count"
    options = ("--no-healthcheck", "--init", "--entrypoint", "bash")
    names = create_job(
        table.engine, table.image, 2, network, "-c", script, env=env, options=options
    )
    try:
        docker("start", *names)
        with _memory(names) as samples:
            after = ended(names, 300)
        if any(state.status for state in after.values()):
            raise Failed(
                f"exit statuses {[state.status for state in after.values()]}:"
                f" {said(names[0])[1][-200:]}"
            )
        found = json.loads(
            next(line for line in said(names[0])[1].splitlines() if line.startswith('{"letters"'))
        )
        given = {OURS: _rate(found), "bytes lost": float(_lost(found, each))}
        for rank, name in enumerate(names):
            given[_MOST.format(rank)], given[_MORE.format(rank)] = grown(samples[name])
        return given
    finally:
        table.engine.remove(names)


# container -> number of our processes, their memory (MB), in time's order
Samples = dict[str, list[tuple[int, float]]]


@contextlib.contextmanager
def _memory(names: list[str]) -> Iterator[Samples]:
    """Our processes in each container and their resident memory during the block, seen twice a
    second."""
    samples: Samples = {name: [] for name in names}
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.5):
            for name in names:
                # it has ended
                with contextlib.suppress(AssertionError, OSError, IndexError, KeyError, ValueError):
                    ours = [
                        each
                        for each in of(processes(name), "ours")
                        if not any(word.startswith("/bench/") for word in each.words[:2])
                    ]
                    samples[name].append((len(ours), sum(each.resident for each in ours)))

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield samples
    finally:
        over.set()
        thread.join(10)


def grown(samples: Sequence[tuple[int, float]]) -> tuple[float, float]:
    """The most memory, and by how much it is over the first look at as many processes, both in
    MB."""
    count, most = max(samples, key=lambda each: each[1])
    return most, most - next(memory for number, memory in samples if number == count)


def _lost(found: dict[str, Any], each: int) -> int:
    """Bytes of ranks that are not there, or are too many."""
    expected = [each - each // 128] * _RANKS
    letters = sum(abs(want - have) for want, have in zip(expected, found["letters"], strict=True))
    return int(letters + abs(each * _RANKS - sum(expected) - found["line ends"]))


def _rate(found: dict[str, Any]) -> float:
    """MB, of a million bytes, in a second."""
    size: int = sum(found["letters"]) + found["line ends"]
    return size / float(found["seconds"]) / 1e6


_CASE = "1000 MB, 4 ranks on 2 nodes"
ROW = Row(
    About(
        "output", "Output",
        "Each of 4 ranks on 2 nodes prints a quarter of 10^9 bytes, in lines of its own letter, into mpirun's "
        "stdout. A program on worker-0 counts the letters; the rate is that between the first and the last bytes. "
        "Memory: resident, of tini, the entrypoint and the supervisors of the ranks together; the maximum of two "
        "readings each second. Growth: this maximum, minus the memory that the same number of processes used at "
        "the first reading. \"Below script(1)\": as bare mpirun, but each rank writes into a terminal of that small "
        "C program, which passes the output on to mpirun's terminal. A supervisor that stores a rank's last lines "
        "needs such a second terminal, too.",
        (
            Goal(_CASE, OURS, BARE, "at least", 0.8),
            Goal(_CASE, "bytes lost", "", "each", 0),
            Goal(_CASE, _MORE.format(0), "", "each", 2.0),
            Goal(_CASE, _MORE.format(1), "", "each", 2.0),
        ),
    ),
    measure, 3,
)  # fmt: skip
