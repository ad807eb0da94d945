"""A test of tests/unit that starts a process or a thread, or opens a socket (an event loop has
one), fails."""

from __future__ import annotations

import sys
import threading
from collections.abc import Generator
from unittest import mock

import pytest

EFFECTS = {
    "subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.exec", "os.system",
    "socket.__new__",
}  # fmt: skip
_forbidden = False


def refuse(event: str, *_: object) -> None:
    if _forbidden and event in EFFECTS:
        raise AssertionError(f"{event}: such a test belongs into tests/process")


def refuse_thread(*_: object) -> None:
    # not every Python has an event for it
    raise AssertionError("a thread: such a test belongs into tests/process")


sys.addaudithook(refuse)  # for good: Python takes none back


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    global _forbidden
    if not item.nodeid.startswith("tests/unit/"):
        return (yield)
    _forbidden = True
    try:
        with (
            mock.patch.object(threading.Thread, "start", refuse_thread),
            mock.patch("entrypoint.system.threads.start_new_thread", refuse_thread),
        ):
            return (yield)
    finally:
        _forbidden = False
