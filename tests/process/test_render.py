"""What real shells, sshd and ssh make of rendered files: they get the value, whatever it holds."""

from __future__ import annotations

import functools
import os
import pwd as account
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from shlex import split
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from entrypoint.base.model import Facts
from entrypoint.base.render import quote_sh, quote_ssh, render
from entrypoint.plan import rendered, settle
from entrypoint.spec import load
from tests.awkward import AWKWARD, sshd_context, values

FEW = settings.default.max_examples // 5  # shells and ssh are started for each
slow = settings(max_examples=FEW, suppress_health_check=[HealthCheck.too_slow])


SHELLS = ["sh", "bash"]
LOCALES = ["C", "C.UTF-8"]


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as path:
        yield Path(path)


@pytest.mark.parametrize("locale", LOCALES)
@pytest.mark.parametrize("shell", SHELLS)
@given(words=st.lists(values, min_size=1, max_size=12))
@example(words=AWKWARD)
@slow
def test_shell_words(folder: Path, shell: str, locale: str, words: list[str]) -> None:
    script = folder / "words.sh"
    script.write_text(
        f"printf '%s\\0' {' '.join(map(quote_sh, words))}\n", "utf-8", "surrogateescape"
    )
    done = subprocess.run(
        [shell, script], env={"LC_ALL": locale, "PATH": os.environ["PATH"]}, capture_output=True
    )
    assert done.stdout.split(b"\0")[:-1] == [os.fsencode(word) for word in words]
    assert done.stderr == b""


@pytest.mark.control("rendered scripts hold any value")
@pytest.mark.control("every rank has its own node's environment, byte for byte")
def test_without_quoting_the_same_values_are_changed(folder: Path) -> None:
    """The negative control of the one above, and of test_plan.py."""
    script = folder / "bare.sh"
    script.write_text("printf '%s\\0' $HOME a  b\n")
    done = subprocess.run(["sh", script], env={"HOME": "/h"}, capture_output=True)
    assert done.stdout.split(b"\0")[:-1] != [b"$HOME", b"a  b"]


@pytest.mark.promise("rendered scripts hold any value")
@given(text=values)
@example(text="x\nexport EVIL=1")
@slow
def test_torch_scripts_hold_any_value(folder: Path, text: str) -> None:
    """What a person may put into these two comes out as one word of the launcher's line."""
    context = {
        "origin": text, "not_carried": [text], "refused": "", "hosts": ["m", text], "hosts_text": text, "count": 2, "nodes": 2,
        "modelarts": "if named", "slots": text, "slots_of": [1, 2], "device": "", "cards": "x", "job": text, "named": True,
        "port": 1, "port_of_env": False, "interface": text, "exact": text, "last_call": text, "rdzv_backend": "c10d", "timeout": text,
        "max_restarts": 0, "extra_args": [text], "conf": text, "command": [text], "env": {"A": text}, "workdir": None,
        "python": "", "use_env": "", "settled": [text], "unread": ["A"], "launchers": "none", "modules": "none",
    }  # fmt: skip
    recorder = folder / "recorder"
    recorder.write_text("#!/bin/sh\nprintf '%s\\0' \"$@\"\n")
    recorder.chmod(0o700)
    env = {
        "PATH": os.environ["PATH"],
        "NNODES": "2",
        "NODE_RANK": "1",
        "PYTHON": str(recorder),
        "MASTER_ADDR": "m",
    }
    word = os.fsencode(text)
    for name, wanted in (("torchrun", [b"--rdzv_id=" + word, word]), ("torchlaunch", [word])):
        script = folder / f"{name}.sh"
        named = {**context, "name": name}
        script.write_text(render(f"{name}/{name}.sh.j2", named), "utf-8", "surrogateescape")
        done = subprocess.run(["bash", script, "train.py"], env=env, capture_output=True)
        assert done.returncode == 0, done.stderr
        assert set(wanted) <= set(done.stdout.split(b"\0"))


SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")


one_line = values.filter(lambda text: not set(text) & set("\n\r"))


@pytest.fixture
def sshd(folder: Path) -> str:
    if SSHD is None:
        pytest.skip("there is no sshd on this machine")
    if os.getuid() == 0:  # sshd run by root insists on it
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    key = Ed25519PrivateKey.generate().private_bytes(
        Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()
    )
    (folder / "host_key").write_bytes(key)
    (folder / "host_key").chmod(0o600)
    return SSHD


