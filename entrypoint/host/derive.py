"""From a secret to the seed of a key (HKDF-SHA256, RFC 5869), and from a seed to its public key (Ed25519, RFC 8032).

A worker needs two public keys and no signature. For them `cryptography` takes 10 ms of CPU and 9 MB of memory, Python's
own integers 2 ms. A test compares both. How long a call takes depends on the seed, as all arithmetic of Python's does;
it happens once, at the start.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any


def _hash(name: str) -> Any:
    # hashlib loads OpenSSL, 4 MB; as `random` of the standard library does, take the lean modules where they are.
    for module in (f"_{name}", "_sha2", "hashlib"):  # until Python 3.11, from 3.12, anywhere
        try:
            return getattr(importlib.import_module(module), name)
        except ImportError:
            continue
    raise ImportError(f"no {name} in this Python")


_sha256, _sha512 = _hash("sha256"), _hash("sha512")


def seed(secret: bytes, salt: bytes, info: bytes) -> bytes:
    """The 32 bytes that HKDF-SHA256 makes of a secret for the use that `info` names; `salt` has 64 bytes at most."""
    return _hmac(_hmac(salt, secret), info + b"\x01")


def _hmac(key: bytes, text: bytes) -> bytes:
    block = key.ljust(64, b"\0")
    inner: bytes = _sha256(bytes(byte ^ 0x36 for byte in block) + text).digest()
    outer: bytes = _sha256(bytes(byte ^ 0x5C for byte in block) + inner).digest()
    return outer


# A point of the curve, as RFC 8032 5.1.4 writes it: X, Y, Z, T with x = X/Z, y = Y/Z, x * y = T/Z
_Point = tuple[int, int, int, int]

_P = 2**255 - 19
_2D = 2 * -121665 * pow(121666, -1, _P) % _P
_X = 15112221349535400772501151409588531511454012693041857206046113283949847762202
_Y = 4 * pow(5, -1, _P) % _P
_BASE = (_X, _Y, 1, _X * _Y % _P)


def public(seed: bytes) -> bytes:
    """The public key, 32 bytes, of an Ed25519 key's seed (RFC 8032, 5.1.5)."""
    number = int.from_bytes(_sha512(seed).digest()[:32], "little")
    number = number & (2**254 - 8) | 2**254
    point = (0, 1, 1, 0)
    for bit, power in enumerate(_powers()):
        if number >> bit & 1:
            point = _sum(point, power)
    x, y, z, _ = point
    inverse = pow(z, -1, _P)
    return (y * inverse % _P | (x * inverse % _P & 1) << 255).to_bytes(32, "little")


@functools.cache
def _powers() -> tuple[_Point, ...]:
    """The base point, twice the base point, four times, and so on: half of the work, and the same for every key."""
    points = [_BASE]
    while len(points) < 255:
        points.append(_sum(points[-1], points[-1]))
    return tuple(points)


def _sum(one: _Point, two: _Point) -> _Point:
    x1, y1, z1, t1 = one
    x2, y2, z2, t2 = two
    a, b = (y1 - x1) * (y2 - x2) % _P, (y1 + x1) * (y2 + x2) % _P
    c, d = t1 * t2 * _2D % _P, 2 * z1 * z2 % _P
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % _P, g * h % _P, f * g % _P, e * h % _P
