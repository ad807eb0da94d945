"""The job's keys: the same on every node, of no other job, and nowhere but where they are
needed."""

from __future__ import annotations

import base64
import hmac
import os
import re
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from shlex import split

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_ssh_private_key,
)
from hypothesis import example, given
from hypothesis import strategies as st

from entrypoint.base.errors import ConfigError, EntrypointError, NoInputError
from entrypoint.base.model import Device, Facts, Site, Topology
from entrypoint.plan import topology as topologies
from entrypoint.spec import load
from entrypoint.system import keys
from tests.command import captured

SECRET = secrets.token_hex(32)
NODES = ("worker-0", "worker-1", "worker-2")


def make(
    me: int = 0,
    secret: str | None = SECRET,
    job: str = "job",
    hosts: tuple[str, ...] = NODES,
    text: str = "",
) -> keys.Keys:
    """The keys that node `me` has."""
    spec = load(
        f"name: {job}\nhosts: [{', '.join(hosts)}]\nnode_rank: {me}\n{text}",
        "job.yaml",
        {"ENTRYPOINT_SECRET": secret} if secret else {},
        {},
    )
    facts = Facts(env={}, hostname="c", cwd="/", uid=1000, user="u", home="/home/u")
    topology: Topology = topologies.build(spec, facts, Site("local"), Device("cpu", 0, ""))
    return keys.load(spec, topology)


def refusal(kind: type[EntrypointError], text: str, secret: str | None = None) -> tuple[str, int]:
    with pytest.raises(kind) as caught:
        make(secret=secret, text=text)
    return str(caught.value), caught.value.status


def seed(private: bytes) -> bytes:
    """The key itself: OpenSSH's form of it holds a random number too, so two files of one key
    differ."""
    key = load_ssh_private_key(private, password=None)
    assert isinstance(key, Ed25519PrivateKey)
    return key.private_bytes_raw()


def parts(made: keys.Keys) -> tuple[bytes, bytes, str, str]:
    """What two nodes' keys have to have in common to be the same."""
    return seed(made.client_private), seed(made.host_private), made.client_public, made.known_hosts


@pytest.fixture
def nobody() -> Iterator[None]:
    """Root may read everything, so it steps down to a user who may not."""
    if os.geteuid() == 0:
        os.seteuid(65534)
        yield
        os.seteuid(0)
    else:
        yield


# --------------------------------------------------------------------------------------------------
# Derived


def test_all_nodes_agree() -> None:
    leader, *workers = [make(me) for me in range(3)]
    assert {node.client_public for node in (leader, *workers)} == {leader.client_public}
    assert [node.client_private for node in workers] == [b"", b""], "a worker logs in nowhere"
    assert leader.client_public.startswith("ssh-ed25519 ")
    assert parts(leader) == parts(make()), "twice the same"


def test_every_node_has_the_same_host_key_whatever_hosts_it_knows() -> None:
    """Nodes that know other names, another order or another number of hosts can log in, and so tell
    each other."""
    others = (("a", "b"), ("worker-1", "worker-0", "worker-2"), ("Worker-0.svc", "worker-1"))
    made = [*(make(me) for me in range(3)), *(make(1, hosts=hosts) for hosts in others)]
    assert len({seed(each.host_private) for each in made}) == 1
    assert seed(made[0].host_private) != seed(made[0].client_private)
    assert len({line.split(" ", 1)[1] for line in made[0].known_hosts.splitlines()}) == 1


def test_names_with_addresses_are_known_by_name() -> None:
    known = make(hosts=("a=10.0.0.1", "b=10.0.0.2")).known_hosts
    assert [line.split()[0] for line in known.splitlines()] == ["a", "b"]


@pytest.mark.parametrize(
    "other", [{"secret": SECRET[:-1] + "x"}, {"secret": SECRET + "0"}, {"job": "job-2"}]
)
def test_another_secret_or_job_has_other_keys(other: dict[str, str]) -> None:
    one, two = make(), make(**other)  # type: ignore[arg-type]
    assert seed(one.client_private) != seed(two.client_private)
    assert one.client_public != two.client_public
    assert seed(one.host_private) != seed(two.host_private)
    assert not set(one.known_hosts.splitlines()) & set(two.known_hosts.splitlines())


def test_a_worker_has_nothing_to_log_in_with() -> None:
    leader, worker = make(), make(1)
    assert worker.known_hosts == ""
    files = {
        "host_key": worker.host_private,
        "authorized_keys": f"restrict {worker.client_public}\n",
        "token": worker.token,
    }
    assert worker.files() == files
    assert leader.files() == {
        **files,
        "host_key": leader.host_private,
        "client_key": leader.client_private,
        "known_hosts": leader.known_hosts,
    }


