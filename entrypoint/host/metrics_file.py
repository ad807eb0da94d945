"""Metrics in a file, for the textfile collector of Prometheus' node_exporter, which reads it as another user."""

from __future__ import annotations

import threading
from pathlib import Path

from entrypoint.host.files import put
from entrypoint.host.speaker import Log

_LAST = 1.0  # seconds for the last write


class MetricsFile:
    """Written as a whole, by a thread: a file server that hangs must not hold up the node."""

    def __init__(self, path: str, log: Log) -> None:
        self._path, self._log = Path(path), log
        self._writer: threading.Thread | None = None
        self._failed = ""

    def write(self, text: str) -> None:
        """Write it, unless the last one is still being written: the next will be newer."""
        if self._writer is None or not self._writer.is_alive():
            self._writer = threading.Thread(target=self._put, args=(text,), daemon=True)
            try:
                self._writer.start()
            except RuntimeError:  # no more threads
                self._writer = None

    def _put(self, text: str) -> None:
        try:
            put(self._path, text.encode(), 0o644)
            self._failed = ""
        except OSError as error:
            why = error.strerror or str(error)
            if why != self._failed:  # once, and again when it is another reason
                self._log(f"warning: EP035 the metrics cannot be written | {self._path}: {why} | see metrics.file")
            self._failed = why

    def close(self, text: str) -> None:
        """Write this as the last; it takes 2 s at most."""
        if self._writer is not None:
            self._writer.join(_LAST)
        self.write(text)
        if self._writer is not None:
            self._writer.join(_LAST)
