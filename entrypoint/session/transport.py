"""paramiko's Transport, driven by the event loop in place of a thread of its own.

paramiko reads a session in a thread that waits in recv() and wakes ten times a second. Here the same code runs in a
greenlet: where it would wait, it gives way to the event loop, which goes on with it when bytes have arrived. All of it
happens in the loop's thread, so nothing here may block: what cannot be sent yet is kept, up to a limit.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable
from functools import partial

import paramiko
from greenlet import getcurrent, greenlet
from paramiko.common import cMSG_CHANNEL_REQUEST

_CHUNK = 32 * 1024  # bytes read of one connection before others have their turn
_STRANGER = 256 * 1024  # bytes that a peer may send before its login: a key exchange takes 4 KiB
_PACKET = 256 * 1024  # bytes of one packet, as OpenSSH has it; paramiko itself has no limit
_UNSENT = 8 * 1024 * 1024  # bytes kept for a peer that does not read; sshd's window ends at 2 MiB
_HELD = 1000  # messages kept while keys are exchanged anew


class Transport(paramiko.Transport):
    """The client's side of one ssh session. Use it in the event loop's thread only.

    Of paramiko's methods that wait, only those below may be called. Each raises what paramiko's own raises, and
    TimeoutError as `until` does.
    """

    def __init__(self, connection: socket.socket) -> None:
        self.changed: Callable[[], None] = lambda: None  # called in the event loop after bytes were read, or the end
        # This node's address in the session.
        self.local: str = connection.getsockname()[0]
        self._reader = greenlet(self.run)
        self._held: list[paramiko.Message] = []
        self._stream = _Stream(connection, self._resume, self.is_authenticated)
        super().__init__(self._stream, packetizer_class=_Packetizer)  # type: ignore[arg-type]
        self.channel_events = _Answered()
        self.clear_to_send = _Gate(self._send_held)

    def start(self) -> None:
        """Begin to read, as a thread would."""
        self._stream.open()
        self._reader.switch()

    def _resume(self) -> None:
        """Go on reading until there is nothing more to read."""
        if getcurrent() is self._reader:  # it closes its own connection, and is about to end
            return
        if self._reader:  # it has begun, and has not ended
            self._reader.switch()
        self.changed()

    async def until(self, ready: Callable[[], bool], seconds: float) -> None:
        """Return when ready() is true, or the session is over.

        Raises TimeoutError when the peer has sent nothing for so many seconds. What it has sent is read before that is
        decided, so that a busy leader holds no time of its own against a peer.
        """
        while self.is_active() and not ready():
            news: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.changed = partial(_note, news)
            await asyncio.wait({news}, timeout=seconds)
            if not news.done():
                raise TimeoutError

    async def exchange_keys(self, seconds: float) -> paramiko.PKey:
        """Begin the session; returns the peer's host key, which it has proven to have."""
        done = threading.Event()
        self.start_client(done)
        await self.until(done.is_set, seconds)
        if not self.is_active():
            raise self.get_exception() or paramiko.SSHException("Negotiation failed.")
        return self.get_remote_server_key()

    async def login(self, user: str, key: paramiko.PKey, seconds: float) -> None:
        """Prove to the peer that we have this key."""
        done = threading.Event()
        self.auth_publickey(user, key, done)
        await self.until(done.is_set, seconds)
        assert self.auth_handler is not None  # auth_publickey has made it
        self.auth_handler.wait_for_response(done)  # it is over, so there is no wait

    async def open_command(self, command: str, seconds: float) -> paramiko.Channel:
        """A channel to this command, which the peer has started."""
        channel = self.open_session()
        channel.settimeout(0.0)
        await self.until(lambda: channel.chanid not in self.channel_events, seconds)
        if not channel.active:
            raise self.get_exception() or paramiko.SSHException("Unable to open channel.")
        # As Channel.exec_command, whose wait for the answer would hold the event loop.
        request = paramiko.Message()
        request.add_byte(cMSG_CHANNEL_REQUEST)
        request.add_int(channel.remote_chanid)
        request.add_string("exec")
        request.add_boolean(True)
        request.add_string(command)
        self._send_user_message(request)
        await self.until(channel.event.is_set, seconds)
        if not channel.event_ready:
            raise self.get_exception() or paramiko.SSHException("Channel closed.")
        return channel

    def _send_user_message(self, data: paramiko.Message) -> None:
        """Send it; while keys are exchanged anew it is kept, where paramiko would wait."""
        if self.clear_to_send.is_set():
            self.packetizer.send_message(data)
        elif self.is_active() and len(self._held) < _HELD:
            self._held.append(data)
        elif self.is_active():
            self._stream.end()

    def _send_held(self) -> None:
        while self._held:
            self.packetizer.send_message(self._held.pop(0))


