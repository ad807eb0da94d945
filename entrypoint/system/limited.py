"""Running a program to its end within a time limit, in the event loop, for what it prints."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping, Sequence

from entrypoint.system import children, proc
from entrypoint.system.process import exit_status
from entrypoint.values import dataclass

_MOST = 4 << 20  # bytes of the output; a program that prints more is ended
_CHUNK = 1 << 16  # bytes, as much as a pipe holds
_KILLED = 1.0  # seconds for a killed program to be gone; one that the kernel holds stays


@dataclass(frozen=True)
class LimitedRun:
    """How a program ended. `problem`: why it was ended, or did not start; "" if it ended by
    itself."""

    status: int
    output: str
    problem: str = ""


class _CapturedOutput:
    """What a program prints to the write end of a pipe, stdout and stderr in their order.

    Not asyncio's own pipe, whose end asyncio awaits: a process in the background may keep it open.
    """

    def __init__(self) -> None:
        read, write = os.pipe()
        self._read = read
        self.write = write
        os.set_blocking(self._read, False)
        self._data = bytearray()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._read, self._take)
        self.is_complete = False
        self.is_too_much = asyncio.Event()

    def _take(self) -> None:
        with contextlib.suppress(BlockingIOError):
            data = os.read(self._read, _CHUNK)
            self._data += data
            if not data or len(self._data) > _MOST:
                self._loop.remove_reader(self._read)
            if not data:
                self.is_complete = True
            elif len(self._data) > _MOST:
                self.is_too_much.set()

    def started(self) -> None:
        """Only the program has the write end from now on."""
        if self.write >= 0:
            os.close(self.write)
            self.write = -1

    def drain(self) -> None:
        """Take what the pipe holds now."""
        before = -1
        while before < len(self._data) and not self.is_complete and not self.is_too_much.is_set():
            before = len(self._data)
            self._take()

    def close(self) -> str:
        """Return all that was printed by now."""
        self.started()
        self.drain()
        self._loop.remove_reader(self._read)
        os.close(self._read)
        return bytes(self._data[:_MOST]).decode(errors="replace")


async def run(argv: Sequence[str], env: Mapping[str, str], seconds: float) -> LimitedRun:
    """Run a program in /, and end it and what it has started if it takes longer than `seconds`, or
    if this is cancelled."""
    output = _CapturedOutput()
    try:
        program = await children.start(
            argv,
            env,
            "/",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output.write,
            stderr=output.write,
        )
    except OSError as error:
        return LimitedRun(126, output.close(), f"cannot start: {error.strerror}")
    except BaseException:
        output.close()
        raise
    output.started()
    ended = asyncio.ensure_future(program.wait())
    too_much = asyncio.ensure_future(output.is_too_much.wait())
    try:
        await asyncio.wait({ended, too_much}, timeout=seconds, return_when="FIRST_COMPLETED")
        output.drain()
        problem = ""
        if output.is_too_much.is_set():
            problem = f"prints more than {_MOST >> 20} MiB"
        elif not ended.done():
            problem = f"no end within {round(seconds, 1):g}s"
        if problem or not output.is_complete:  # something in its background has the pipe
            _kill(program.pid, ended.done())
        if not ended.done():
            await asyncio.wait({ended}, timeout=_KILLED)
        status = exit_status(ended.result()) if ended.done() else 128 + signal.SIGKILL
        return LimitedRun(status, output.close(), problem)
    except BaseException:
        _kill(program.pid, ended.done())
        output.close()
        await asyncio.wait({ended}, timeout=_KILLED)
        raise
    finally:
        ended.cancel()
        too_much.cancel()


def _kill(pid: int, has_ended: bool) -> None:
    """Kill a program with all below it, and its group, which may outlive it."""
    if not has_ended:
        proc.kill((pid, *proc.descendants(pid)), signal.SIGKILL)
    with contextlib.suppress(OSError):
        os.killpg(pid, signal.SIGKILL)
