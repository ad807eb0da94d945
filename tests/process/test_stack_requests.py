"""The socket at which `entrypoint stacks` asks, and what other processes can do there: nothing."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import sys
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import pytest

from entrypoint.base.errors import UnavailableError
from entrypoint.session.stackrequests import StackRequests, ask
from entrypoint.system.files import RunDir
from tests.process.bench import in_loop


@asynccontextmanager
async def listening(folder: Path) -> AsyncIterator[StackRequests]:
    """Requests, each of which is answered at once."""
    run_dir = RunDir(str(folder))
    requests = StackRequests(run_dir, lambda: requests.answer(["a rank waits"]))
    try:
        yield requests
    finally:
        requests.close()
        run_dir.close()


def client(folder: Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(str(folder / "node"))
    return connection


async def asked(folder: Path) -> list[str]:
    return await asyncio.to_thread(ask, folder)


@in_loop
async def test_whoever_asks_is_answered(folder: Path) -> None:
    async with listening(folder):
        assert await asked(folder) == ["a rank waits"]
    with pytest.raises(UnavailableError, match="EP038 stacks cannot be read"):
        await asked(folder)


@in_loop
async def test_processes_that_only_connect_hold_up_nobody(folder: Path) -> None:
    """Whatever they send; and what is kept of them is bounded."""
    async with listening(folder) as requests:
        requests._wanted = lambda: None
        handles = len(os.listdir("/proc/self/fd"))
        with ExitStack() as held:
            for _ in range(100):
                held.enter_context(client(folder)).send(b"x" * 1000)
                await asyncio.sleep(0.001)
            last = asyncio.ensure_future(asked(folder))
            await asyncio.sleep(0.1)
            assert len(os.listdir("/proc/self/fd")) <= handles + 100 + 30
            requests.answer(["late"])
            assert await last == ["late"]


@in_loop
async def test_without_a_file_handle_it_waits_and_goes_on(folder: Path) -> None:
    async with listening(folder):
        assert await asked(folder), "the control"
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        with ExitStack() as held:
            late = held.enter_context(client(folder))
            resource.setrlimit(resource.RLIMIT_NOFILE, (late.fileno() + 1, hard))
            held.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
            used, begun = time.process_time(), time.monotonic()
            await asyncio.sleep(0.3)
            used = time.process_time() - used
            assert used < (time.monotonic() - begun) / 2, "it does not try again and again"
        assert await asked(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
@pytest.mark.parametrize("user", [65534, 0])
@in_loop
async def test_another_user_is_not_answered(folder: Path, user: int) -> None:
    """Not even where it could open the socket. The control is root."""
    code = """
import os, socket, sys
os.setuid(int(sys.argv[1]))
with socket.socket(socket.AF_UNIX) as sender:
    sender.connect("node")
    sys.exit(0 if sender.recv(1) else 3)
"""
    async with listening(folder):
        folder.chmod(0o711)
        (folder / "node").chmod(0o666)
        sender = await asyncio.create_subprocess_exec(
            sys.executable, "-c", code, str(user), cwd=folder
        )
        assert await sender.wait() == (0 if user == 0 else 3)
