"""The job's keys as ssh-keygen reads them, and keys that it made."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from entrypoint.base.errors import ConfigError
from tests.process.test_derived_keys import NODES, make, mounted, refusal


def public_of(private: bytes, tmp_path: Path) -> str:
    """The public key as ssh-keygen reads it out of the private one."""
    program = shutil.which("ssh-keygen")
    if program is None:
        pytest.skip("no ssh-keygen here")
    path = tmp_path / "key"
    path.unlink(missing_ok=True)
    path.write_bytes(private)
    path.chmod(0o600)
    done = subprocess.run(
        [program, "-y", "-f", str(path)], capture_output=True, text=True, check=True
    )
    return " ".join(done.stdout.split()[:2])


def test_the_leader_knows_every_host_before_it_calls(tmp_path: Path) -> None:
    lines = [line.split(" ", 1) for line in make().known_hosts.splitlines()]
    assert [host for host, _ in lines] == list(NODES)
    assert [key for _, key in lines] == [
        public_of(make(me).host_private, tmp_path) for me in range(3)
    ]


def keygen(path: Path, *options: str) -> str:
    """Make a key pair with ssh-keygen; the public key."""
    program = shutil.which("ssh-keygen")
    if program is None:
        pytest.skip("no ssh-keygen here")
    subprocess.run([program, "-q", "-N", "", "-C", "", "-f", str(path), *options], check=True)
    return " ".join(path.with_suffix(".pub").read_text().split()[:2])


@pytest.fixture
def client(tmp_path: Path) -> str:
    """The public key of a client's key that is mounted beside a host's."""
    keygen(tmp_path / "host", "-t", "ed25519")
    return keygen(tmp_path / "client", "-t", "ed25519")


def test_mounted_keys(client: str, tmp_path: Path) -> None:
    host = public_of((tmp_path / "host").read_bytes(), tmp_path)
    made = make(secret=None, text=mounted(tmp_path))
    assert made.client_public == client
    assert public_of(made.client_private, tmp_path) == client
    assert public_of(made.host_private, tmp_path) == host
    assert made.known_hosts == "".join(f"{name} {host}\n" for name in NODES)
    assert make(1, None, text=mounted(tmp_path)).known_hosts == ""
    assert make(text=mounted(tmp_path)).client_public == client, "also where there is a secret"


def test_mounted_known_hosts(client: str, tmp_path: Path) -> None:
    (tmp_path / "known").write_text("worker-0 ssh-ed25519 AAAA\n")
    made = make(secret=None, text=mounted(tmp_path, f", known_hosts: {tmp_path}/known"))
    assert made.known_hosts == "worker-0 ssh-ed25519 AAAA\n"


@pytest.mark.parametrize(
    ("which", "options", "says"),
    [
        *((which, ("-t", "rsa", "-b", "2048"), "an Ed25519 key") for which in ("client", "host")),
        (
            "client",
            ("-t", "ed25519", "-N", "words of mine"),
            "a private key that the toolkit can read",
        ),
    ],
    ids=["client", "host", "passphrase"],
)
def test_what_is_refused(
    which: str, options: tuple[str, ...], says: str, client: str, tmp_path: Path
) -> None:
    (tmp_path / which).unlink()
    (tmp_path / f"{which}.pub").unlink()
    keygen(tmp_path / which, *options)
    message, status = refusal(ConfigError, mounted(tmp_path))
    assert message.startswith(f"EP302 ssh.{which}_key is not {says} | {tmp_path}/{which}")
    assert status == 78
