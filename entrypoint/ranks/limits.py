"""The limits of this container that may end its programs, counted from their start on."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from entrypoint.base.errors import CantCreateError
from entrypoint.system.cgroups import Memory, Processes
from entrypoint.system.files import cure


class NodeLimits:
    """Says why a program of this node ended, where that is a limit of its container or the place
    of its log."""

    log_error = 0  # of a rank's log that could not be opened, which is its end
    _has_reported_kill = False  # whether a kill for memory was the reason of an end

    def __init__(self, log_dir: str) -> None:
        self._log_dir = Path(log_dir)
        self.memory = Memory()
        self.processes = Processes()
        self.started = time.monotonic()

    def why(self, what: str, status: int) -> str:
        """Return why a program ended with this status: what this container ran out of, or a whole
        message; "" if nothing is known."""
        if self.log_error and status == CantCreateError.status:
            error = OSError(self.log_error, os.strerror(self.log_error))
            folder = self._log_dir
            hint = cure(error, folder / "log", "set log_dir to a place that this user can write")
            return f"EP410 cannot write the log of {what} | {folder}: {error.strerror} | {hint}"
        killed = status == 128 + signal.SIGKILL and self.memory.oom_killed()
        self._has_reported_kill |= bool(killed)
        return killed or (status != 0 and self.processes.refused()) or ""

    def unreported_kill(self) -> str:
        """Return a message if the kernel killed a process for memory, which explains no end."""
        killed = None if self._has_reported_kill else self.memory.oom_killed()
        hint = "no rank has ended by that: see what its own processes did"
        return f"a process was ended by SIGKILL (137), {killed} | {hint}" if killed else ""
