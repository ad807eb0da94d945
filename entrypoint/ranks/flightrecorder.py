"""Asks torch's flight recorder in which collective operation each rank is, where it may be asked.

A process group of NCCL or HCCL makes the named pipe PREFIX<rank>.pipe where a variable of the rank
has the prefix. Whatever is written there lets it dump its record into a file, a pickle:
https://github.com/pytorch/pytorch/blob/main/torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp,
https://docs.pytorch.org/tutorials/unstable/flight_recorder_tutorial.html
"""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import stat
import time
from collections.abc import Iterable, Mapping
from typing import Any

from entrypoint.text import one_line

_MOST = 16 << 20  # bytes of a record
_PAUSE = 0.1  # seconds between two looks at the files
_LONGEST = 100  # characters of what is said of a rank


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


def ask(place: tuple[str, str], ranks: Iterable[int], limit: float) -> dict[int, str]:
    """Return the operation of each of these ranks that answers within `limit` seconds. It reads
    files that may be on a slow disk: not for the event loop."""
    pipe, record = place
    ends = time.monotonic() + limit
    before = {rank: _state(f"{record}{rank}") for rank in ranks}
    awaited = {rank for rank in before if _demand(f"{pipe}{rank}.pipe")}
    found: dict[int, str] = {}
    while awaited - found.keys() and time.monotonic() < ends:
        time.sleep(_PAUSE)
        for rank in awaited - found.keys():
            path = f"{record}{rank}"
            if _state(path) not in (before[rank], None) and (operation := _read(path)):
                found[rank] = operation
    return found


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


def _state(path: str) -> tuple[int, int, int] | None:
    with contextlib.suppress(OSError):
        found = os.stat(path, follow_symlinks=False)
        return found.st_ino, found.st_mtime_ns, found.st_size
    return None


def _read(path: str) -> str:
    """Return the operation in a record; "" while it is not complete, or is none."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        with open(file, "rb") as record:
            return operation(record.read(_MOST))
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
