"""The control of this folder's own rule (tests/plugin/pure.py): what has an effect is refused
here."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
from collections.abc import Callable

import pytest


@pytest.mark.parametrize(
    "effect",
    [
        lambda: subprocess.run(["true"], check=True),
        lambda: os.posix_spawn("/bin/true", ["true"], {}),
        lambda: os.fork(),
        lambda: threading.Thread(target=print).start(),
        lambda: socket.socket(),
    ],
    ids=["program", "spawn", "fork", "thread", "socket"],
)
def test_an_effect_is_refused(effect: Callable[[], object]) -> None:
    with pytest.raises(AssertionError, match="belongs into tests/process"):
        effect()
