"""The server's side of ssh, as little of it as one login with one command needs: real key exchange,
real signatures.

Without threads or processes of its own, so that a thousand servers fit into one event loop beside
the client that is measured. RFC 4253 (transport), 4252 (login), 4254 (channels), 5647 (AES-GCM),
8731 (Curve25519), 8709 (Ed25519). What it offers is what the toolkit's sshd offers.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import struct
from collections.abc import Callable

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

_BANNER = b"SSH-2.0-bench"
_KEX = b"curve25519-sha256,curve25519-sha256@libssh.org"
_CIPHER, _MAC = b"aes256-gcm@openssh.com", b"hmac-sha2-256-etm@openssh.com"
_TAG = 16  # bytes of a packet's authentication
_KEY = b"ssh-ed25519"
_WINDOW = 2 << 20  # bytes; renewed when half of them have come, as OpenSSH's is
_BLOCK = 16


def string(data: bytes) -> bytes:
    """A text with its length before it."""
    return struct.pack(">I", len(data)) + data


def mpint(data: bytes) -> bytes:
    """A positive number as ssh sends it: no leading zeros, but one where it would look negative."""
    short = data.lstrip(b"\0")
    return string(b"\0" + short if short and short[0] & 0x80 else short)


class Reader:
    """The fields of one packet, one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def take(self, size: int) -> bytes:
        """So many bytes."""
        self._at += size
        if self._at > len(self._data):
            raise ValueError("a packet that is too short")
        return self._data[self._at - size : self._at]

    def number(self) -> int:
        """A number of 32 bits."""
        return int(struct.unpack(">I", self.take(4))[0])

    def string(self) -> bytes:
        """A text."""
        return self.take(self.number())


def signed(public: bytes) -> bytes:
    """An Ed25519 key as ssh sends it."""
    return string(_KEY) + string(public)


def public_bytes(key: Ed25519PublicKey | X25519PublicKey) -> bytes:
    """A public key's 32 bytes."""
    return key.public_bytes(Encoding.Raw, PublicFormat.Raw)


class Direction:
    """The key of what one side sends, and the number of its next packet."""

    def __init__(self, cipher: AESGCM, start: bytes) -> None:
        self.cipher = cipher
        self._fixed = start[:4]  # of the nonce
        self._number = int.from_bytes(start[4:12], "big")  # of the packet, in the nonce

    def nonce(self) -> bytes:
        """Of the next packet."""
        self._number += 1
        return self._fixed + (self._number - 1 & 0xFFFFFFFFFFFFFFFF).to_bytes(8, "big")


