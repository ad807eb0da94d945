"""The job's ssh keys: derived from its secret on every node alike, or mounted. No key is in the
image or sent.

HKDF-SHA256 (RFC 5869) derives from the secret one 32-byte Ed25519 seed for the client and one for
the hosts, and the token that the job's own servers require; `info` names the job and the use, so
keys of two jobs differ even with the same secret.

All nodes of a job share one host key, which proves that a node has the secret. A key for each host
name would prove no more, since the secret yields all of them, and nodes with different lists of
hosts could not report that. The node's identity, and that both sides have the same list, are
checked first in the roll call.
"""

from __future__ import annotations

import binascii
import os
import struct
from ctypes import CDLL, byref, c_char_p, c_int, c_size_t, c_void_p, create_string_buffer
from functools import cache
from typing import Any

from entrypoint.base import registry, values
from entrypoint.base.errors import ConfigError, NoInputError
from entrypoint.base.model import Topology
from entrypoint.base.secret import HIDDEN, hides, weakness
from entrypoint.base.values import frozen
from entrypoint.spec import JobSpec
from entrypoint.system.files import read

_KIND = "ssh-ed25519"
_SALT = b"entrypoint keys 1"
# OpenSSL's libcrypto, which sshd needs as well: `cryptography` would cost each worker 25 ms of CPU,
# and 9 MB for as long as the job runs.
_LIBRARIES = ("libcrypto.so.3", "libcrypto.so.1.1")
_ED25519 = 1087  # EVP_PKEY_ED25519, openssl/obj_mac.h
_FUNCTIONS = {
    "EVP_PKEY_new_raw_private_key": (c_void_p, c_int, c_void_p, c_char_p, c_size_t),
    "EVP_PKEY_get_raw_public_key": (c_int, c_void_p, c_char_p, c_void_p),
    "EVP_PKEY_free": (None, c_void_p),
}  # result, arguments


@frozen
class Keys:
    """The keys of the job that this node needs. Only the leader has the client's private key."""

    client_private: bytes = values.field(repr=False)  # b"" on a worker
    client_public: str
    host_private: bytes = values.field(repr=False)
    known_hosts: str  # of all nodes; "" on a worker, which logs in nowhere
    # the same on every node; grants access to the job's servers
    token: str = values.field(repr=False)

    def files(self) -> dict[str, bytes | str]:
        """Return the files of the keys: name in the run directory -> content."""
        files: dict[str, bytes | str] = {
            "host_key": self.host_private,
            # No forwarding, no terminal, no rc file, whatever the server's configuration is.
            "authorized_keys": f"restrict {self.client_public}\n",
            "token": self.token,
        }
        if self.known_hosts:
            files |= {"client_key": self.client_private, "known_hosts": self.known_hosts}
        return files


def load(spec: JobSpec, topology: Topology) -> Keys:
    """Return this job's keys.

    Raises ConfigError as `require` does, and if a secret or a key cannot be used; NoInputError if a
    file does not exist.
    """
    require(spec, topology)
    if spec.ssh.client_key and spec.ssh.host_key:
        return _mounted(spec, topology)
    return _derived(_baked(spec) if spec.ssh.compat == "baked-keys" else _secret(spec), topology)


def require(spec: JobSpec, topology: Topology) -> None:
    """Raise ConfigError if the job has neither a secret nor key files, before anything is read."""
    # the spec refuses half a pair of keys
    if spec.secret or spec.secret_file or spec.ssh.client_key:
        return
    platform = registry.load("platforms", topology.platform)
    anywhere = "give all nodes one ENTRYPOINT_SECRET_FILE or ENTRYPOINT_SECRET"
    hint = getattr(platform, "SECRET", anywhere)
    raise ConfigError(
        f"EP300 no secret configured (required for {len(topology.nodes)} nodes)",
        "no secret and no key files",
        f"{hint} (try: openssl rand -hex 32); `entrypoint explain EP300` has other ways",
    )


