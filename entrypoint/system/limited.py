"""Running a program to its end within a time limit, for what it prints: a tool of the image, such
as nvidia-smi, or a health check. A broken one may hang, or print without end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence

from entrypoint.base.values import frozen
from entrypoint.system import proc
from entrypoint.system.process import exit_status

_MOST = 4 << 20  # bytes of the output; a program that prints more is ended
_DRAINED = 0.1  # seconds after its end for what its pipes hold; its background may hold them open
_KILLED = 1.0  # seconds for a killed program to be gone; one that the kernel holds stays


@frozen
class LimitedRun:
    """The result of a program that ran with a time limit. `status`: None if it did not start, or
    was ended; `problem`: why, or a status that is not 0, with the last line of the output."""

    status: int | None
    output: str
    problem: str = ""


def ask(argv: Sequence[str], env: Mapping[str, str], seconds: float) -> LimitedRun:
    """Return what a tool answers in English, as `run`, to a thread that has no event loop."""
    return asyncio.run(run(argv, {**env, "LC_ALL": "C"}, seconds))


async def run(
    argv: Sequence[str], env: Mapping[str, str], seconds: float, merged: bool = False
) -> LimitedRun:
    """Run a program in /, and end it and what it has started if it takes longer than `seconds`, or
    if this is cancelled.

    Its output is what it prints to stdout, or to stderr if that is nothing; of both in their order
    if `merged`.
    """
    pipes = _Pipes()
    start = asyncio.ensure_future(
        asyncio.get_running_loop().subprocess_exec(
            lambda: pipes,
            *argv,
            env=env,
            cwd="/",
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.STDOUT if merged else subprocess.PIPE,
        )
    )
    try:
        program, _ = await asyncio.shield(start)
    except asyncio.CancelledError:  # it may have started others already
        await _end((await start)[0], pipes)
        raise
    except OSError as error:
        return LimitedRun(None, "", f"cannot start: {error.strerror}")
    try:
        await asyncio.wait({pipes.over}, timeout=seconds)
        late = f"no {'end' if merged else 'answer'} within {round(seconds, 1):g}s"
        problem = pipes.over.result() if pipes.over.done() else late
        if not problem:
            await asyncio.wait({pipes.closed}, timeout=_DRAINED)
    finally:
        await _end(program, pipes)
    out, err = (bytes(data[:_MOST]).decode(errors="replace") for data in pipes.data.values())
    code = program.get_returncode()
    if problem or code is None:
        return LimitedRun(None, out or err, problem)
    if code:
        last = (err.strip() or out.strip()).rpartition("\n")[2][:300]
        problem = f"ends with {code}" if code > 0 else f"ends by signal {-code}"
        problem += f": {last}" if last else ""
    return LimitedRun(exit_status(code), out or err, problem)


class _Pipes(asyncio.SubprocessProtocol):
    """Collects the output of a program, and notes its end. The streams of asyncio.subprocess would
    wait until all processes have closed its pipes, those in its background, too."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.data = {1: bytearray(), 2: bytearray()}
        # the program has ended (""), or why it is to be ended
        self.over: asyncio.Future[str] = loop.create_future()
        self.closed: asyncio.Future[None] = loop.create_future()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        kept = self.data[fd]
        if len(kept) <= _MOST:  # a process in its background may go on without end
            kept += data
        if len(kept) > _MOST and not self.over.done():
            self.over.set_result(f"prints more than {_MOST >> 20} MiB")

    def process_exited(self) -> None:
        if not self.over.done():
            self.over.set_result("")

    def connection_lost(self, error: Exception | None) -> None:
        self.closed.set_result(None)


async def _end(program: asyncio.SubprocessTransport, pipes: _Pipes) -> None:
    """Kill a program with all below it, and its group, which may outlive it, unless nobody has its
    pipes any more."""
    pid = program.get_pid()
    if not pipes.closed.done():
        if program.get_returncode() is None:
            proc.kill((pid, *proc.descendants(pid)), signal.SIGKILL)
        with contextlib.suppress(OSError):
            os.killpg(pid, signal.SIGKILL)
        await asyncio.wait({pipes.closed}, timeout=_KILLED)
    program.close()