class Server(asyncio.Protocol):
    """One connection. `heard` gets what the client's command receives; `send` answers it."""

    def __init__(
        self,
        host_key: Ed25519PrivateKey,
        client_key: bytes,
        begun: Callable[[Server], None],
        heard: Callable[[Server, bytes], None],
        lost: Callable[[Server], None],
    ) -> None:
        self._host_key, self._client_key = host_key, client_key
        self._begun, self._heard, self._lost = begun, heard, lost
        self._buffer = bytearray()
        self._peer_version = self._peer_kex = self._our_kex = self._session = b""
        self._out: Direction | None = None  # once keys are agreed
        self._in: Direction | None = None
        self._next_in: Direction | None = None
        self._taken = 0  # bytes of the window
        self._length = 0  # of the packet that arrives; 0 while unknown
        self._channel = -1

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.address = str(transport.get_extra_info("sockname")[0])
        transport.write(_BANNER + b"\r\n")
        lists = (_KEX, _KEY, _CIPHER, _CIPHER, _MAC, _MAC, b"none", b"none", b"", b"")
        self._our_kex = (
            b"\x14" + os.urandom(16) + b"".join(string(each) for each in lists) + bytes(5)
        )
        self._packet(self._our_kex)

    def connection_lost(self, _: Exception | None) -> None:
        self._lost(self)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        try:
            if not self._peer_version:
                line, end, rest = bytes(self._buffer).partition(b"\n")
                if not end:
                    return
                self._peer_version, self._buffer = line.rstrip(b"\r"), bytearray(rest)
            while (payload := self._unpacked()) is not None:
                self._handle(payload[0], Reader(payload[1:]), payload)
        except (ValueError, KeyError, IndexError, InvalidTag):
            self.transport.abort()

    # -- packets

    def _packet(self, payload: bytes) -> None:
        if self._out is None:
            padding = 8 - (5 + len(payload)) % 8
            padding += 8 * (padding < 4)
            self.transport.write(
                struct.pack(">IB", 1 + len(payload) + padding, padding) + payload + bytes(padding)
            )
        else:
            padding = _BLOCK - (1 + len(payload)) % _BLOCK
            padding += _BLOCK * (padding < 4)
            head = struct.pack(">I", 1 + len(payload) + padding)
            body = bytes([padding]) + payload + bytes(padding)
            self.transport.write(head + self._out.cipher.encrypt(self._out.nonce(), body, head))

    def _unpacked(self) -> bytes | None:
        """The next packet's payload, once it has arrived whole."""
        if len(self._buffer) < 4:
            return None
        length = int.from_bytes(self._buffer[:4], "big")
        if length > 1 << 20:
            raise ValueError("a packet that is too long")
        whole = 4 + length + (_TAG if self._in else 0)
        if len(self._buffer) < whole:
            return None
        packet = bytes(self._buffer[:whole])
        del self._buffer[:whole]
        body = packet[4:]
        if self._in:
            body = self._in.cipher.decrypt(self._in.nonce(), body, packet[:4])
        return body[1 : len(body) - body[0]]

    # -- messages

    def _handle(self, kind: int, reader: Reader, payload: bytes) -> None:
        handler = _HANDLERS.get(kind)
        if handler:
            handler(self, reader, payload)
        elif kind >= 50 or kind in (1,):
            self.transport.close()

    def _kex_init(self, _: Reader, payload: bytes) -> None:
        self._peer_kex = payload

    def _kex(self, reader: Reader, _: bytes) -> None:
        theirs = reader.string()
        own = X25519PrivateKey.generate()
        ours = public_bytes(own.public_key())
        shared = mpint(own.exchange(X25519PublicKey.from_public_bytes(theirs)))
        host = signed(public_bytes(self._host_key.public_key()))
        parts = (self._peer_version, _BANNER, self._peer_kex, self._our_kex, host, theirs, ours)
        digest = hashlib.sha256(b"".join(string(each) for each in parts) + shared).digest()
        self._session = self._session or digest
        proof = string(_KEY) + string(self._host_key.sign(digest))
        self._packet(b"\x1f" + string(host) + string(ours) + string(proof))
        self._packet(b"\x15")

        def key(letter: bytes) -> bytes:
            return hashlib.sha256(shared + digest + letter + self._session).digest()

        self._next_in = Direction(AESGCM(key(b"C")), key(b"A"))
        self._out = Direction(AESGCM(key(b"D")), key(b"B"))

    def _new_keys(self, _: Reader, __: bytes) -> None:
        self._in = self._next_in

    def _service(self, reader: Reader, _: bytes) -> None:
        self._packet(b"\x06" + string(reader.string()))

    def _login(self, reader: Reader, payload: bytes) -> None:
        user, service, method = reader.string(), reader.string(), reader.string()
        if method != b"publickey":
            self._packet(b"\x33" + string(b"publickey") + b"\0")
            return
        with_signature, algorithm, key = reader.take(1) != b"\0", reader.string(), reader.string()
        if algorithm != _KEY or key != signed(self._client_key):
            self._packet(b"\x33" + string(b"publickey") + b"\0")
            return
        if not with_signature:
            self._packet(b"\x3c" + string(algorithm) + string(key))
            return
        proof = Reader(reader.string())
        proof.string()
        what = (
            string(self._session)
            + b"\x32"
            + string(user)
            + string(service)
            + string(method)
            + b"\x01"
        )
        try:
            Ed25519PublicKey.from_public_bytes(self._client_key).verify(
                proof.string(), what + string(algorithm) + string(key)
            )
        except InvalidSignature:
            self._packet(b"\x33" + string(b"publickey") + b"\0")
        else:
            self._packet(b"\x34")

    def _global(self, reader: Reader, _: bytes) -> None:
        reader.string()
        if reader.take(1) != b"\0":
            self._packet(b"\x52")

    def _open(self, reader: Reader, _: bytes) -> None:
        reader.string()
        self._channel = reader.number()
        self._packet(b"\x5b" + struct.pack(">IIII", self._channel, 0, _WINDOW, 32768))

    def _request(self, reader: Reader, _: bytes) -> None:
        reader.number()
        what = reader.string()
        if reader.take(1) != b"\0":
            self._packet(b"\x63" + struct.pack(">I", self._channel))
        if what == b"exec":
            self._begun(self)

    def _data(self, reader: Reader, _: bytes) -> None:
        reader.number()
        data = reader.string()
        self._taken += len(data)
        if self._taken > _WINDOW // 2:
            self._packet(b"\x5d" + struct.pack(">II", self._channel, self._taken))
            self._taken = 0
        self._heard(self, data)

    def _close(self, _: Reader, __: bytes) -> None:
        self.transport.close()

    def send(self, data: bytes) -> None:
        """What the command prints."""
        if not self.transport.is_closing():
            self._packet(b"\x5e" + struct.pack(">I", self._channel) + string(data))

    def end(self) -> None:
        """The command has ended with 0."""
        if not self.transport.is_closing():
            channel = struct.pack(">I", self._channel)
            self._packet(b"\x62" + channel + string(b"exit-status") + b"\0" + struct.pack(">I", 0))
            self._packet(b"\x60" + channel)
            self._packet(b"\x61" + channel)


_HANDLERS: dict[int, Callable[[Server, Reader, bytes], None]] = {
    5: Server._service,
    20: Server._kex_init,
    21: Server._new_keys,
    30: Server._kex,
    50: Server._login,
    80: Server._global,
    90: Server._open,
    94: Server._data,
    97: Server._close,
    98: Server._request,
    **dict.fromkeys(
        (93, 95, 96, 99, 100), lambda *_: None
    ),  # windows, stderr, ends, answers: nothing to do
}