def warnings(spec: JobSpec) -> list[str]:
    """Return the warnings about the keys, which are logged at every start."""
    if spec.ssh.compat == "none":
        return []
    origin = (
        f"the job's keys come from the image's own, {spec.ssh.client_key} (ssh.compat:"
        f" {spec.ssh.compat})"
    )
    return [
        f"EP305 {origin} | everybody who has the image can log in to every node | give the job a"
        " secret and remove ssh.compat"
    ]


def _secret(spec: JobSpec) -> bytes:
    if spec.secret is not None:
        return spec.secret.value.encode("utf-8", "surrogateescape")
    secret = _read(spec.secret_file or "", "secret_file").rstrip(b"\r\n")
    if problem := weakness(secret):
        summary, detail = problem
        raise ConfigError(
            f"EP301 {summary} ({spec.source('secret_file')})",
            detail,
            "create one with: openssl rand -hex 32",
        )
    return secret


def _baked(spec: JobSpec) -> bytes:
    """Return the private key that every container of the image has: it is only as secret as the
    image.

    Any kind of key is accepted, since it is used for no login itself.
    """
    from cryptography.hazmat.primitives import serialization

    hint = "name a private key without a passphrase, such as /home/ma-user/.ssh/id_rsa"
    key = _loaded(spec.ssh.client_key or "", "ssh.client_key", hint, any_form=True)
    kind = serialization.PrivateFormat.PKCS8
    encryption = serialization.NoEncryption()
    private: bytes = key.private_bytes(serialization.Encoding.DER, kind, encryption)
    return private


def _derived(secret: bytes, topology: Topology) -> Keys:
    client, host, token = (_seed(secret, use, topology) for use in ("client", "host", "token"))
    # The leader's ssh client imports the library anyway.
    public_key = _public_key if topology.is_leader else _public_key_by_openssl
    return _keys(topology, (client, public_key(client)), (host, public_key(host)), token)


def _keys(
    topology: Topology,
    client: tuple[bytes, bytes],
    host: tuple[bytes, bytes],
    token: bytes,
    known_hosts: str | None = None,
) -> Keys:
    """Return what this node needs of the seeds and public keys of client and hosts."""
    client_private = b""
    if topology.is_leader:
        client_private = _private(*client)
        public = _public(host[1])
        if known_hosts is None:
            known_hosts = "".join(f"{node.host} {public}\n" for node in topology.nodes)
    return Keys(client_private, _public(client[1]), _private(*host), known_hosts or "", token.hex())


def _seed(secret: bytes, use: str, topology: Topology) -> bytes:
    """Return the 32 bytes that HKDF-SHA256 (RFC 5869) derives from a secret for this use."""
    from _hashlib import hmac_digest  # `hmac`, which wraps it, also loads `hashlib`

    info = f"{use}\0{topology.job}".encode()
    try:
        return hmac_digest(hmac_digest(_SALT, secret, "sha256"), info + b"\x01", "sha256")
    except ValueError as error:
        raise _unsupported(str(error)) from None


def _public_key(seed: bytes) -> bytes:
    """Return the public key, 32 bytes, of an Ed25519 key's seed (RFC 8032)."""
    from cryptography.exceptions import InternalError, UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    try:
        return Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw()
    except (InternalError, UnsupportedAlgorithm) as error:
        raise _unsupported(str(error)) from None


@cache
def library() -> CDLL | None:
    """Return OpenSSL's library; None if no supported one is installed."""
    for name in _LIBRARIES:
        try:
            crypto = CDLL(name)
            for function, (result, *arguments) in _FUNCTIONS.items():
                getattr(crypto, function).restype = result
                getattr(crypto, function).argtypes = arguments
        except (OSError, AttributeError):  # not installed, or without Ed25519
            continue
        return crypto
    return None


def _public_key_by_openssl(seed: bytes) -> bytes:
    """Return the same, in less time and memory if OpenSSL's own library is installed."""
    if (crypto := library()) is None:
        return _public_key(seed)
    key = crypto.EVP_PKEY_new_raw_private_key(_ED25519, None, seed, len(seed))
    result = create_string_buffer(32)
    try:
        if not key or crypto.EVP_PKEY_get_raw_public_key(key, result, byref(c_size_t(32))) != 1:
            raise _unsupported("libcrypto has no Ed25519")
    finally:
        crypto.EVP_PKEY_free(key)
    return result.raw


