"""Asks torch's flight recorder in which collective operation each rank is, where it may be asked.

A process group of NCCL or HCCL makes the named pipe PREFIX<rank>.pipe where a variable of the rank
has the prefix. Whatever is written there lets it dump its record into a file, a pickle:
https://github.com/pytorch/pytorch/blob/main/torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp,
https://docs.pytorch.org/tutorials/unstable/flight_recorder_tutorial.html
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import pickle
import stat
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from entrypoint.base.errors import RetryError
from entrypoint.base.text import one_line
from entrypoint.system.descriptors import read_regular
from entrypoint.system.threads import in_thread, rest

_MOST = 16 << 20  # bytes of a record
_PAUSE = 0.1  # seconds between two scans of the files
_LONGEST = 100  # characters of what is said of a rank

# Inode, time of the last change (ns) and size of a file; None if there is none.
FileState = tuple[int, int, int] | None


def prefixes(env: Mapping[str, str]) -> tuple[str, str] | None:
    """Return where ranks of this environment have their pipes and their records, as the beginnings
    of paths that end with the rank; None if they have no pipes."""
    if pipe := env.get("TORCH_NCCL_DEBUG_INFO_PIPE_FILE"):
        cache = env.get("XDG_CACHE_HOME") or f"{env.get('HOME', '/tmp')}/.cache"
        names = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
        records = [env[name] for name in names if env.get(name)]
        return pipe, (*records, f"{cache}/torch/comm_lib_trace_rank_")[0]
    if pipe := env.get("TORCH_HCCL_DEBUG_INFO_PIPE_FILE"):
        return pipe, env.get("TORCH_HCCL_DEBUG_INFO_TEMP_FILE") or "/tmp/hccl_trace_rank_"
    return None


async def ask(place: tuple[str, str], ranks: Sequence[int], limit: float) -> dict[int, str]:
    """Return the operation of each of these ranks that answers within `limit` seconds. Files are
    read in a thread: they may be on a slow disk."""
    found: dict[int, str] = {}
    # Whatever has been found by then counts; no thread can start where there is no room for one.
    with contextlib.suppress(asyncio.TimeoutError, RetryError):
        await asyncio.wait_for(_gather(place, ranks, found), limit)
    return found


async def _gather(place: tuple[str, str], ranks: Sequence[int], found: dict[int, str]) -> None:
    awaited = await in_thread(partial(_demand_all, place, ranks))
    while awaited:
        await rest(_PAUSE)
        answers = await in_thread(partial(_answers, place[1], awaited))
        found.update(answers)
        awaited = {rank: state for rank, state in awaited.items() if rank not in answers}


def _demand_all(place: tuple[str, str], ranks: Sequence[int]) -> dict[int, FileState]:
    """Ask for the records of these ranks; return how those that will come are now."""
    pipe, record = place
    before = {rank: _state(f"{record}{rank}") for rank in ranks}
    return {rank: before[rank] for rank in ranks if _demand(f"{pipe}{rank}.pipe")}


def _answers(record: str, before: Mapping[int, FileState]) -> dict[int, str]:
    """Return the operation in each record that is there, is new and is complete."""
    paths = {rank: f"{record}{rank}" for rank in before}
    changed = [rank for rank, path in paths.items() if _state(path) not in (before[rank], None)]
    return {rank: answer for rank in changed if (answer := _read(paths[rank]))}


def _demand(pipe: str) -> bool:
    """Return whether a process reads this pipe, and was asked."""
    try:
        file = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return stat.S_ISFIFO(os.fstat(file).st_mode) and os.write(file, b"1") == 1
    except OSError:
        return False
    finally:
        os.close(file)


def _state(path: str) -> FileState:
    with contextlib.suppress(OSError):
        found = os.stat(path, follow_symlinks=False)
        return found.st_ino, found.st_mtime_ns, found.st_size
    return None


def _read(path: str) -> str:
    """Return the operation in a record; "" while it is not complete, or is none."""
    try:
        return operation(read_regular(path, _MOST))
    except OSError:
        return ""


class _PlainUnpickler(pickle.Unpickler):
    """Makes numbers, texts and lists alone: a pickle may otherwise run whatever it names."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"{module}.{name}")


def operation(record: bytes) -> str:
    """Return the first operation of a record that is not complete, otherwise the last one; "" if
    there is none."""
    try:
        entries = _PlainUnpickler(io.BytesIO(record)).load()["entries"]
        pending = (entry for entry in entries if not _is_complete(entry))
        entry = next(pending, None) or entries[-1]
        name = str(entry["profiling_name"]).rpartition(":")[2]
        number = int(entry["p2p_seq_id" if entry.get("is_p2p") else "collective_seq_id"])
        group = str(entry["process_group"][1])
        state = "complete" if _is_complete(entry) else str(entry["state"])
    except Exception:  # whatever is in the file of a rank
        return ""
    return one_line(f"{name} {number} of {group}, {state}", _LONGEST)


def _is_complete(entry: Mapping[str, Any]) -> bool:
    # Gloo's entries are retired, and their state stays as it was.
    return entry["state"] == "completed" or bool(entry.get("retired"))
