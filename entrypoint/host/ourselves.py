"""What other processes see of `entrypoint run`: its state, as its process name, and nothing of its memory."""

from __future__ import annotations

# The kernel shows a process's name to everybody; it ends with the process, or with an exec.
WAITING, STARTED = "entrypoint:wait", "entrypoint:up"  # 15 bytes at most
_PR_SET_DUMPABLE, _PR_SET_NAME = 4, 15  # linux/prctl.h


def show(name: str) -> None:
    """Give this process a name, which tells a health check (health.py) whether the job has started here."""
    _prctl(_PR_SET_NAME, name.encode())


def hide_memory() -> None:
    """Have the kernel write no core of this process, whatever limit and pattern say: the job's secret is in it.

    Programs that we start are not affected: they may still write a core.
    """
    _prctl(_PR_SET_DUMPABLE, 0)


def _prctl(option: int, value: bytes | int) -> None:
    import ctypes  # a health check does not need it

    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
