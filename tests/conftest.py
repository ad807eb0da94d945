"""What every tier needs."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    """A shell has what it starts in its background ignore Ctrl-C, and what a test starts would ignore it too."""
    for signum, default in ((signal.SIGINT, signal.default_int_handler), (signal.SIGQUIT, signal.SIG_DFL)):
        if signal.getsignal(signum) is signal.SIG_IGN:
            signal.signal(signum, default)
