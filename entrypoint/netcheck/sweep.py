"""This node's part of the all-reduce sweep: torch's own process, in the Python that training would
have."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import threading
from typing import Any

from entrypoint.causes.judge import judge
from entrypoint.netcheck.messages import SWEEP_LIMIT, SWEEP_SECONDS, SweepEnd
from entrypoint.render import render
from entrypoint.system.process import tied
from entrypoint.text import one_line

_TEXT = 300  # characters of an error


class Sweep:
    """The process, from its start to its end."""

    def __init__(self, rank: int, nodes: int, host: str, port: int) -> None:
        """Raises OSError if there is no Python."""
        python = shutil.which("python") or shutil.which("python3") or "python"
        script = render("netcheck/all_reduce.py", {})
        values = (rank, nodes, host, port, f"{SWEEP_SECONDS:g}")
        command = [python, "-c", script, *map(str, values)]
        nothing, pipe = subprocess.DEVNULL, subprocess.PIPE
        self._process = subprocess.Popen(
            tied(command), stdin=nothing, stdout=pipe, stderr=pipe, text=True, errors="replace"
        )
        self._alarm = threading.Timer(SWEEP_LIMIT, self.kill)
        self._alarm.daemon = True
        self._alarm.start()

    def port(self) -> int:
        """Where rank 0 listens; 0 where it ended before."""
        while line := self._next():
            if "port" in line:
                return int(line["port"])
        return 0

    def end(self, rejected: tuple[str, ...]) -> SweepEnd:
        """Return what it has measured when it has ended, with the addresses of `rejected` peers."""
        backend, rows, why = "", list[tuple[int, float]](), ""
        errors: list[str] = []
        stderr = self._process.stderr
        assert stderr
        reader = threading.Thread(target=lambda: errors.append(stderr.read()), daemon=True)
        reader.start()
        while line := self._next():
            if "size" in line:
                rows.append((int(line["size"]), float(line["seconds"])))
            backend = line.get("backend", backend)
            why = line.get("early", why)
        status = self._process.wait()
        self._alarm.cancel()
        reader.join(1.0)
        if status:
            lines = [line.strip() for line in "".join(errors).splitlines() if line.strip()]
            last = (judge(lines, status).lines or lines)[-1:]  # torch may warn after its error
            why = f"all_reduce.py ended with {status}{': ' if last else ''}{''.join(last)[:200]}"
        return SweepEnd(backend, tuple(rows), one_line(why, _TEXT), rejected)

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()

    def _next(self) -> dict[str, Any]:
        """Return its next object; {} at its end. Libraries print other lines."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with contextlib.suppress(ValueError):
                value = json.loads(line)
                if isinstance(value, dict) and value:
                    return value
        return {}
