"""What `entrypoint run` shows of itself to the rest of its machine: how far it is, and nothing of its memory."""

from __future__ import annotations

# The kernel shows this name of a process to everybody, and it ends with the process, or with what that becomes.
WAITING, STARTED = "entrypoint:wait", "entrypoint:up"  # 15 bytes at most
_PR_SET_DUMPABLE, _PR_SET_NAME = 4, 15  # linux/prctl.h


def show(name: str) -> None:
    """Give this process a name, by which a health check (health.py) knows how far the job is here."""
    _prctl(_PR_SET_NAME, name.encode())


def hide_memory() -> None:
    """Have the kernel write no core of this process, whatever limit and pattern say: the job's secret is in it.

    What we start is another process image, which has none of that: a program's core is its user's.
    """
    _prctl(_PR_SET_DUMPABLE, 0)


def _prctl(option: int, value: bytes | int) -> None:
    import ctypes  # a health check has no need of it

    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
