"""paramiko's Transport, driven by the event loop instead of a thread of its own.

paramiko reads a session in a thread that waits in recv() and wakes ten times a second. Here the
same code runs in a greenlet: instead of waiting it switches to the event loop, which resumes it
when bytes have arrived. Everything runs in the loop's thread, so nothing here may block: bytes that
cannot be sent yet are kept, up to a limit.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from math import inf
from struct import pack

import paramiko
from greenlet import getcurrent, greenlet
from paramiko.common import (
    MSG_CHANNEL_DATA,
    MSG_CHANNEL_WINDOW_ADJUST,
    MSG_KEXINIT,
    cMSG_CHANNEL_REQUEST,
)

_CHUNK = 32 * 1024  # bytes read from one connection before the next one is served
# bytes that a peer may send before its login: a key exchange takes 4 KiB
_BEFORE_LOGIN = 256 * 1024
_PACKET = 256 * 1024  # bytes of one packet, as in OpenSSH; paramiko itself has no limit
# Packets of any kind that a peer may send at once, and each second after that: each one costs time.
# A new key exchange counts for a thousand.
_BURST = 50_000
_RATE = 1000
_REKEY = 1000
_UNSENT = 8 * 1024 * 1024  # bytes kept for a peer that does not read; sshd's window ends at 2 MiB
_HEAD = 64  # bytes of a packet that are no data, and more
_NOBODY: deque[object] = deque()  # threads that wait
_HELD = 1000  # messages kept during a new key exchange


class Transport(paramiko.Transport):
    """The client's side of one ssh session. Use it in the event loop's thread only.

    AES-GCM comes first: paramiko spends a third of a heartbeat's time on another cipher's MAC.
    Of paramiko's waiting methods, only those below may be called. They raise paramiko's exceptions,
    and TimeoutError as `until` does.
    """

    _preferred_ciphers = tuple(
        sorted(
            paramiko.Transport._preferred_ciphers,  # type: ignore[attr-defined]
            key=lambda name: "gcm" not in name,
        )
    )

    def __init__(self, connection: socket.socket) -> None:
        # Called in the event loop after bytes were read, or the session ended.
        self.changed: Callable[[], object] = lambda: None
        self.connection = connection
        # This node's address in the session.
        self.local: str = connection.getsockname()[0]
        self._reader = greenlet(self.run)
        self._held: list[paramiko.Message] = []
        self._data: list[bytes] = []  # of the command, that has arrived
        self._stream = _Stream(connection, self._resume, self.is_authenticated)
        super().__init__(self._stream, packetizer_class=_Packetizer)  # type: ignore[arg-type]
        self.channel_events = _Answered()
        self.clear_to_send = _Gate(self._send_held)

    @property
    def received(self) -> int:
        """Bytes that the peer has sent."""
        return self._stream.received

    def start(self) -> None:
        """Begin to read, as paramiko's thread would."""
        self._stream.open()
        self._reader.switch()

    def _resume(self) -> None:
        """Continue to read until no more bytes are available."""
        if getcurrent() is self._reader:  # it is closing its connection, and about to end
            return
        if self._reader:  # it has begun, and has not ended
            self._reader.switch()
        self.changed()

    async def until(self, ready: Callable[[], bool], seconds: float, longest: float = inf) -> None:
        """Return when ready() is true, or the session is over.

        Raises TimeoutError if the peer has sent nothing for so many seconds, or after `longest`.
        Pending bytes are read before that is decided, so that delays of a busy leader are not
        attributed to the peer.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + longest
        while self.is_active() and not ready():
            changed: asyncio.Future[None] = loop.create_future()
            self.changed = partial(_note, changed)
            await asyncio.wait({changed}, timeout=min(seconds, end - loop.time()))
            if not changed.done():
                raise TimeoutError

    async def exchange_keys(self, seconds: float) -> paramiko.PKey:
        """Begin the session and return the peer's host key, whose possession it has proven.

        `seconds` are for all of it, since whoever has the port may send a byte now and then."""
        done = threading.Event()
        self.start_client(done)
        await self.until(done.is_set, seconds, seconds)
        if not self.is_active():
            raise self.get_exception() or paramiko.SSHException("Negotiation failed.")
        return self.get_remote_server_key()

    async def login(self, user: str, key: paramiko.PKey, seconds: float) -> None:
        """Log in with this key."""
        done = threading.Event()
        self.auth_publickey(user, key, done)
        await self.until(done.is_set, seconds)
        assert self.auth_handler is not None  # auth_publickey has made it
        self.auth_handler.wait_for_response(done)  # it is done, so this does not wait

    async def open_command(self, command: str, seconds: float) -> paramiko.Channel:
        """Start a command on the peer and return the channel to it."""
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
        _share_queues(self, channel, channel.in_buffer, channel.in_stderr_buffer)
        return channel

    # paramiko's channels pass data between threads, with locks and conditions, which take a tenth
    # of a heartbeat's time. Here all is in one thread, and a session has one channel.

    @property
    def has_data(self) -> bool:
        """Return whether the command has printed something that was not taken."""
        return bool(self._data)

    def take(self, channel: paramiko.Channel) -> bytes:
        """Return what the command has printed, and let the peer send as much again."""
        data = b"".join(self._data)
        self._data.clear()
        if ack := channel._check_add_window(len(data)):  # type: ignore[attr-defined]
            self._send_user_message(
                paramiko.Message(
                    pack(">BII", MSG_CHANNEL_WINDOW_ADJUST, channel.remote_chanid, ack)
                )
            )
        return data

    def write(self, channel: paramiko.Channel, data: bytes) -> None:
        """Give the command data to read. Raises TimeoutError if the peer takes none now."""
        room = min(channel.out_window_size, channel.out_max_packet_size - _HEAD)
        if len(data) > room or channel.closed or channel.eof_sent:
            channel.sendall(data)
            return
        channel.out_window_size -= len(data)
        head = pack(">BII", MSG_CHANNEL_DATA, channel.remote_chanid, len(data))
        self._send_user_message(paramiko.Message(head + data))

    def _send_user_message(self, data: paramiko.Message) -> None:
        """Send a message; during a new key exchange it is kept, where paramiko would wait."""
        if self.clear_to_send.is_set():
            self.packetizer.send_message(data)
        elif self.is_active() and len(self._held) < _HELD:
            self._held.append(data)
        elif self.is_active():
            self._stream.end()

    def _send_held(self) -> None:
        while self._held:
            self.packetizer.send_message(self._held.pop(0))


def _keep_data(channel: paramiko.Channel, message: paramiko.Message) -> None:
    channel.transport._data.append(message.get_binary())  # type: ignore[union-attr]


def _share_queues(*owners: object) -> None:
    """Give the conditions and events of these objects one queue for the threads that wait: none
    does, and their own queues are a seventh of a session's memory."""
    for owner in owners:
        for value in vars(owner).values():
            condition = getattr(value, "_cond", value)
            if isinstance(condition, threading.Condition):
                condition._waiters = _NOBODY  # type: ignore[attr-defined]


