"""The worker's end of a leader's session, over its real socket."""

from __future__ import annotations

import asyncio
import socket
import tempfile
from pathlib import Path

from entrypoint.host.files import RunDir
from entrypoint.job import messages
from entrypoint.session import codec
from entrypoint.session.endpoint import Endpoint


def test_a_write_that_fails_loses_nothing_that_lies_unread() -> None:
    heard: list[object] = []

    async def leaves_with_a_result(run_dir: RunDir) -> None:
        lost, first = asyncio.Event(), asyncio.Event()

        def on_message(message: object) -> None:
            heard.append(message)
            first.set()

        endpoint = Endpoint(on_message, lambda why: lost.set(), lambda first: True)
        await endpoint.open(run_dir)
        with socket.socket(socket.AF_UNIX) as leader:
            leader.connect(str(run_dir.path / "attend.sock"))
            leader.sendall(codec.pack(messages.Start(1)))
            await asyncio.wait_for(first.wait(), 5)
            leader.sendall(codec.pack(messages.Release(0, "", False, False)))
        endpoint.send(messages.Stopped())  # nobody is there any more, and the result is not read yet
        await asyncio.wait_for(lost.wait(), 5)
        endpoint.close()

    with tempfile.TemporaryDirectory(prefix="ep-", dir="/tmp") as folder:
        run_dir = RunDir(str(Path(folder) / "run"))
        asyncio.run(leaves_with_a_result(run_dir))
        run_dir.close()
    assert heard == [messages.Start(1), messages.Release(0, "", False, False)]
