"""The leader's end of one worker's ssh session: messages both ways, bounded, without blocking the
event loop."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import paramiko

from entrypoint.base.model import Node, NodeReport
from entrypoint.base.text import Log, one_line
from entrypoint.base.values import dataclass
from entrypoint.base.wire import Invalid
from entrypoint.job import events
from entrypoint.job.messages import Goodbye
from entrypoint.session import codec
from entrypoint.session.transport import Transport

WORDS = 1000  # characters of a session's stderr that are shown


@dataclass
class Session:
    """The session of one worker that answered. Its messages and its end are reported as events."""

    node: Node
    client: Transport
    channel: paramiko.Channel
    report: NodeReport
    intake: codec.Intake
    early: list[Any]  # messages that came with the answer
    _shown: bool = False  # whether its stderr was logged
    _has_ended: bool = False
    _is_over: bool = False  # whether its worker has said goodbye

    def listen(self, tell: Callable[[Any], None], log: Log) -> None:
        """Begin to report the worker's messages, unless `end` was called. Must be called in the
        event loop."""
        self._tell = tell
        self._log = log
        if not self._has_ended:
            self.client.changed = self._read
            self._report(self.early)
            self._read()

    def _report(self, arrived: list[Any]) -> None:
        for message in arrived:
            if not self._has_ended:  # a message before may have ended it
                self._is_over |= isinstance(message, Goodbye)
                self._tell(events.MessageReceived(self.node.rank, message))

    def _read(self) -> None:
        while not self._has_ended and self._take():
            pass
        if self.channel.eof_received or self.channel.closed:
            error = self.client.get_exception()
            broke = isinstance(error, paramiko.SSHException)  # it exceeded a limit of this toolkit
            self._lose(f"its session broke: {error}" if broke else "")

    def _take(self) -> bool:
        """Report messages that have arrived and return whether there may be more. Closes the
        session if they are invalid."""
        try:
            size = self._take_stderr()
            data = self.client.take(self.channel)
            if not data:
                return size > 0
            messages = self.intake.feed(data, time.monotonic())
        except Invalid as error:
            self._lose(f"it sent an invalid message: {error}")
            return False
        except (OSError, EOFError, paramiko.SSHException) as error:
            self._lose(f"its session broke: {error or type(error).__name__}")
            return False
        self._report(messages)
        if not messages:
            self._tell(events.Alive(self.node.rank))
        return size > 0

    def _take_stderr(self) -> int:
        """Read the session's stderr, such as a shell's warning, and log it once."""
        if not self.channel.recv_stderr_ready():
            return 0
        data = self.channel.recv_stderr(65536)
        self.intake.count(len(data), time.monotonic())
        text = one_line(data.decode(errors="replace").strip(), WORDS)
        if text and not self._shown:
            self._shown = True
            self._log(f"EP508 {self.node.name}'s session printed: {text}")
        return len(data)

    def send(self, line: bytes) -> None:
        """Send a packed message to the worker. `_read` notices the end of a session, not this."""
        try:
            self.client.write(self.channel, line)
        except TimeoutError:
            self._lose("it reads nothing any more")
        except (OSError, EOFError, paramiko.SSHException):
            pass

    def end(self) -> None:
        """End the session. Nothing is reported of it from now on."""
        self._fall_silent()
        self.client.close()

    def rest(self) -> bool:
        """Return whether the worker can be asked again in this session: it has said goodbye. Else
        end it. Nothing is reported of it from now on."""
        self._fall_silent()
        if not self._is_over:
            self.client.close()
        return self._is_over

    def _fall_silent(self) -> None:
        self._has_ended = True
        self.client.changed = lambda: None

    def _lose(self, reason: str) -> None:
        """Report that the session has ended; `reason` is empty if it simply did."""
        if not self._has_ended:
            self.end()
            self._tell(events.SessionLost(self.node.rank, reason))
