"""sshd as we configure it: who gets in, what they can do, which algorithms, and how many places one
caller gets."""

from __future__ import annotations

import contextlib
import json
import re
import secrets
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests import table
from tests.security.door import SSHD, Door, needs_ssh, planned

pytestmark = needs_ssh
SECRET = secrets.token_hex(32)
Open = Callable[..., Door]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Open]:
    doors: list[Door] = []

    def make(loosened: str = "", secret: str = SECRET, nodes: int = 2) -> Door:
        folder = tmp_path / f"door-{len(doors)}"
        folder.mkdir()
        doors.append(Door(folder, secret, loosened, nodes))
        return doors[-1]

    yield make
    for door in doors:
        door.close()


def settings(text: str) -> dict[str, str]:
    """What `sshd -T` prints: option -> value."""
    return dict(line.split(" ", 1) if " " in line else (line, "") for line in text.splitlines())


# What sshd must not do.
_NO = """
    passwordauthentication kbdinteractiveauthentication hostbasedauthentication
    permitemptypasswords usepam usedns permittty permittunnel permituserrc permituserenvironment
    gatewayports compression
"""
HARD = dict.fromkeys(_NO.split(), "no") | {
    "authenticationmethods": "publickey", "pubkeyauthentication": "yes",
    "disableforwarding": "yes", "authorizedkeyscommand": "none", "trustedusercakeys": "none",
    "maxauthtries": "3", "logingracetime": "15", "hostkeyalgorithms": "ssh-ed25519",
    "pubkeyacceptedalgorithms": "ssh-ed25519",
}  # fmt: skip


def check_hard(text: str, user: str) -> None:
    seen = settings(text)
    assert {name: seen.get(name) for name in HARD} == HARD
    assert seen["allowusers"] == user
    assert seen["permitrootlogin"] == ("without-password" if user == "root" else "no")
    assert "acceptenv" not in seen
    assert "subsystem" not in seen
    assert {name.partition("@")[0] for name in seen["kexalgorithms"].split(",")} <= {
        "curve25519-sha256", "sntrup761x25519-sha512", "mlkem768x25519-sha256",
    }  # fmt: skip
    assert all("gcm" in name or name == "aes256-ctr" for name in seen["ciphers"].split(","))
    assert all("-etm@" in name and "sha2" in name for name in seen["macs"].split(","))
    assert seen["hostkey"].endswith("/host_key")


@pytest.mark.parametrize("user", ["root", "ma-user"])
def test_sshd_is_hardened(user: str, tmp_path: Path) -> None:
    """sshd -T: keys only, one user, root only as root, no PAM, no forwarding, no tty, no rc file,
    no variables."""
    _, plan = planned(SECRET, run_dir=str(tmp_path), user=user)
    check_hard(_effective(plan_text(plan.files), tmp_path), user)


def plan_text(files: object) -> str:
    return next(file.text for file in files if file.name == "sshd_config")  # type: ignore[attr-defined]