def _note(changed: asyncio.Future[None]) -> None:
    if not changed.done():
        changed.set_result(None)


_HANDLERS = paramiko.Transport._channel_handler_table  # type: ignore[attr-defined]
Transport._channel_handler_table = {  # type: ignore[attr-defined]
    **_HANDLERS,
    MSG_CHANNEL_DATA: _keep_data,
}


class _Answered(dict[int, threading.Event]):
    """The channels that the peer has not confirmed yet. paramiko's own wait returns at once;
    `until` waits."""

    def __setitem__(self, number: int, event: threading.Event) -> None:
        event.set()
        super().__setitem__(number, event)


class _Gate(threading.Event):
    """The event that is set while messages may be sent; `opened` is called when it is set."""

    def __init__(self, opened: Callable[[], None]) -> None:
        super().__init__()
        self._opened = opened

    def set(self) -> None:
        super().set()
        self._opened()


class _Packetizer(paramiko.packet.Packetizer):
    def __init__(self, stream: _Stream) -> None:
        super().__init__(stream)  # type: ignore[arg-type]
        self._budget = float(_BURST)
        self._counted = time.monotonic()

    def read_message(self) -> tuple[int, paramiko.Message]:
        """Return the next packet, with its kind. Raises SSHException if there are too many."""
        kind, message = super().read_message()
        now = time.monotonic()
        self._budget = min(_BURST, self._budget + _RATE * (now - self._counted))
        self._budget -= _REKEY if kind == MSG_KEXINIT else 1
        self._counted = now
        if self._budget < 0:
            raise paramiko.SSHException("more packets than any node has a reason to send")
        return kind, message

    def start_handshake(self, timeout: float) -> None:
        """Start no timer thread: each step of a login has its deadline in the event loop."""


class _Stream:
    """A connection with the interface that paramiko needs: recv() yields until bytes arrive, send()
    never waits."""

    received = 0
    _over = False
    _closed = False

    def __init__(
        self,
        connection: socket.socket,
        resume: Callable[[], None],
        authenticated: Callable[[], bool],
    ) -> None:
        self._socket = connection
        self._resume = resume
        self._authenticated = authenticated
        self._loop = asyncio.get_running_loop()
        self._arrived = bytearray()
        self._unsent = bytearray()

    def settimeout(self, seconds: float) -> None:
        """Ignore timeouts: no method waits."""

    def open(self) -> None:
        """Begin to read."""
        self._socket.setblocking(False)
        self._loop.add_reader(self._socket, self._readable)

    def recv(self, size: int) -> bytes:
        """Return up to `size` bytes; none when the connection is over. Raises SSHException if there
        are too many."""
        if size > _PACKET:
            raise paramiko.SSHException(f"a packet of more than {_PACKET} bytes")
        while not self._arrived and not self._over:
            getcurrent().parent.switch()  # type: ignore[union-attr]
        if self.received > _BEFORE_LOGIN and not self._authenticated():
            raise paramiko.SSHException(f"more than {_BEFORE_LOGIN} bytes before a login")
        data = bytes(self._arrived[:size])
        del self._arrived[:size]
        return data

    def send(self, data: bytes) -> int:
        """Send data, or keep what the peer does not take now. Raises OSError if too much is
        kept."""
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
        """Let paramiko read the end of the connection, soon."""
        self._over = True
        if not self._loop.is_closed():
            self._loop.call_soon(self._resume)

    def close(self) -> None:
        """Close the connection; unsent bytes are lost."""
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
        self.received += len(data)
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
