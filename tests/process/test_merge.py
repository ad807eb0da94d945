"""The output of several nodes on one stream: whole lines, and every byte."""

from __future__ import annotations

import asyncio
import fcntl
import os
import resource
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from entrypoint.output.mux import Merge
from entrypoint.system.threads import in_thread

pytestmark = pytest.mark.see


@pytest.fixture(autouse=True)
def limited() -> Iterator[None]:
    """A mistake that writes forever must not fill the disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (128 << 20, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    read, write = os.pipe()
    yield read, write
    os.close(read)
    os.close(write)


def merged(writers: list[Callable[[int], object]], target: int) -> None:
    """Have each of them write into a source of its own, at the same time."""

    async def run() -> None:
        merge, threads = Merge(), []
        for write in writers:
            reading, writing = os.pipe()
            merge.add(reading, target)
            threads.append(
                threading.Thread(
                    target=lambda write=write, fd=writing: (write(fd), os.close(fd)), daemon=True
                )
            )
        for thread in threads:
            thread.start()
        await in_thread(lambda: [thread.join() for thread in threads])
        await merge.finish()

    asyncio.run(run())


def write_all(fd: int, data: bytes, step: int = 4099) -> None:
    for at in range(0, len(data), step):
        piece = data[at : at + step]
        while piece:
            piece = piece[os.write(fd, piece) :]


@pytest.mark.promise(
    "what several nodes print is passed on in whole lines, byte for byte",
    control="nodes that write to one file by themselves, in the same test",
)
def test_lines_of_many_nodes_stay_whole(tmp_path: Path) -> None:
    """Long and short ones, one of megabytes, not UTF-8, in pieces; one has no end."""
    each = [
        b"".join(
            b"%d %d " % (node, number) + bytes([65 + node]) * (number * 37) + b"\xff\n"
            for number in range(300)
        )
        for node in range(4)
    ]
    each[2] += b"2 " + b"L" * (5 << 20) + b"\n"
    each[3] += b"3 no end"
    with (tmp_path / "out").open("wb") as out:
        merged([lambda fd, data=data: write_all(fd, data) for data in each], out.fileno())
    assert broken((tmp_path / "out").read_bytes(), each) == []
    # The control: pieces of two that write by themselves.
    pieces = [
        piece
        for at in range(0, 90_000, 4099)
        for piece in (each[0][at:][:4099], each[1][at:][:4099])
    ]
    assert broken(b"".join(pieces), [each[0][:90_200], each[1][:90_200]]) == [0, 1]


def broken(out: bytes, each: list[bytes]) -> list[int]:
    """The nodes whose lines are not all there, whole and in order."""
    lines = out.split(b"\n")
    mine = [
        b"\n".join(line for line in lines if line.startswith(b"%d " % node))
        for node in range(len(each))
    ]
    return [node for node, data in enumerate(each) if mine[node] != data.removesuffix(b"\n")]


@pytest.mark.parametrize("pieces", [(b"10%\r",), (b"line\n", b"name? ")], ids=["bar", "prompt"])
def test_a_progress_bar_and_a_prompt_are_seen_before_their_line_ends(
    pieces: tuple[bytes, ...], pipe: tuple[int, int]
) -> None:
    read, write = pipe
    seen: list[bytes] = []

    def print_and_wait(fd: int) -> None:
        os.write(fd, b"".join(pieces))
        seen.extend(os.read(read, 99) for _ in pieces)
        os.write(fd, b"20%\n")

    merged([print_and_wait], write)
    assert seen == [*pieces]
    assert os.read(read, 99) == b"20%\n"


@pytest.mark.promise("what several nodes print is passed on in whole lines, byte for byte")
@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_line_that_never_ends_holds_up_nobody_for_long(stream: str) -> None:
    """One node prints more than a MiB without an end, and waits for another, whose line comes there
    or on stderr."""
    out, other = os.pipe(), os.pipe()
    os.set_blocking(out[0], False)
    second = out if stream == "stdout" else other
    text = bytearray()

    async def run() -> None:
        merge, (long, long_in), (short, short_in) = Merge(), os.pipe(), os.pipe()
        merge.add(long, out[1])
        merge.add(short, second[1])
        loop, here = asyncio.get_running_loop(), asyncio.Event()

        def read() -> None:
            text.extend(os.read(second[0], 1 << 20))
            if b"here\n" in text:
                here.set()

        for each in {out[0], second[0]}:
            loop.add_reader(each, read if each == second[0] else lambda: os.read(out[0], 1 << 20))
        await in_thread(lambda: write_all(long_in, b"L" * (3 << 19)))
        os.write(short_in, b"here\n")
        await here.wait()
        os.close(long_in)
        os.close(short_in)
        await merge.finish()

    asyncio.run(run())
    assert text.endswith(b"here\n")
    for fd in (*out, *other):
        os.close(fd)


def test_what_nobody_reads_is_given_up_and_counted(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("entrypoint.output.mux._LAST", 0.3)
    read, write = pipe
    fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, 4096)

    async def run() -> int:
        merge, (reading, writing) = Merge(), os.pipe()
        merge.add(reading, write)
        await in_thread(lambda: write_all(writing, b"line\n" * 4_000))
        os.close(writing)
        return await merge.finish()

    lost = asyncio.run(run())
    assert lost == 20_000 - len(os.read(read, 1 << 20))


def test_who_reads_nothing_any_more_ends_nothing() -> None:
    """As `| head` does; the reader of a pipe that is full and stays full is given up after some
    seconds."""
    read, write = os.pipe()
    os.close(read)
    merged([lambda fd: write_all(fd, b"x\n" * 1_000_000)], write)
    os.close(write)


def test_a_slow_reader_gets_all_and_holds_memory_down(tmp_path: Path) -> None:
    """64 MiB through a pipe whose reader starts late: read, and not held."""
    code = f"""
import asyncio, os, resource, sys, threading
from entrypoint.output.mux import Merge
async def main():
    merge, (reading, writing) = Merge(), os.pipe()
    merge.add(reading, 1)
    def write():
        for _ in range(1024):
            os.write(writing, b"x" * 65535 + b"\\n")
        os.close(writing)
    await asyncio.to_thread(write)
    await merge.finish()
asyncio.run(main())
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024, file=open({str(tmp_path / "peak")!r}, "w"))
"""
    command = f"{sys.executable} -c '{code.replace(chr(39), chr(34))}' | {{ sleep 1; wc -c; }}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert int(done.stdout) == 64 << 20
    assert int((tmp_path / "peak").read_text()) < 45
