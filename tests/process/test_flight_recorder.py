"""torch's flight recorder: a pipe for each rank, on which a thread of the rank is asked for its
record. That the real one has this form is shown with torch in tests/stalls."""

from __future__ import annotations

import asyncio
import os
import pickle
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from entrypoint.ranks.stall import flightrecorder
from tests.waits import PATIENCE


def entry(name: str, number: int, state: str, **more: Any) -> dict[str, Any]:
    group = ("0", "default_pg")
    return {
        "profiling_name": f"nccl:{name}", "collective_seq_id": number, "p2p_seq_id": 7,
        "process_group": group, "state": state, "retired": False, "is_p2p": False, **more,
    }  # fmt: skip


def record(*entries: dict[str, Any]) -> bytes:
    return pickle.dumps({"version": "2.10", "entries": list(entries)}, protocol=2)


DONE = entry("all_reduce", 40, "completed")
WAITS = entry("all_reduce", 41, "started")


@contextmanager
def recorder(folder: Path, rank: int, answer: bytes | None, late: float = 0.0) -> Iterator[None]:
    """A thread that reads the pipe of a rank, and writes this record when it is asked."""
    pipe = folder / f"pipe-{rank}.pipe"
    os.mkfifo(pipe)
    read = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    ends = threading.Event()

    def serve() -> None:
        while not ends.wait(0.02):
            if b"1" in (os.read(read, 100) or b"") and answer is not None:
                with open(folder / f"record-{rank}", "wb") as file:
                    file.write(answer[:10])
                    file.flush()
                    time.sleep(late)
                    file.write(answer[10:])

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join()
        os.close(read)


def asked(folder: Path, *ranks: int, limit: float = PATIENCE) -> dict[int, str]:
    place = (f"{folder}/pipe-", f"{folder}/record-")
    return asyncio.run(flightrecorder.ask(place, ranks, limit))


def test_each_rank_says_in_which_operation_it_is(tmp_path: Path) -> None:
    with recorder(tmp_path, 0, record(DONE, WAITS), late=0.5), recorder(tmp_path, 1, record(DONE)):
        assert asked(tmp_path, 0, 1, 2) == {
            0: "all_reduce 41 of default_pg, started",
            1: "all_reduce 40 of default_pg, complete",
        }, "rank 2 has no pipe"


def test_a_record_of_an_earlier_hour_is_no_answer(tmp_path: Path) -> None:
    (tmp_path / "record-0").write_bytes(record(WAITS))
    with recorder(tmp_path, 0, None):
        assert asked(tmp_path, 0, limit=0.5) == {}


def test_a_file_that_is_no_pipe_is_not_written(tmp_path: Path) -> None:
    other = tmp_path / "precious"
    other.write_text("mine")
    (tmp_path / "pipe-0.pipe").symlink_to(other)
    (tmp_path / "pipe-1.pipe").write_text("mine")
    assert asked(tmp_path, 0, 1, limit=0.2) == {}
    assert other.read_text() == (tmp_path / "pipe-1.pipe").read_text() == "mine"


def test_a_pipe_that_nobody_reads_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe-0.pipe")
    assert asked(tmp_path, 0, limit=600.0) == {}


class Code:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch /tmp/entrypoint-was-run",)


@pytest.mark.parametrize(
    ("data", "operation"),
    [
        (record(WAITS, DONE), "all_reduce 41 of default_pg, started"),
        (record({**WAITS, "retired": True}), "all_reduce 41 of default_pg, complete"),
        (record({**WAITS, "is_p2p": True}), "all_reduce 7 of default_pg, started"),
        (record({**WAITS, "profiling_name": "a\n\x1b[31mb" * 99})[:-1] + b".", None),
        (record(WAITS)[:-20], ""),
        (record(), ""),
        (pickle.dumps([1]), ""),
        (pickle.dumps({"entries": [Code()]}), ""),
        (b"", ""),
        (b"\x80", ""),
    ],
)
def test_a_record_is_read_and_never_run(data: bytes, operation: str | None) -> None:
    found = flightrecorder.operation(data)
    assert not os.path.exists("/tmp/entrypoint-was-run")
    assert len(found) <= 100
    assert found.isprintable()
    assert operation is None or found == operation


@pytest.mark.parametrize(
    ("library", "env", "place"),
    [
        ("", {}, None),
        ("", {"TORCH_FR_DUMP_TEMP_FILE": "/d/r"}, None),
        ("NCCL", {"HOME": "/h"}, "/h/.cache/torch/comm_lib_trace_rank_"),
        ("NCCL", {"HOME": "/h", "XDG_CACHE_HOME": "/x"}, "/x/torch/comm_lib_trace_rank_"),
        ("NCCL", {"TORCH_NCCL_DEBUG_INFO_TEMP_FILE": "/old/r"}, "/old/r"),
        ("HCCL", {}, "/tmp/hccl_trace_rank_"),
    ],
)
def test_where_the_records_are(library: str, env: dict[str, str], place: str | None) -> None:
    pipe = {f"TORCH_{library}_DEBUG_INFO_PIPE_FILE": "/p/x"} if library else {}
    assert flightrecorder.prefixes({**env, **pipe}) == (("/p/x", place) if place else None)
