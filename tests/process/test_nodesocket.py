"""The node socket, and what a broken or hostile process of this node can do to it: nothing."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from entrypoint.system.files import RunDir
from entrypoint.system.nodesocket import UNKNOWN, Connection, NodeSocket
from tests.process.bench import in_loop

Heard = list[tuple[str, Any]]
# A process that sends the same on many connections, and waits for its end.
SENDS = """
import socket, sys
place, count, data, times = sys.argv[1:]
data = data.encode().decode("unicode_escape").encode("latin-1")
held = []
for _ in range(int(count)):
    held.append(socket.socket(socket.AF_UNIX))
    held[-1].connect(place)
    try:
        for _ in range(int(times)):
            held[-1].sendall(data)
    except OSError:
        pass
print("sent", flush=True)
sys.stdin.read()
"""


@asynccontextmanager
async def listening(folder: Path) -> AsyncIterator[tuple[NodeSocket, Heard]]:
    """A node socket that takes processes of the kinds `good` and `other`, and what they said."""
    heard: Heard = []

    def begin(connection: Connection, value: Any) -> None:
        heard.append(("begin", value))
        connection.handler = lambda *line: heard.append(line)

    run_dir = RunDir(str(folder))
    node = NodeSocket(run_dir)
    node.kinds["good"] = begin
    node.kinds["other"] = begin
    node.kinds["rejected"] = lambda connection, value: None
    try:
        yield node, heard
    finally:
        node.close()
        run_dir.close()


def client(folder: Path, data: bytes) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(str(folder / "node"))
    connection.sendall(data)
    return connection


async def is_heard(folder: Path, heard: Heard) -> bool:
    """Whether a new process is heard within a moment."""
    number, end = 1000 + len(heard), time.monotonic() + 10
    expected = [("begin", number), ("line", number)]
    with client(folder, b'["good", %d]\n["line", %d]\n' % (number, number)):
        while expected[1] not in heard and time.monotonic() < end:
            await asyncio.sleep(0.01)
    return [each for each in heard if each in expected] == expected


@pytest.mark.parametrize(
    ("count", "data", "times"),
    [
        (3000, "", 1),
        (3000, '["good",', 1),
        (1, "x" * 65536, 16384),
        (1, '["good", 0]\\n' + "x" * 65536, 16384),
        (300, '["rejected", 0]\\n["good", 1]\\n', 100),
        (300, "\\x00\\xff[[\\n", 100),
        (1, "[" * 500 + "\\n", 10000),
    ],
    ids=["silent", "half", "long", "long-later", "rejected", "junk", "deep"],
)
@in_loop
async def test_a_process_that_does_not_keep_to_the_rules(
    folder: Path, count: int, data: str, times: int
) -> None:
    """It is heard no further, keeps a bounded number of connections, and others are heard."""
    async with listening(folder) as (_, heard):
        handles = len(os.listdir("/proc/self/fd"))
        words = (sys.executable, "-c", SENDS, str(folder / "node"), str(count), data, str(times))
        hostile = await asyncio.create_subprocess_exec(
            *words, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (4000, 4000)),
        )  # fmt: skip
        assert await is_heard(folder, heard)
        assert hostile.stdout is not None
        if times <= 100:  # otherwise it is blocked, since nobody reads
            assert await hostile.stdout.readline() == b"sent\n"
        assert await is_heard(folder, heard)
        assert len(os.listdir("/proc/self/fd")) <= handles + UNKNOWN + 8
        hostile.kill()
        await hostile.communicate()
        assert ("line", 0) not in heard
        assert sum(name == "begin" for name, _ in heard) <= 3


@in_loop
async def test_without_a_file_handle_it_waits_and_goes_on(folder: Path) -> None:
    async with listening(folder) as (_, heard):
        assert await is_heard(folder, heard), "the control"
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        with ExitStack() as held:
            late = held.enter_context(client(folder, b'["good", 7]\n'))
            resource.setrlimit(resource.RLIMIT_NOFILE, (late.fileno() + 1, hard))
            held.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
            begun = time.process_time()
            await asyncio.sleep(0.3)
            assert time.process_time() - begun < 0.15, "it does not try again and again"
            assert ("begin", 7) not in heard
        with client(folder, b'["good", 8]\n'):
            while ("begin", 8) not in heard:
                await asyncio.sleep(0.01)


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
@pytest.mark.parametrize("user", [65534, 0])
@in_loop
async def test_another_user_is_not_heard(folder: Path, user: int) -> None:
    """Not even where it could open the socket. The control is root."""
    code = """
import os, socket, sys
os.setuid(int(sys.argv[1]))
with socket.socket(socket.AF_UNIX) as sender:
    sender.connect("node")
    try:
        sender.sendall(b'["good", 5]\\n')
        sender.shutdown(socket.SHUT_WR)
        sender.recv(1)
    except OSError:
        pass  # it was closed at once
"""
    async with listening(folder) as (_, heard):
        folder.chmod(0o711)
        (folder / "node").chmod(0o666)
        sender = await asyncio.create_subprocess_exec(
            sys.executable, "-c", code, str(user), cwd=folder
        )
        assert await sender.wait() == 0
        assert (("begin", 5) in heard) == (user == 0)


@in_loop
async def test_a_process_of_an_earlier_attempt_is_not_heard(folder: Path) -> None:
    """Its connection ended with that attempt, whose socket had the same place."""
    async with listening(folder):
        early = client(folder, b'["good", 0]\n')
    async with listening(folder) as (_, heard):
        with early, pytest.raises(OSError, match="Broken pipe"):
            early.sendall(b'["line", 1]\n')
        assert await is_heard(folder, heard)
        assert [name for name, _ in heard] == ["begin", "line"], "of the new one alone"


@in_loop
async def test_read_handles_all_that_was_sent_of_one_kind(folder: Path) -> None:
    """In its order, also where a handler reads. A line of the other kind comes later."""
    async with listening(folder) as (node, heard):
        lines: Heard = []

        def begin(connection: Connection, value: Any) -> None:
            def handle(*line: Any) -> None:
                lines.append(line)
                node.read("good")

            connection.handler = handle
            node.read("good")

        node.kinds["good"] = begin
        good = client(folder, b'["good", 0]\n["a", 1]\n["b", 2]\n')
        with good, client(folder, b'["other", 0]\n["c", 3]\n'):
            node.read("good")
            assert lines == [("a", 1), ("b", 2)]
            good.sendall(b'["d", 4]\n["e",')
            node.read("good")
            good.sendall(b" 5]\n")
            good.shutdown(socket.SHUT_WR)
            node.read("good")
            assert lines[2:] == [("d", 4), ("e", 5)]
            assert heard == [("begin", 0)], "the other process has begun, and said nothing yet"
            await asyncio.sleep(0.01)
            assert heard == [("begin", 0), ("c", 3)]
        client(folder, b'["good", 0]\n["f", 6]\n').close()  # gone before it has begun
        node.read("good")
        assert lines[4:] == [("f", 6)]
