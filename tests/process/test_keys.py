"""The job's keys as ssh-keygen reads them, and keys that it made."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from entrypoint.errors import ConfigError
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


def test_ssh_keygen_reads_what_we_wrote(tmp_path: Path) -> None:
    made = make()
    assert public_of(made.client_private, tmp_path) == made.client_public
    assert (
        public_of(made.host_private, tmp_path)
        == make().known_hosts.splitlines()[0].split(" ", 1)[1]
    )


def keygen(path: Path, *options: str) -> str:
    """Make a key pair with ssh-keygen; the public key."""
    program = shutil.which("ssh-keygen")
    if program is None:
        pytest.skip("no ssh-keygen here")
    subprocess.run([program, "-q", "-N", "", "-C", "", "-f", str(path), *options], check=True)
    return " ".join(path.with_suffix(".pub").read_text().split()[:2])


def test_mounted_keys(tmp_path: Path) -> None:
    client = keygen(tmp_path / "client", "-t", "ed25519")
    host = keygen(tmp_path / "host", "-t", "ed25519")
    made = make(secret=None, text=mounted(tmp_path))
    assert made.client_public == client
    assert public_of(made.client_private, tmp_path) == client
    assert public_of(made.host_private, tmp_path) == host
    assert made.known_hosts == "".join(f"{name} {host}\n" for name in NODES)
    assert make(1, None, text=mounted(tmp_path)).known_hosts == ""


def test_mounted_keys_win_over_a_secret(tmp_path: Path) -> None:
    client = keygen(tmp_path / "client", "-t", "ed25519")
    keygen(tmp_path / "host", "-t", "ed25519")
    assert make(text=mounted(tmp_path)).client_public == client


def test_mounted_known_hosts(tmp_path: Path) -> None:
    keygen(tmp_path / "client", "-t", "ed25519")
    keygen(tmp_path / "host", "-t", "ed25519")
    (tmp_path / "known").write_text("worker-0 ssh-ed25519 AAAA\n")
    made = make(secret=None, text=mounted(tmp_path, f", known_hosts: {tmp_path}/known"))
    assert made.known_hosts == "worker-0 ssh-ed25519 AAAA\n"


@pytest.mark.parametrize("which", ["client", "host"])
def test_mounted_rsa_is_refused(which: str, tmp_path: Path) -> None:
    for name in ("client", "host"):
        keygen(
            tmp_path / name, *(("-t", "rsa", "-b", "2048") if name == which else ("-t", "ed25519"))
        )
    assert refusal(ConfigError, mounted(tmp_path)) == (
        (
            f"EP302 ssh.{which}_key is not an Ed25519 key | {tmp_path}/{which} | make it with:"
            " ssh-keygen -t ed25519 -N ''"
        ),
        78,
    )


def test_mounted_with_a_passphrase_is_refused(tmp_path: Path) -> None:
    keygen(tmp_path / "client", "-t", "ed25519", "-N", "words of mine")
    keygen(tmp_path / "host", "-t", "ed25519")
    message, status = refusal(ConfigError, mounted(tmp_path))
    assert message.startswith(
        f"EP302 ssh.client_key is not a private key we can read | {tmp_path}/client: "
    )
    assert status == 78