def sshd_reads(sshd: str, folder: Path, **more: Any) -> dict[str, bytes]:
    """What sshd makes of the rendered sshd_config: keyword -> value, as `sshd -T` prints them."""
    config = folder / "sshd_config"
    config.write_text(
        render("ssh/sshd_config.j2", sshd_context(folder, **more)), "utf-8", "surrogateescape"
    )
    done = subprocess.run([sshd, "-T", "-f", config], capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")
    pairs = [line.split(b" ", 1) for line in done.stdout.split(b"\n") if b" " in line]
    return {pair[0].decode(): pair[1] for pair in pairs}


def test_sshd_takes_the_rendered_file(sshd: str, folder: Path) -> None:
    """What makes it hard is tried in tests/security/test_ssh_door.py."""
    more = f"Port 36666\nListenAddress 127.0.0.9\nForceCommand exec sh {folder}/attend"
    read = sshd_reads(sshd, folder, more=more)
    wanted = {
        "port": "36666", "listenaddress": "127.0.0.9:36666", "hostkey": f"{folder}/host_key", "allowusers": "ma-user",
        "authorizedkeysfile": f"{folder}/authorized_keys", "permitrootlogin": "no", "maxstartups": "64:30:64", "setenv": "A=b",
        "clientaliveinterval": "5", "clientalivecountmax": "4", "pidfile": "none",
        "forcecommand": f"exec sh {folder}/attend",
    }  # fmt: skip
    assert {name: read[name].decode() for name in wanted} == wanted
    assert sshd_reads(sshd, folder)["forcecommand"] == b"none"


@given(text=one_line)
@settings(max_examples=FEW, suppress_health_check=list(HealthCheck))
def test_sshd_reads_values_back(sshd: str, folder: Path, text: str) -> None:
    assert sshd_reads(sshd, folder, session_env={"V": text})["setenv"] == os.fsencode(f"V={text}")


@pytest.mark.promise("the rendered sshd_config works as its own head says")
def test_a_session_works_with_what_the_head_asks_for(sshd: str, tmp_path: Path) -> None:
    """A login and its command, with a real sshd and only the two files of the head."""
    if shutil.which("ssh") is None:
        pytest.skip("there is no ssh on this machine")
    run_dir = tmp_path / "job"
    run_dir.mkdir(mode=0o700)
    who = account.getpwuid(os.getuid()).pw_name
    facts = Facts({}, "h", "/", os.getuid(), who, "/")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    spec = load(f"run_dir: {run_dir}\nssh: {{port: {port}}}", "job.yaml", {}, {})
    (config,) = [file for file in rendered(spec, facts, "x") if file.name == "sshd_config"]
    (tmp_path / "sshd_config").write_text(config.text)
    for name in ("host_key", "mine"):
        where = run_dir if name == "host_key" else tmp_path
        subprocess.run(split(f"ssh-keygen -q -t ed25519 -N '' -f {where / name}"), check=True)
    shutil.copy(tmp_path / "mine.pub", run_dir / "authorized_keys")
    argv = [sshd, "-D", "-e", "-f", tmp_path / "sshd_config"]
    options = "-F none -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null"
    login = split(f"ssh {options} -i {tmp_path}/mine -p {port} {who}@127.0.0.1 echo in; exit 7")
    with subprocess.Popen(argv, stderr=subprocess.PIPE) as server:
        try:
            assert server.stderr
            until_listens = next(line for line in server.stderr if b"Server listening" in line)
            done = subprocess.run(login, capture_output=True)
        finally:
            server.kill()
    assert (done.returncode, done.stdout) == (7, b"in\n"), (until_listens, done.stderr)


@pytest.mark.control("the rendered sshd_config works as its own head says")
def test_run_s_own_sshd_config_forces_its_command() -> None:
    spec = load("hosts: [a, b]\ncommand: [x]\nlauncher: torchrun", "job.yaml", {}, {})
    facts = Facts({}, "a", "/", 1000, "u", "/", programs={"sshd": "/usr/sbin/sshd"})
    (own,) = [file for file in settle(spec, facts).files if file.name == "sshd_config"]
    (sample,) = [file for file in rendered(spec, facts, "x") if file.name == "sshd_config"]
    assert "ForceCommand exec sh " in own.text
    assert "TMPDIR=" in own.text
    assert not [word for word in ("ForceCommand", "TMPDIR=") if word in sample.text]


@functools.cache
def openssh() -> int:
    """Return the major version of this machine's ssh: `OpenSSH_9.2p1 ...`."""
    said = subprocess.run(["ssh", "-V"], capture_output=True, text=True, check=True).stderr
    return int(said.partition("_")[2].partition(".")[0])


@given(text=one_line)
@settings(max_examples=FEW, suppress_health_check=list(HealthCheck))
def test_ssh_reads_values_back(folder: Path, text: str) -> None:
    if shutil.which("ssh") is None:
        pytest.skip("there is no ssh on this machine")
    assume(openssh() < 10 or not {*"%$"} & {*text})  # OpenSSH 10 replaces them in this option
    config = folder / "ssh_config"
    config.write_text(f"Host *\n  SetEnv {quote_ssh('V=' + text)}\n", "utf-8", "surrogateescape")
    done = subprocess.run(["ssh", "-TG", "-F", config, "somewhere"], capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")
    assert os.fsencode(f"setenv V={text}") in done.stdout.split(b"\n")


def test_ssh_takes_the_rendered_file(folder: Path) -> None:
    if shutil.which("ssh") is None:
        pytest.skip("there is no ssh on this machine")
    config = folder / "ssh_config"
    peers = [{"host": "node-1", "address": "10.0.0.1", "port": 2222}]
    peers += [{"host": "node-10", "address": "10.0.0.10", "port": 2223}]
    context = {
        "origin": "x", "peers": peers, "user": "u", "port": 2222, "run_dir": "/run/a b", "alive_interval": 5,
    }  # fmt: skip
    config.write_text(render("ssh/ssh_config.j2", context))
    done = subprocess.run(["ssh", "-TG", "-F", config, "node-1"], capture_output=True, text=True)
    wanted = {
        "hostname 10.0.0.1", "hostkeyalias node-1", "port 2222", "user u", "identityfile /run/a b/client_key",
        "userknownhostsfile /run/a b/known_hosts", "stricthostkeychecking true", "batchmode yes",
    }  # fmt: skip
    assert done.stderr == ""
    assert wanted <= set(done.stdout.splitlines())
    other = subprocess.run(["ssh", "-TG", "-F", config, "node-10"], capture_output=True, text=True)
    assert "port 2223" in other.stdout.splitlines()


def test_a_comment_cannot_leave_its_line(sshd: str, folder: Path) -> None:
    read = sshd_reads(sshd, folder, origin="x\nPort 22\r\nPort 22\u2028Port 22", more="Port 36666")
    assert read["port"] == b"36666"
