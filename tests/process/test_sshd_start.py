"""Whether this node's sshd is up is asked of sshd itself, which may be too busy with others to
answer at once.

The sshd is a script: a real one cannot be made to turn away just its first callers.
"""

from __future__ import annotations

import asyncio
import pwd
import subprocess
import sys
from pathlib import Path

import pytest

from entrypoint.base.errors import HostError
from entrypoint.base.model import Facts
from entrypoint.system import sshd
from tests.cluster import free_port

BUSY = """#!{python}
import socket, struct, sys, time
listener = socket.create_server(("127.0.0.1", {port}))
print("Server listening on 127.0.0.1 port {port}.", file=sys.stderr, flush=True)
for answer in {answers}:
    caller, _ = listener.accept()
    if answer is None:
        caller.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset
    else:
        caller.sendall(answer)
    caller.close()
time.sleep(600)
"""


def start(folder: Path, answers: list[bytes | None]) -> None:
    port = free_port()
    program = folder / "sshd"
    program.write_text(BUSY.format(python=sys.executable, port=port, answers=answers))
    program.chmod(0o755)
    here = Facts(
        env={}, hostname="a", cwd="/", uid=1, user="u", home="/", programs={"sshd": str(program)}
    )

    async def run() -> None:
        door = await sshd.Sshd.start(
            here, folder / "sshd_config", port, "127.0.0.1", lambda line: None
        )
        door.stop()
        await door.ended()

    asyncio.run(run())


def test_an_sshd_that_lets_nobody_in_yet_is_asked_again(tmp_path: Path) -> None:
    start(tmp_path, [b"", None, b"SSH-2.0-here\r\n"])


def test_another_program_on_its_port_is_not_sshd(tmp_path: Path) -> None:
    with pytest.raises(HostError, match="is answered by something else"):
        start(tmp_path, [b"HTTP/1.0 400\r\n"])


def test_an_sshd_that_never_lets_anyone_in_is_said_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sshd, "_UP", 1.0)
    with pytest.raises(HostError, match="sshd does not answer"):
        start(tmp_path, [b""] * 1000)


CONTROL = pytest.mark.control("an sshd that cannot serve is an error at the start")
FULL = "CapEff: 000001ffffffffff"
ALL = "0 0 4294967295"
SSHD = pwd.getpwnam("sshd")
MAPPED = f"0 0 1\n1 100000 {max(SSHD.pw_uid, SSHD.pw_gid)}"  # as rootless containers have it


@pytest.mark.promise("an sshd that cannot serve is an error at the start")
@pytest.mark.parametrize(
    ("capabilities", "groups", "uids", "lacks"),
    [
        ("CapEff: 0", "allow", ALL, "no SETGID, SETUID, SYS_CHROOT"),
        (FULL, "deny", "0 1000 1", "does not let it set groups"),
        (FULL, "deny", ALL, "does not let it set groups"),
        (FULL, "allow", "0 1000 1", f"has no uid {SSHD.pw_uid}, which is sshd's own"),
        pytest.param(FULL, "allow", ALL, "", marks=CONTROL),
        pytest.param(FULL, "allow", MAPPED, "", marks=CONTROL),
        pytest.param(FULL, None, None, "", marks=CONTROL),  # a kernel that does not tell
    ],
)
def test_what_root_lacks(
    capabilities: str, groups: str | None, uids: str | None, lacks: str, tmp_path: Path
) -> None:
    """By capabilities and by the user namespace's ids"""
    own = tmp_path / "proc/self"
    own.mkdir(parents=True)
    texts = {"status": capabilities, "setgroups": groups, "uid_map": uids, "gid_map": uids}
    for name, text in texts.items():
        if text is not None:
            (own / name).write_text(f"{text}\n")
    found = sshd.root_lacks(tmp_path)
    assert found.endswith(lacks) if not lacks.startswith("does") else lacks in found
    assert bool(found) == bool(lacks)


@pytest.mark.parametrize(("options", "status"), [("-U -r", 78), ("-U --map-user=1000", 0)])
def test_root_of_a_namespace_with_one_id(options: str, status: int, tmp_path: Path) -> None:
    """It ends at once with the reason, as the only user that is not root it runs"""
    unshare = ["unshare", *options.split()]
    if subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode:
        pytest.skip("user namespaces are not allowed here")
    words = ["-m", "entrypoint", "local", "--nodes", "2", "--launcher", "plain", "--", "true"]
    done = subprocess.run(
        [*unshare, sys.executable, *words],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == status, done.stderr
    assert ("EP432" in done.stderr) == (status == 78)
    assert "another secret" not in done.stderr
