"""Asking a program of the image, such as nvidia-smi, for what it prints, with a time limit."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence

_MOST = 4 << 20  # characters of an answer that are read
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
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        raise NoAnswerError(f"cannot start: {error.strerror}") from None
    try:
        out, err = asked.communicate(timeout=seconds)
    except subprocess.TimeoutExpired as late:
        with contextlib.suppress(OSError):
            os.killpg(asked.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            asked.communicate(timeout=_KILLED)
        output = late.output or b""
        text = output.decode(errors="replace") if isinstance(output, bytes) else output
        raise NoAnswerError(f"no answer within {seconds:g}s", text) from None
    if asked.returncode:
        lines = (err.strip() or out.strip()).splitlines()
        status = (
            f"ends with {asked.returncode}"
            if asked.returncode > 0
            else f"ends by signal {-asked.returncode}"
        )
        raise NoAnswerError(f"{status}{f': {lines[-1][:300]}' if lines else ''}", out[:_MOST])
    return (out or err)[:_MOST]