def test_every_node_of_a_job_has_its_token_and_no_other_job_has() -> None:
    tokens = {make().token, make(1).token}
    assert len(tokens) == 1
    assert re.fullmatch("[0-9a-f]{64}", *tokens)
    for other in (make(job="job-2"), make(secret=SECRET + "0")):
        assert other.token not in tokens


def test_the_derivation_is_rfc_5869() -> None:
    """Worked out step by step with hmac alone: nodes of two versions of the toolkit must agree on
    this forever."""

    def seed(info: bytes) -> bytes:
        extracted = hmac.digest(b"entrypoint keys 1", SECRET.encode(), "sha256")
        return hmac.digest(extracted, info + b"\x01", "sha256")

    def public(info: bytes) -> str:
        key = Ed25519PrivateKey.from_private_bytes(seed(info)).public_key()
        return key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()

    assert make().client_public == public(b"client\0job")
    assert make().known_hosts.splitlines()[2] == f"worker-2 {public(b'host' + bytes(1) + b'job')}"


def test_secrets_are_not_in_what_is_printed() -> None:
    made = make()
    assert SECRET not in repr(made)
    assert "PRIVATE KEY" not in repr(made)


# --------------------------------------------------------------------------------------------------
# From a file


def test_a_file_is_the_same_secret(tmp_path: Path) -> None:
    """Also with the line end that editors and `openssl rand` leave."""
    for ending in ("", "\n", "\r\n"):
        (tmp_path / "secret").write_bytes(SECRET.encode() + ending.encode())
        assert parts(make(secret=None, text=f"secret_file: {tmp_path}/secret")) == parts(make())
    # one that is no text
    (tmp_path / "secret").write_bytes(bytes(range(128, 160)))
    other = make(secret=None, text=f"secret_file: {tmp_path}/secret")
    assert other.client_public != make().client_public


