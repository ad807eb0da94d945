"""Whether this node's sshd is up is asked of sshd itself, which may be too busy with others to
answer at once.

The sshd is a script: a real one cannot be made to turn away just its first callers.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from entrypoint.base.errors import OsError
from entrypoint.base.model import Facts
from entrypoint.system import sshd
from tests.cluster import free_port

BUSY = """#!{python}
import socket, struct, sys, time
listener = socket.create_server(("127.0.0.1", {port}))
print("Server listening on 127.0.0.1 port {port}.", file=sys.stderr, flush=True)
for answer in {answers}:
    caller, _ = listener.accept()
    if answer is None:
        caller.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset
    else:
        caller.sendall(answer)
    caller.close()
time.sleep(60)
"""


def start(folder: Path, answers: list[bytes | None], is_proven: bool = False) -> None:
    port = free_port()
    program = folder / "sshd"
    program.write_text(BUSY.format(python=sys.executable, port=port, answers=answers))
    program.chmod(0o755)
    here = Facts(
        env={}, hostname="a", cwd="/", uid=1, user="u", home="/", programs={"sshd": str(program)}
    )

    async def run() -> None:
        door = await sshd.Sshd.start(
            here, folder / "sshd_config", port, "127.0.0.1", lambda line: None, is_proven
        )
        door.stop()
        await door.ended()

    asyncio.run(run())


def test_an_sshd_that_lets_nobody_in_yet_is_asked_again(tmp_path: Path) -> None:
    start(tmp_path, [b"", None, b"SSH-2.0-here\r\n"])


def test_one_that_answered_in_an_earlier_attempt_is_not_asked(tmp_path: Path) -> None:
    start(tmp_path, [b"HTTP/1.0 400\r\n"], is_proven=True)


def test_another_program_on_its_port_is_not_sshd(tmp_path: Path) -> None:
    with pytest.raises(OsError, match="is answered by something else"):
        start(tmp_path, [b"HTTP/1.0 400\r\n"])


def test_an_sshd_that_never_lets_anyone_in_is_said_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sshd, "_UP", 1.0)
    with pytest.raises(OsError, match="sshd does not answer"):
        start(tmp_path, [b""] * 1000)