def _effective(text: str, folder: Path) -> str:
    (folder / "sshd_config").write_text(text)
    if not (folder / "host_key").exists():
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / "host_key")],
            check=True,
        )
    assert SSHD
    argv = [SSHD, "-f", str(folder / "sshd_config")]
    done = subprocess.run([*argv, "-t"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return subprocess.run([*argv, "-T"], capture_output=True, text=True, check=True).stdout


def test_every_line_of_it_counts(tmp_path: Path) -> None:
    """Control: sshd -T sees a sshd_config from which one line of the hardening was taken."""
    _, plan = planned(SECRET, run_dir=str(tmp_path), user="root")
    text = plan_text(plan.files)
    for line in (
        "AuthenticationMethods",
        "PasswordAuthentication",
        "PermitTTY",
        "DisableForwarding",
        "KexAlgorithms",
    ):
        less = "".join(row for row in text.splitlines(keepends=True) if not row.startswith(line))
        with pytest.raises(AssertionError):
            check_hard(_effective(less, tmp_path), "root")


def test_the_images_sshd_takes_it(image: str) -> None:
    """sshd -t and -T of both images' own OpenSSH take the rendered configuration without a word and
    are as hard."""
    _, plan = planned(SECRET, run_dir="/tmp/run")
    script = (
        "umask 077; mkdir /tmp/run; ssh-keygen -q -t ed25519 -N '' -f /tmp/run/host_key; cat"
        " >/tmp/run/sshd_config; /usr/sbin/sshd -t -f /tmp/run/sshd_config 2>&1 && exec"
        " /usr/sbin/sshd -T -f /tmp/run/sshd_config"
    )
    done = subprocess.run(
        ["docker", "run", "--rm", "-i", "--entrypoint", "sh", image, "-c", script],
        input=plan_text(plan.files), capture_output=True, text=True, check=True,
    )  # fmt: skip
    check_hard(done.stdout, "ma-user")


@pytest.mark.parametrize("nodes", [2, 64, 1000])
def test_logins_are_counted_for_the_job(nodes: int, tmp_path: Path) -> None:
    """MaxStartups has room for two logins of every node at one time, and for 256 at least."""
    text = plan_text(planned(SECRET, nodes, run_dir=str(tmp_path))[1].files)
    allowed, _, most = settings(_effective(text, tmp_path))["maxstartups"].split(":")
    assert int(allowed) >= max(256, 2 * nodes)
    assert most == allowed


def _hold(stack: contextlib.ExitStack, door: Door, addresses: int, each: int) -> int:
    """How many of so many silent callers from each of so many addresses are let in; they stay until
    the stack ends."""
    held = []
    for number in range(addresses * each):
        caller = stack.enter_context(socket.socket())
        caller.settimeout(10)
        caller.bind((f"127.2.{number // each // 250}.{number // each % 250 + 1}", 0))
        caller.connect((door.address, door.port))
        held.append(caller)
    answered = 0
    for caller in held:
        with contextlib.suppress(OSError):
            answered += caller.recv(64).startswith(b"SSH-2.0")
    return answered


def test_five_addresses_cannot_hold_every_place(opened: Open) -> None:
    """Of 5 addresses with 16 silent connections each, 4 of each are let in, and the job's own
    logins go on."""
    with contextlib.ExitStack() as stack:
        door = opened()
        assert _hold(stack, door, addresses=5, each=16) == 20
        assert door.ssh("node-0", "echo in").stdout == "in\n"
        loose = opened("MaxStartups 64\nPerSourceMaxStartups 16")  # the control: as it once was
        assert _hold(stack, loose, addresses=5, each=16) == 64
        assert loose.ssh("node-0", "echo in").returncode == 255


def test_ssh_audit_finds_nothing_failing(opened: Open) -> None:
    """ssh-audit reports no failing algorithm; control: it does for OpenSSH's own defaults with a
    weak one added."""
    failing = _audit(opened())
    assert failing == []
    assert _audit(opened("KexAlgorithms +diffie-hellman-group14-sha1\nMACs +hmac-sha1")) != []


def _audit(door: Door) -> list[str]:
    """`kind name: what` of each finding that ssh-audit calls a failure, and of each weakness of the
    protocol."""
    program = Path(sys.executable).with_name("ssh-audit")
    argv = [str(program), "--json", "--skip-rate-test", "-p", str(door.port), door.address]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    report = json.loads(done.stdout)
    found = [str(cve) for cve in report.get("cves", [])]
    for kind in ("kex", "key", "enc", "mac"):
        for algorithm in report[kind]:
            for what in algorithm.get("notes", {}).get("fail", []):
                found.append(f"{kind} {algorithm['algorithm']}: {what}")
    return found


def test_who_gets_in(opened: Open, tmp_path: Path) -> None:
    """The job's key gets in; another job's key, no key, a password and another user's name do
    not."""
    door, other = opened(), opened(secret=secrets.token_hex(32))
    assert door.ssh("node-0", "echo in").stdout == "in\n"
    config = tmp_path / "ssh_config"
    ours = (door.folder / "ssh_config").read_text()
    config.write_text(ours.replace(f"{door.folder}/client_key", f"{other.folder}/client_key"))
    stranger = door.ssh("node-0", "echo in", config=str(config))
    assert (stranger.returncode, stranger.stdout) == (255, "")
    assert "Permission denied (publickey)" in stranger.stderr
    # The other job's client, sent to this door: the host's key is not of its job, so it does not
    # even try.
    away = other.ssh("-p", str(door.port), "node-0", "echo in")
    assert (away.returncode, away.stdout) == (255, "")
    assert "Host key verification failed" in away.stderr
    for options in (
        ("-o", "IdentityFile=none"),
        (
            "-o",
            "PreferredAuthentications=password,keyboard-interactive",
            "-o",
            "PasswordAuthentication=yes",
        ),
        ("-l", "nobody"),
    ):
        config.write_text(ours)
        if "IdentityFile=none" in options:
            config.write_text(
                re.sub("(?m)^ *Identity.*\n", "", config.read_text()) + "  IdentityAgent none\n"
            )
        refused = door.ssh(*options, "node-0", "echo in", config=str(config))
        assert (refused.returncode, refused.stdout) == (255, ""), options
        assert "Permission denied (publickey)" in refused.stderr


LOOSE = (
    "DisableForwarding no\nPermitTTY yes\nAcceptEnv SMUGGLED\nPermitTunnel yes\nSubsystem sftp"
    " internal-sftp"
)


def _reached(door: Door, what: str) -> bool:
    """Whether a client that has the job's key gets `what`."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    config = door.folder / "client"
    config.write_text(
        (door.folder / "ssh_config").read_text().replace("ClearAllForwardings yes", "")
    )
    if what == "tty":
        return (
            "/dev/pts"
            in door.ssh("-tt", "-o", "RequestTTY=force", "node-0", "tty", config=str(config)).stdout
        )
    if what == "variable":
        said = door.ssh(
            "-o", "SetEnv SMUGGLED=yes", "node-0", "echo [$SMUGGLED]", config=str(config)
        ).stdout
        return said == "[yes]\n"
    if what == "sftp":
        return door.ssh("-s", "node-0", "sftp", config=str(config)).returncode == 0
    if what == "agent":
        return "/" in door.ssh("-A", "node-0", "echo $SSH_AUTH_SOCK", config=str(config)).stdout
    words = {"local": ("-W", f"{door.address}:{door.port}", "node-0")}.get(what) or (
        "-R", f"127.0.0.3:{port}:127.0.0.1:9", "-o", "ExitOnForwardFailure=yes", "node-0", "true",
    )  # fmt: skip
    done = door.ssh(*words, config=str(config))
    return done.returncode == 0 and (what != "local" or done.stdout.startswith("SSH-2.0"))


@pytest.mark.parametrize("what", ["local", "remote", "tty", "variable", "sftp"])
def test_a_login_can_run_commands_and_nothing_else(what: str, opened: Open) -> None:
    """Even with the job's key: no forwarding, no tty, no variable, no sftp; control: loosened, each
    works."""
    assert not _reached(opened(), what)
    assert _reached(opened(LOOSE), what)


def test_a_login_gets_the_control_endpoint_whatever_it_asks_for(opened: Open) -> None:
    """By ForceCommand, even with the job's key; control: `ssh.client: files` lets a job run
    commands on its nodes."""
    free = opened()
    assert free.ssh("node-0", "echo in").stdout == "in\n"
    line = next(
        row
        for row in plan_text(planned(SECRET, client="none")[1].files).splitlines()
        if "ForceCommand" in row
    )
    door = opened(f"ForceCommand exec sh {free.folder}/attend")
    assert line == "ForceCommand exec sh /tmp/run/attend"
    (free.folder / "attend").write_text("echo the endpoint\n")
    assert door.ssh("node-0", "echo in").stdout == "the endpoint\n"
    assert "ForceCommand" not in (free.folder / "sshd_config").read_text()


def test_the_client_believes_known_hosts_alone(opened: Open) -> None:
    """ssh -G: strict host keys from our file alone, one key, no agent, no password, modern
    algorithms."""
    door = opened()
    seen = settings(door.ssh("-G", "node-0").stdout)
    told = table("tests/tables/ssh_client.yaml").items()
    expected = {name: value.format(folder=door.folder) for name, value in told}
    assert {name: seen.get(name) for name in expected} == expected
    assert "diffie-hellman" not in seen["kexalgorithms"]
    assert "nistp" not in seen["kexalgorithms"]
    # Control: without the host's key in known_hosts the same client does not log in.
    (door.folder / "known_hosts").write_text("")
    refused = door.ssh("node-0", "echo in")
    assert (refused.returncode, refused.stdout) == (255, "")
    assert "Host key verification failed" in refused.stderr
