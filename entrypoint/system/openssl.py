"""HKDF and Ed25519 from OpenSSL's libcrypto, which sshd needs as well: `cryptography` would cost
each worker 25 ms of CPU, and 9 MB for as long as the job runs."""

from __future__ import annotations

from ctypes import CDLL, byref, c_char_p, c_int, c_size_t, c_void_p, create_string_buffer
from functools import cache

_NAMES = ("libcrypto.so.3", "libcrypto.so.1.1")
_ED25519 = 1087  # EVP_PKEY_ED25519, openssl/obj_mac.h
_FUNCTIONS = {
    "EVP_sha256": (c_void_p,),
    "HMAC": (c_void_p, c_void_p, c_char_p, c_int, c_char_p, c_size_t, c_char_p, c_void_p),
    "EVP_PKEY_new_raw_private_key": (c_void_p, c_int, c_void_p, c_char_p, c_size_t),
    "EVP_PKEY_get_raw_public_key": (c_int, c_void_p, c_char_p, c_void_p),
    "EVP_PKEY_free": (None, c_void_p),
}  # result, arguments


class UnsupportedError(Exception):
    """The library was found, but lacks functions that a provider should add."""


@cache
def library() -> CDLL | None:
    """Return the library; None if no supported one is installed."""
    for name in _NAMES:
        try:
            crypto = CDLL(name)
            for function, (result, *arguments) in _FUNCTIONS.items():
                getattr(crypto, function).restype = result
                getattr(crypto, function).argtypes = arguments
        except (OSError, AttributeError):  # not installed, or without Ed25519
            continue
        return crypto
    return None


def seed(crypto: CDLL, secret: bytes, salt: bytes, info: bytes) -> bytes:
    """Return the 32 bytes that HKDF-SHA256 (RFC 5869) derives from a secret for the use that `info`
    names."""
    return _hmac(crypto, _hmac(crypto, salt, secret), info + b"\x01")


def _hmac(crypto: CDLL, key: bytes, text: bytes) -> bytes:
    digest = create_string_buffer(32)
    if not crypto.HMAC(crypto.EVP_sha256(), key, len(key), text, len(text), digest, None):
        raise UnsupportedError("libcrypto has no HMAC-SHA256")
    return digest.raw


def public(crypto: CDLL, seed: bytes) -> bytes:
    """Return the public key, 32 bytes, of an Ed25519 key's seed (RFC 8032)."""
    key = crypto.EVP_PKEY_new_raw_private_key(_ED25519, None, seed, len(seed))
    result = create_string_buffer(32)
    try:
        if not key or crypto.EVP_PKEY_get_raw_public_key(key, result, byref(c_size_t(32))) != 1:
            raise UnsupportedError("libcrypto has no Ed25519")
    finally:
        crypto.EVP_PKEY_free(key)
    return result.raw