@pytest.mark.parametrize(
    ("content", "size"),
    [("", 0), ("\n", 0), ("\r\n\n", 0), ("fifteen-bytes..\n", 15), ("sixteen-bytes...\n", 16)],
)
def test_a_secret_has_at_least_sixteen_bytes(content: str, size: int, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(content)
    text = f"secret_file: {tmp_path}/secret"
    if size == 16:
        assert make(secret=None, text=text).known_hosts
        return
    assert refusal(ConfigError, text) == (
        "EP301 a secret has at least 16 bytes (spec job.yaml:4:14)"
        f" | {size} bytes | create one with: openssl rand -hex 32",
        78,
    )


@pytest.mark.parametrize(
    ("path", "why"), [("none", "No such file or directory"), (".", "Is a directory")]
)
def test_a_file_that_is_none(path: str, why: str, tmp_path: Path) -> None:
    place = tmp_path / path
    said = f"EP303 cannot read secret_file | {place}: {why} | mount it where this user can read it"
    assert refusal(NoInputError, f"secret_file: {place}") == (said, 66)


def test_an_unreadable_file(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    for folder in (tmp_path, tmp_path.parent, tmp_path.parent.parent):
        folder.chmod(0o755)
    (tmp_path / "secret").write_text(SECRET)
    (tmp_path / "secret").chmod(0)
    request.getfixturevalue("nobody")
    assert refusal(NoInputError, f"secret_file: {tmp_path}/secret") == (
        f"EP303 cannot read secret_file | {tmp_path}/secret: Permission denied | mount it where"
        " this user can read it, uid 65534: start the container as its owner, --user OWNER:0"
        " (with rootless Podman also --userns=keep-id; in Kubernetes, fsGroup)",
        66,
    )


# --------------------------------------------------------------------------------------------------
# Neither


def test_fails_closed() -> None:
    assert refusal(ConfigError, "") == (
        "EP300 no secret configured (required for 3 nodes) | no secret and no"
        " key files | give all nodes one ENTRYPOINT_SECRET_FILE or ENTRYPOINT_SECRET (try:"
        " openssl rand -hex 32); `entrypoint explain EP300` has other ways",
        78,
    )


# --------------------------------------------------------------------------------------------------
# Mounted


def mounted(tmp_path: Path, more: str = "") -> str:
    return f"ssh: {{client_key: {tmp_path}/client, host_key: {tmp_path}/host{more}}}"


@pytest.mark.parametrize(
    "content", [b"", b"not a key", b"\xff\xfe\x00", b"ssh-ed25519 AAAA comment\n"]
)
def test_mounted_nonsense_is_refused(content: bytes, tmp_path: Path) -> None:
    for name in ("client", "host"):
        (tmp_path / name).write_bytes(content)
    message, status = refusal(ConfigError, mounted(tmp_path))
    said = "EP302 ssh.client_key is not a private key that the toolkit can read"
    assert message.startswith(f"{said} | {tmp_path}/client: ")
    assert status == 78


def test_mounted_and_missing(tmp_path: Path) -> None:
    missing = f"EP303 cannot read ssh.client_key | {tmp_path}/client: No such file or directory"
    said = f"{missing} | mount it where this user can read it"
    assert refusal(NoInputError, mounted(tmp_path)) == (said, 66)


def test_key_files_are_what_the_library_writes() -> None:
    """But for the random number of a private key, which stands there twice."""
    first = 98  # byte of that number
    for _ in range(20):
        key = Ed25519PrivateKey.generate()
        public = key.public_key()
        library = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
        written = keys._private(key.private_bytes_raw(), public.public_bytes_raw())
        assert list(map(len, written.splitlines(True))) == list(map(len, library.splitlines(True)))
        ours, theirs = (
            base64.b64decode(b"".join(file.splitlines()[1:-1])) for file in (written, library)
        )
        assert ours[first : first + 4] == ours[first + 4 : first + 8]
        assert ours[:first] + ours[first + 8 :] == theirs[:first] + theirs[first + 8 :]
        openssh = public.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
        assert keys._public(public.public_bytes_raw()) == openssh


@pytest.mark.promise("a worker's keys are those that the leader derives")
@given(seed=st.binary(min_size=32, max_size=32))
@example(seed=b"s" * 32)
def test_leader_and_worker_derive_the_same(seed: bytes) -> None:
    """A worker asks OpenSSL's library itself."""
    assert keys.library() is not None
    assert keys._public_key_by_openssl(seed) == keys._public_key(seed)


@pytest.mark.control("a worker's keys are those that the leader derives")
def test_a_worker_without_openssl_s_library_derives_them_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # not there; without these functions
    monkeypatch.setattr(keys, "_LIBRARIES", ("libnothing.so.1", "libm.so.6"))
    keys.library.cache_clear()
    try:
        assert keys.library() is None
        assert make(1).client_public == make(0).client_public
    finally:
        keys.library.cache_clear()


FIPS_ALONE = """\
openssl_conf = init
[init]
providers = providers
alg_section = algorithms
[providers]
fips = active
base = active
[active]
activate = 1
[algorithms]
default_properties = fips=yes
"""


@pytest.mark.parametrize("rank", ["0", "1"])
@pytest.mark.parametrize("without", [True, False])
def test_an_openssl_without_its_provider_is_named(rank: str, without: bool, tmp_path: Path) -> None:
    """The control: with OpenSSL's own configuration, the plan is accepted."""
    (tmp_path / "fips.cnf").write_text(FIPS_ALONE)
    env = {
        "PATH": os.environ["PATH"], "ENTRYPOINT_SECRET": secrets.token_hex(32), "ENTRYPOINT_NODE_RANK": rank,
        "ENTRYPOINT_HOSTS": "node-0=127.0.0.2,node-1=127.0.0.3", "ENTRYPOINT_RUN_DIR": str(tmp_path / "run"),
        "OPENSSL_CONF": str(tmp_path / "fips.cnf") if without else "/dev/null",
    }  # fmt: skip
    argv = [sys.executable, *split("-m entrypoint plan --launcher mpirun --slots 1 -- true")]
    done = captured(argv, env=env)
    named = "EP426 this image's OpenSSL cannot make the job's keys" in done.stderr
    assert (done.returncode, named) == ((78, True) if without else (0, False)), done.stderr
    assert "EP900" not in done.stderr


# --------------------------------------------------------------------------------------------------
# As ssh-keygen reads and makes them


def ssh_keygen() -> str:
    return shutil.which("ssh-keygen") or pytest.skip("no ssh-keygen here")


def public_of(private: bytes, tmp_path: Path) -> str:
    """The public key as ssh-keygen reads it out of the private one."""
    path = tmp_path / "key"
    path.unlink(missing_ok=True)
    path.write_bytes(private)
    path.chmod(0o600)
    done = captured([ssh_keygen(), "-y", "-P", "", "-f", str(path)], check=True)
    return " ".join(done.stdout.split()[:2])


def test_the_leader_knows_every_host_before_it_calls(tmp_path: Path) -> None:
    lines = [line.split(" ", 1) for line in make().known_hosts.splitlines()]
    assert [host for host, _ in lines] == list(NODES)
    assert [key for _, key in lines] == [
        public_of(make(me).host_private, tmp_path) for me in range(3)
    ]


def keygen(path: Path, *options: str) -> str:
    """Make a key pair with ssh-keygen; the public key."""
    subprocess.run([ssh_keygen(), "-q", "-N", "", "-C", "", "-f", str(path), *options], check=True)
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