def _note(news: asyncio.Future[None]) -> None:
    if not news.done():
        news.set_result(None)


class _Answered(dict[int, threading.Event]):
    """The channels that the peer has not confirmed yet. paramiko's own wait for one finds it over; `until` waits."""

    def __setitem__(self, number: int, event: threading.Event) -> None:
        event.set()
        super().__setitem__(number, event)


class _Gate(threading.Event):
    """Whether messages may be sent; `opened` is called when they may again."""

    def __init__(self, opened: Callable[[], None]) -> None:
        super().__init__()
        self._opened = opened

    def set(self) -> None:
        super().set()
        self._opened()


class _Packetizer(paramiko.packet.Packetizer):
    def start_handshake(self, timeout: float) -> None:
        """No thread that only looks at the clock: each step of a login has its deadline in the event loop."""


class _Stream:
    """A connection as paramiko wants it: recv() gives way until there is something, send() never waits."""

    def __init__(self, connection: socket.socket, resume: Callable[[], None], known: Callable[[], bool]) -> None:
        self._socket = connection
        self._resume = resume
        self._known = known
        self._loop = asyncio.get_running_loop()
        self._arrived = bytearray()
        self._unsent = bytearray()
        self._received = 0
        self._over = self._closed = False

    def settimeout(self, seconds: float) -> None:
        """No waits, no timeouts."""

    def open(self) -> None:
        """Begin to read."""
        self._socket.setblocking(False)
        self._loop.add_reader(self._socket, self._readable)

    def recv(self, size: int) -> bytes:
        """Up to so many bytes; none when the connection is over. Raises SSHException if they are too many."""
        if size > _PACKET:
            raise paramiko.SSHException(f"a packet of more than {_PACKET} bytes")
        while not self._arrived and not self._over:
            getcurrent().parent.switch()  # type: ignore[union-attr]
        if self._received > _STRANGER and not self._known():
            raise paramiko.SSHException(f"more than {_STRANGER} bytes before a login")
        data = bytes(self._arrived[:size])
        del self._arrived[:size]
        return data

    def send(self, data: bytes) -> int:
        """Send it, or keep what the peer does not take now. Raises OSError when that is too much."""
        sent = 0
        try:
            if not self._unsent:
                with contextlib.suppress(BlockingIOError):
                    sent = self._socket.send(data)
            if len(self._unsent) + len(data) - sent > _UNSENT:
                raise BrokenPipeError("the peer does not read")
        except OSError:
            self.end()
            raise
        if sent < len(data):
            self._loop.add_writer(self._socket, self._writable)
            self._unsent += data[sent:]
        return len(data)

    def end(self) -> None:
        """Let paramiko find the connection over, soon."""
        self._over = True
        if not self._loop.is_closed():
            self._loop.call_soon(self._resume)

    def close(self) -> None:
        """Close the connection; what was not sent is lost."""
        if self._closed:
            return
        self._closed = self._over = True
        if not self._loop.is_closed():
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)
        self._socket.close()
        self._resume()

    def _readable(self) -> None:
        try:
            data = self._socket.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._arrived += data
        self._received += len(data)
        if not data:
            self._over = True
            self._loop.remove_reader(self._socket)
        self._resume()

    def _writable(self) -> None:
        try:
            sent = self._socket.send(self._unsent)
        except BlockingIOError:
            return
        except OSError:
            self._loop.remove_writer(self._socket)
            self.end()
            return
        del self._unsent[:sent]
        if not self._unsent:
            self._loop.remove_writer(self._socket)
