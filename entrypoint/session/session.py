"""The leader's end of one worker's ssh session: messages both ways, bounded, and never in the event loop's way."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any

import paramiko

from entrypoint.host.progress import Say
from entrypoint.model import Node, NodeReport
from entrypoint.session import codec

WORDS = 1000  # characters of what a session's stderr says, which are shown
_TURN = 256 * 1024  # bytes read of one session before the others, and signals, have their turn


class Session:
    """One worker that answered. Messages that arrive go to `on_message`; its end to `lost`, with `why` where known."""

    def __init__(
        self,
        node: Node,
        client: paramiko.Transport,
        channel: paramiko.Channel,
        report: NodeReport,
        intake: codec.Intake,
        early: list[codec.Message],
        local: str,
    ) -> None:
        self.node, self.report = node, report
        self.local = local  # this node's address in it
        self.heard = time.monotonic()
        self.why = ""
        self.lost = asyncio.Event()
        self._client, self._channel, self._intake, self._early = client, channel, intake, early
        self._fd = channel.fileno()
        self._shown = False  # what its stderr said
        self._closed = False

    def listen(self, on_message: Callable[[Session, codec.Message], None], say: Say) -> None:
        """Begin to pass on what the worker says. Call it in the event loop."""
        self._on_message, self._say = on_message, say
        self._channel.settimeout(0.0)  # a peer that takes nothing must not hold up the others
        asyncio.get_running_loop().add_reader(self._fd, self._read)
        for message in self._early:
            on_message(self, message)

    def _read(self) -> None:
        left = _TURN
        while left > 0 and not self.lost.is_set():
            size, messages = self._take()
            for message in messages:
                self._on_message(self, message)
            if size == 0:
                break
            left -= size
        if (self._channel.eof_received or self._channel.closed) and not self._channel.recv_ready():
            self.close()

    def _take(self) -> tuple[int, list[codec.Message]]:
        """Some of what has arrived: its bytes, and the messages in them. Ends the session where they are none."""
        try:
            size = self._take_words()
            if not self._channel.recv_ready():
                return size, []
            data = self._channel.recv(65536)
            self.heard = time.monotonic()
            return size + len(data), self._intake.feed(data, self.heard)
        except codec.Invalid as error:
            self.close(f"it says what no node of this job does: {error}")
        except (OSError, EOFError, paramiko.SSHException) as error:
            self.close(f"its session broke: {error or type(error).__name__}")
        return 0, []

    def _take_words(self) -> int:
        """What a session says beside its messages, such as a shell's warning: read, and shown once."""
        if not self._channel.recv_stderr_ready():
            return 0
        data = self._channel.recv_stderr(65536)
        self._intake.count(len(data), time.monotonic())
        words = codec.one_line(data.decode(errors="replace").strip(), WORDS)
        if words and not self._shown:
            self._shown = True
            self._say(f"{self.node.host}'s session says: {words}")
        return len(data)

    def send(self, kind: str, **fields: Any) -> None:
        """Say something to the worker; a session that is gone is found by its end, not here."""
        try:
            self._channel.sendall(codec.pack(kind, **fields))
        except TimeoutError:
            self.close("it takes nothing any more")
        except (OSError, EOFError, paramiko.SSHException):
            pass

    def give_up(self, why: str = "") -> None:
        """It is lost. What is said to it all the same lies in its socket, should it wake."""
        if not self.lost.is_set():
            self.why = why
            self.lost.set()
            asyncio.get_running_loop().remove_reader(self._fd)

    def close(self, why: str = "") -> None:
        """End the session; `why`, where it is more than that it ended."""
        self.give_up(why)
        if not self._closed:
            self._closed = True
            # Closing joins paramiko's thread, which may be waiting for a dead peer.
            with contextlib.suppress(RuntimeError):  # no more threads
                threading.Thread(target=self._client.close, daemon=True).start()
