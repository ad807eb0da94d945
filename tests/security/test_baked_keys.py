"""ssh.compat: baked-keys, for images that bring one private key to all their containers: by name
only, and loudly."""

from __future__ import annotations

import secrets
import subprocess
import sys
from pathlib import Path

import pytest

from entrypoint.base.errors import ConfigError, SpecError
from entrypoint.spec import load
from entrypoint.system import keys
from tests.cluster import Make
from tests.security.door import located, needs_ssh

HOSTS = "hosts: [a, b]\nnode_rank: {}\n"
WARNING = "everybody who has the image can log in to every node"


def made(text: str, me: int = 0) -> keys.Keys:
    spec = load(HOSTS.format(me) + text, "job.yaml", {}, {})
    return keys.load(spec, located(spec)[1])


def baked(folder: Path, *options: str) -> Path:
    path = folder / f"id-{secrets.token_hex(4)}"
    subprocess.run(["ssh-keygen", "-q", "-N", "", "-f", str(path), *options], check=True)
    return path


@needs_ssh
@pytest.mark.parametrize(
    "options",
    [
        ("-t", "ed25519"),
        ("-t", "rsa", "-b", "2048"),
        ("-t", "rsa", "-b", "2048", "-m", "PEM"),
        ("-t", "ecdsa"),
    ],
    ids=["ed25519", "rsa", "rsa as PEM", "ecdsa"],
)
def test_a_baked_key_becomes_the_secret(options: tuple[str, ...], tmp_path: Path) -> None:
    """With ssh.compat: baked-keys a key of any kind gives every node its own Ed25519 host key, and
    all are pinned."""
    path = baked(tmp_path, *options)
    text = f"ssh: {{compat: baked-keys, client_key: {path}}}"
    leader, worker = made(text), made(text, 1)
    assert leader.client_public == worker.client_public
    assert leader.client_public.startswith("ssh-ed25519 ")
    # no login uses the key itself
    assert leader.client_public.split()[1] not in path.with_suffix(".pub").read_text()
    assert [line.split()[0] for line in leader.known_hosts.splitlines()] == ["a", "b"]
    assert len({line.split()[2] for line in leader.known_hosts.splitlines()}) == 1, (
        "all nodes of a job have one"
    )
    assert worker.known_hosts == ""
    other = made(f"ssh: {{compat: baked-keys, client_key: {baked(tmp_path, *options)}}}")
    assert other.client_public != leader.client_public


def test_it_exists_by_name_only(tmp_path: Path) -> None:
    """Unless asked for by name no key of the image is used; half of it, or a secret beside it, is
    refused."""
    with pytest.raises(ConfigError, match="no secret and no key files"):
        made("")
    for text, words in (
        ("ssh: {compat: baked-keys}", "EP104 ssh.client_key is needed too"),
        (
            f"secret_file: /s\nssh: {{compat: baked-keys, client_key: {tmp_path}}}",
            "secret_file is given too",
        ),
        (
            f"ssh: {{compat: baked-keys, client_key: {tmp_path}, host_key: /h}}",
            "ssh.host_key is given too",
        ),
        (f"ssh: {{client_key: {tmp_path}}}", "ssh.host_key is needed too"),
        ("ssh: {compat: on}", "one of none, baked-keys is needed"),
    ):
        with pytest.raises(SpecError, match=words):
            made(text)
    variables = {"ENTRYPOINT_SECRET": secrets.token_hex(16), "ENTRYPOINT_SSH_COMPAT": "baked-keys"}
    with pytest.raises(SpecError, match="secret is given too"):
        load(None, "", {**variables, "ENTRYPOINT_SSH_CLIENT_KEY": "/k"}, {})


@needs_ssh
def test_it_warns_on_every_start(cluster: Make, tmp_path: Path) -> None:
    """A job with a baked key runs, and each node warns on every start; control: with a secret none
    does."""
    path = baked(tmp_path, "-t", "rsa", "-b", "2048")
    old = {"ENTRYPOINT_SECRET": "(unset)", "ENTRYPOINT_SSH_COMPAT": "baked-keys"}
    old["ENTRYPOINT_SSH_CLIENT_KEY"] = str(path)
    for extra, warnings in ((old, 1), (old, 1), ({}, 0)):
        job = cluster(2, slots=1)
        job.start_all(sys.executable, "-c", r"import os; os.write(1, b'up\n')", env=extra)
        assert job.ends() == {0: 0, 1: 0}, job.both()
        assert job.out().split() == ["up", "up"]
        assert [job.err(rank).count(WARNING) for rank in range(2)] == [warnings, warnings]