def _unsupported(error: str) -> ConfigError:
    """Return the error for an OpenSSL that lacks a function, such as one without its configured
    fips provider."""
    return ConfigError(
        "EP426 this image's OpenSSL cannot make the job's keys",
        f"{error}; OPENSSL_CONF is {os.environ.get('OPENSSL_CONF') or 'not set'}",
        "install the providers that OpenSSL's configuration asks for (fips.so), or unset"
        " OPENSSL_CONF",
    )


def _mounted(spec: JobSpec, topology: Topology) -> Keys:
    client = _parse(spec.ssh.client_key or "", "ssh.client_key")
    host = _parse(spec.ssh.host_key or "", "ssh.host_key")
    known_hosts = None
    if topology.is_leader and spec.ssh.known_hosts:
        known_hosts = _read(spec.ssh.known_hosts, "ssh.known_hosts").decode("utf-8", "replace")
    # every node has the client's key
    token = _seed(client[0], "token", topology)
    return _keys(topology, client, host, token, known_hosts)


def _parse(path: str, field: str) -> tuple[bytes, bytes]:
    """Return the seed and the public key of a mounted private key."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    hint = "create it with: ssh-keygen -t ed25519 -N ''"
    key = _loaded(path, field, hint)
    if not isinstance(key, Ed25519PrivateKey):
        raise ConfigError(f"EP302 {field} is not an Ed25519 key", path, hint)
    return key.private_bytes_raw(), key.public_key().public_bytes_raw()


def _loaded(path: str, field: str, hint: str, any_form: bool = False) -> Any:
    """Return a mounted private key, which has OpenSSH's form, unless `any_form` is accepted."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization

    data = _read(path, field)
    load: Any = serialization.load_ssh_private_key
    if any_form and b"OPENSSH PRIVATE KEY" not in data:
        load = serialization.load_pem_private_key
    try:
        return load(data, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise ConfigError(
            f"EP302 {field} is not a private key that the toolkit can read",
            f"{path}: {error}",
            hint,
        ) from None


def _read(path: str, field: str) -> bytes:
    try:
        return read(path)
    except OSError as error:
        hint = "mount it where this user can read it"
        if isinstance(error, PermissionError):
            hint += (
                f", uid {os.geteuid()}: start the container as its owner, --user OWNER:0 (with"
                " rootless Podman also --userns=keep-id; in Kubernetes, fsGroup)"
            )
        shown = path
        if hides(field, path):  # a user may have given the secret itself instead of a file name
            shown = HIDDEN
            hint = (
                f"give {field} the name of a file, with its folder; a secret itself:"
                " ENTRYPOINT_SECRET"
            )
        raise NoInputError(
            f"EP303 cannot read {field}", f"{shown}: {error.strerror}", hint
        ) from None


def _private(seed: bytes, public: bytes) -> bytes:
    """Return the key as a file of OpenSSH (PROTOCOL.key), without a passphrase and a comment."""
    check = os.urandom(4)
    secret = check + check + _strings(_KIND.encode(), public, seed + public, b"")
    secret += bytes(range(1, 1 + -len(secret) % 8))
    data = (
        b"openssh-key-v1\0"
        + _strings(b"none", b"none", b"")
        + struct.pack(">I", 1)
        + _strings(_blob(public), secret)
    )
    text = _base64(data)
    lines = "\n".join(text[at : at + 64] for at in range(0, len(text), 64))
    key = f"-----BEGIN OPENSSH PRIVATE KEY-----\n{lines}\n-----END OPENSSH PRIVATE KEY-----\n"
    return key.encode()


def _public(key: bytes) -> str:
    return f"{_KIND} {_base64(_blob(key))}"


def _blob(key: bytes) -> bytes:
    """Return the public key in the form of RFC 8709."""
    return _strings(_KIND.encode(), key)


def _strings(*values: bytes) -> bytes:
    """Return strings in ssh's encoding (RFC 4251): each after its length."""
    return b"".join(struct.pack(">I", len(value)) + value for value in values)


def _base64(data: bytes) -> str:
    return binascii.b2a_base64(data, newline=False).decode()
