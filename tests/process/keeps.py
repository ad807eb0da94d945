"""A real keeper for tests, whose orders and reports are a test's own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from entrypoint.base.kept import KEEPER, KeptForm, OutputForm, RanksForm
from entrypoint.launchers._common import file
from entrypoint.ranks import orders
from entrypoint.ranks.placeholder import REQUESTS, WAITING
from tests.waits import until

PLAIN = KeptForm(OutputForm(), grace=600.0)


Make = Callable[..., "Keeper"]  # the fixture `keeper`


class Keeper:
    """A keeper with an attempt that has begun; its stdout is a pipe unless it is given another."""

    def __init__(
        self, folder: Path, ranks: RanksForm | None = None, collapse: bool = False, **how: Any
    ) -> None:
        self._folder = folder
        ours, theirs = socket.socketpair()
        words = [sys.executable, "-I", "-S", KEEPER, str(theirs.fileno())]
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, **how}
        self.process = subprocess.Popen(words, pass_fds=[theirs.fileno()], **streams)
        theirs.close()
        self._socket = ours
        ours.setblocking(False)
        self._received = bytearray()
        self.reports: list[Any] = []
        if ranks is not None:
            for name in (REQUESTS, WAITING):
                os.mkfifo(folder / name, 0o600)
            context = {"host": "a", "run_dir": str(folder), "socket": "", "pass_fd": ()}
            (folder / "rank.sh").write_text(file("ranks/rank.sh.j2", context).text)
        self.send(orders.Begin(str(folder), ranks, collapse))

    def send(self, order: Any) -> None:
        """Send an order."""
        self._socket.setblocking(True)
        self._socket.sendall(orders.encoded(order))
        self._socket.setblocking(False)

    def start(
        self,
        *words: str,
        form: KeptForm = PLAIN,
        number: int = 0,
        env: Mapping[str, str] | None = None,
        cwd: str = "",
    ) -> None:
        """Start a program."""
        entries = [os.fsencode(f"{name}={value}") for name, value in (env or os.environ).items()]
        order = orders.StartProgram(orders.PROGRAM, number, words, tuple(entries), cwd, form)
        self.send(order)

    def read(self) -> None:
        """Take the reports that have come."""
        while True:
            try:
                data = self._socket.recv(65536)
            except BlockingIOError:
                return
            if not data:
                return
            self._received += data
            self.reports += orders.decoded(self._received)

    def told(self, kind: str = orders.PROGRAM) -> list[str]:
        """What was reported of this kind, such as `end 3`; the pids of starts are left out."""
        self.read()
        return [
            f"{each.event} {each.value}"
            if each.event not in ("start", "placeholder")
            else each.event
            for each in self.reports
            if isinstance(each, orders.Report) and each.kind == kind
        ]

    def pid(self, kind: str = orders.PROGRAM, event: str = "start") -> int:
        """The pid of the last that has started."""
        until(lambda: event in self.told(kind), "its start")
        pids = [
            each.value
            for each in self.reports
            if isinstance(each, orders.Report) and (each.kind, each.event) == (kind, event)
        ]
        return int(pids[-1])

    @property
    def tail(self) -> bytes:
        """The last output of what has failed."""
        self.read()
        return b"".join(each.output for each in self.reports if isinstance(each, orders.Tail))

    def ended(self, kind: str = orders.PROGRAM) -> list[str]:
        """All that was told of this kind, once one is done."""
        until(lambda: "done 0" in self.told(kind), "its end")
        return self.told(kind)

    def over(self) -> bytes:
        """End the attempt and the keeper; return its whole output that nobody has read yet."""
        self.send(orders.EndAttempt(5.0))
        out = b""
        if self.process.stdout is not None:
            os.set_blocking(self.process.stdout.fileno(), False)
        while not any(isinstance(each, orders.AttemptEnded) for each in self.reports):
            self.read()
            out += self._output()
            until(lambda: True, "")
        self._socket.close()
        self.process.wait()
        return out + self._output()

    def _output(self) -> bytes:
        stdout = self.process.stdout
        return (stdout.read() or b"") if stdout is not None else b""

    def close(self) -> None:
        """End it, whatever it does."""
        self._socket.close()
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()
