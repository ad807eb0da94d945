"""A test that does not heed its own timeout (it waits in a thread, it catches everything, its fixture
hangs after the timeout) ends its process, with the stacks of all threads, and fails. Without this,
one such test held a whole run until somebody ended it.
"""

from __future__ import annotations

import faulthandler
from collections.abc import Generator

import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key

PATIENCE = 60.0  # seconds that a test has to end after its timeout


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    mark = item.get_closest_marker("timeout")
    timeout = mark.args[0] if mark else float(item.config.getini("timeout"))
    stderr = item.config.stash[fault_handler_stderr_fd_key]  # a test's own is captured
    faulthandler.dump_traceback_later(timeout + PATIENCE, exit=True, file=stderr)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()
