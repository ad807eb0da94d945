"""Asking a program of the image, such as nvidia-smi, for what it prints, with a time limit."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence

_MOST = 4 << 20  # bytes of an answer that are read
_CHUNK = 1 << 16  # bytes, as much as a pipe holds
_KILLED = 1.0  # seconds for a killed program to be gone; one that the kernel holds stays


class NoAnswerError(Exception):
    """A program did not end in time, or failed; the text says what was seen. `output`: what it
    printed by then."""

    def __init__(self, why: str, output: str = "") -> None:
        super().__init__(why)
        self.output = output


def ask(argv: Sequence[str], env: Mapping[str, str], seconds: float) -> str:
    """What a program prints, within so many seconds. Raises NoAnswerError."""
    nothing = subprocess.DEVNULL
    try:
        asked = subprocess.Popen(
            argv,
            env={**env, "LC_ALL": "C"},
            cwd="/",
            stdin=nothing,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        raise NoAnswerError(f"cannot start: {error.strerror}") from None
    out, err, why = _read(asked, seconds)
    if why:
        _kill(asked)
        raise NoAnswerError(why, out)
    if asked.returncode:
        words = (err.strip() or out.strip()).splitlines()
        status = (
            f"ends with {asked.returncode}"
            if asked.returncode > 0
            else f"ends by signal {-asked.returncode}"
        )
        raise NoAnswerError(f"{status}{f': {words[-1][:300]}' if words else ''}", out)
    return out or err


def _read(asked: subprocess.Popen[bytes], seconds: float) -> tuple[str, str, str]:
    """Return what the program prints to stdout and stderr until its end, and why that is not all
    ("" if it is): a broken tool may print without end, and must not take the node's memory."""
    deadline = time.monotonic() + seconds
    outputs = [bytearray(), bytearray()]
    late = f"no answer within {seconds:g}s"
    why = ""
    assert asked.stdout
    assert asked.stderr
    with selectors.DefaultSelector() as selector, asked.stdout, asked.stderr:
        selector.register(asked.stdout, selectors.EVENT_READ, outputs[0])
        selector.register(asked.stderr, selectors.EVENT_READ, outputs[1])
        while selector.get_map() and not why:
            ready = selector.select(max(0.0, deadline - time.monotonic()))
            if not ready:
                why = late
            for key, _ in ready:
                data = os.read(key.fd, _CHUNK)
                key.data.extend(data)
                if not data:
                    selector.unregister(key.fileobj)
                elif len(key.data) > _MOST:
                    why = f"prints more than {_MOST >> 20} MiB"
    if not why:
        try:
            asked.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            why = late
    out, err = (bytes(output[:_MOST]).decode(errors="replace") for output in outputs)
    return out, err, why


def _kill(asked: subprocess.Popen[bytes]) -> None:
    """Kill the program, and what it has started."""
    with contextlib.suppress(OSError):
        os.killpg(asked.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        asked.wait(_KILLED)
