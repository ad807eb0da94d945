"""Real containers of both images: a hostile pod beside the job, another user inside it, what a
leaked image tells."""

from __future__ import annotations

import base64
import errno
import json
import os
import re
import secrets
import subprocess
from pathlib import Path
from shlex import split

import pytest

from tests.containers import container, docker, engine, inspect, logs, wait
from tests.image.boxes import Pair, said, started, write
from tests.waits import until

HERE = Path(__file__).parent
PORT = 36666
LOOP = """import os, time
print('rank is up', flush=True)
while not os.path.exists('/tmp/go'): time.sleep(0.05)
print('rank is fine', flush=True)
"""
# What nobody leaves in a container: a file of the hostile pod, keys, and the ssh files of a user.
LEFT = r"was-here|\.ssh|^/root|^/etc/ssh|(key|known_hosts|authorized_keys|sshd_config)$"
LOG_IN = f"""import io, sys, paramiko
from entrypoint.base.model import Device, Node, Topology
from entrypoint.system import keys
nodes = tuple(Node(rank, f'worker-{{rank}}', 1) for rank in range(2))
topology = Topology(job='known-job', nodes=nodes, me=0, platform='local',
    device=Device('cpu', 0, ''), run_dir='/x', log_dir='/x', user='ma-user')
key = keys._derived(sys.argv[1].encode(), topology).client_private.decode()
client = paramiko.Transport(('worker-1', {PORT}))
client.start_client(timeout=5)
client.auth_publickey('ma-user', paramiko.Ed25519Key.from_private_key(io.StringIO(key)))
channel = client.open_session()
channel.exec_command('hostname')
print(channel.recv(99).decode())
"""
JOB = split("-e ENTRYPOINT_NAME=known-job -e ENTRYPOINT_TIMEOUTS_PEERS=90")


def up(pair: Pair) -> None:
    """Wait until both ranks of the job run."""
    until(lambda: pair.logs().count("rank is up\n") == 2, "two ranks")


def go(pair: Pair) -> None:
    """Let the program end, and the job with it."""
    for box in pair.boxes.values():
        docker("exec", box, "touch", "/tmp/go")
    assert pair.ends() == [0, 0], pair.logs()


@pytest.mark.promise("a secret is what lets a node in")
def test_a_nosy_pod_gets_nothing(image: str) -> None:
    """A hostile pod on the job's network, with the image, not the secret: no login, no command, no
    secret, no end."""
    needle = f"needle-{secrets.token_hex(16)}"
    with Pair(image, (*JOB, "-e", f"MY_TOKEN={needle}"), slots=1) as pair:
        words = (
            *("--network", pair.name, "--cap-drop", "ALL", "--security-opt", "no-new-privileges"),
            *("-v", f"{HERE}:/nosy:ro", "--entrypoint", "/opt/entrypoint/bin/python"),
            *("-e", f"NEEDLE={base64.b64encode(needle.encode()).decode()}"),
        )
        arguments = ("/nosy/nosy.py", "worker-0,worker-1", str(PORT), "known-job")
        with started(image, *arguments, options=words) as nosy:
            # before the job is there, while it starts, and while it runs
            until(lambda: "at it" in logs(nosy), logs(nosy))
            pair.start_both("python", "-c", LOOP)
            up(pair)
            before = [inspect(box)["State"]["Pid"] for box in pair.boxes.values()]
            rounds = logs(nosy).count("a round")
            until(
                lambda: logs(nosy).count("a round") >= rounds + 2,
                "two rounds through every port with the ranks up",
            )
            after = [inspect(box)["State"]["Pid"] for box in pair.boxes.values()]
            assert after == before, pair.logs()
            docker("exec", nosy, "touch", "/tmp/stop")
            wait(nosy)
            lines = logs(nosy).splitlines()
        report = json.loads(next(line for line in lines if line.startswith('{"got"')))
        assert report["got"] == []
        assert report["logins"] > 30  # the control: it did try
        assert report["garbage"] > 10
        assert report["held"] > 100
        assert PORT in report["ports"]
        assert len(report["ports"]) > 2  # and those that mpirun listens on
        go(pair)
        assert pair.logs().count("rank is fine\n") == 2
        assert pair.secret not in pair.logs()
        for box in pair.boxes.values():
            changed = [each["Path"] for each in container(box).diff()]
            # Nor does a job leave anything of its own there.
            assert [path for path in changed if re.search(LEFT, path)] == []


@pytest.mark.control("a secret is what lets a node in")
def test_a_nosy_pod_that_knows_the_secret_gets_in(image: str) -> None:
    """Control: with the job's secret the same pod's calls are answered, so it is the secret that
    keeps others out."""
    # A job's own way in, since a login without it gets no command, but the control endpoint.
    with Pair(image, (*JOB, "-e", "ENTRYPOINT_SSH_CLIENT=files"), slots=1) as pair:
        pair.start_both("python", "-c", LOOP)
        up(pair)
        options = ("--network", pair.name, "--entrypoint", "/opt/entrypoint/bin/python")
        assert said(image, "-c", LOG_IN, pair.secret, options=options).split() == ["worker-1"]
        go(pair)


def test_another_user_in_the_container_gets_nothing(image: str, folder: Path) -> None:
    """Another uid inside a node's container reads no key, secret or environment, and does not get
    in by ssh."""
    secret = secrets.token_hex(32)
    write(folder / "secret", secret, 0o400)
    os.chown(folder / "secret", 1000, 100)
    look = (
        "find /tmp/entrypoint-* -type f -exec cat {} +; cat /secret /proc/[0-9]*/environ; ls"
        " /tmp/entrypoint-*/; timeout 10 ssh -o StrictHostKeyChecking=no -o BatchMode=yes -p 36666"
        " ma-user@localhost id"
    )
    # As a mounted file: a variable of the container would be one of docker exec's too, whoever it
    # runs as.
    options = (
        *("-v", f"{folder}/secret:/secret:ro", "-e", "ENTRYPOINT_SECRET_FILE=/secret"),
        *("-e", "NOTE=seen-in-environ"),
    )
    seen = {}
    with Pair(image, (*JOB, *options), slots=1) as pair:
        pair.secret = ""
        pair.start_both("python", "-c", LOOP)
        up(pair)
        for user in ("12345:12345", "1000:100"):
            done = subprocess.run(
                ["docker", "exec", "-u", user, "-e", "HOME=/nowhere", pair.boxes[0], "sh", "-c", look],
                capture_output=True, text=True, errors="replace", check=False,
            )  # fmt: skip
            seen[user] = done.stdout
        go(pair)
    assert secret not in seen["12345:12345"]
    assert "PRIVATE KEY" not in seen["12345:12345"]
    assert "host_key" not in seen["12345:12345"]
    assert "uid=" not in seen["12345:12345"]
    # Control: the job's own user finds all of it, but for a login with a key that it does not
    # offer.
    assert "PRIVATE KEY" in seen["1000:100"]
    assert "host_key" in seen["1000:100"]
    assert secret in seen["1000:100"]
    # Each sees its own cat and shell; only the job's user sees the processes of the job.
    assert seen["1000:100"].count("seen-in-environ") > seen["12345:12345"].count("seen-in-environ")


FILES = split("config known_hosts known_hosts2 authorized_keys authorized_keys2 environment rc")
FILES += tuple(
    f"id_{kind}{end}" for kind in ("rsa", "ecdsa", "ed25519", "dsa") for end in ("", ".pub")
)


def _readers(folder: Path) -> list[str]:
    """Which of the named pipes somebody is reading, or waits to read: a writer can open those, and
    no other."""
    found = []
    for name in FILES:
        try:
            os.close(os.open(folder / name, os.O_WRONLY | os.O_NONBLOCK))
            found.append(name)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
    return found


def test_the_users_own_ssh_files_are_not_touched(image: str, folder: Path) -> None:
    """~/.ssh is neither read nor changed: its files are pipes that would hang any reader; control:
    plain ssh hangs."""
    for name in FILES:
        os.mkfifo(folder / name)
        (folder / name).chmod(0o666)
    folder.chmod(0o777)
    options = ("-v", f"{folder}:/home/ma-user/.ssh", "-e", "SSH_AUTH_SOCK=/home/ma-user/.ssh/agent")
    with Pair(image, (*JOB, *options), slots=1) as pair:
        pair.start_both("python", "-c", LOOP)
        up(pair)
        assert _readers(folder) == []
        with subprocess.Popen(
            ["docker", "exec", pair.boxes[0], "timeout", "20", "ssh", "worker-1", "id"]
        ) as control:
            until(lambda: "config" in _readers(folder), "plain ssh reading its config")
            control.kill()
        go(pair)
        assert sorted(path.name for path in folder.iterdir()) == sorted(FILES)


def test_a_leaked_image_gives_nothing_away(image: str) -> None:
    """Whoever has the image has no key, no secret, no index address and no certificate of the
    build."""
    of = engine().images.get(image)
    text = json.dumps([of.attrs["Config"], of.history()])
    assert not re.search(r"(?i)(secret|token|passw(or)?d|api_?key)\s*=\s*\S", text)
    search = (
        "grep -rlI -e 'PRIVATE KEY-----' / --exclude-dir=proc --exclude-dir=sys --exclude-dir=dev"
        " 2>/dev/null; find / -xdev \\( -name 'ssh_host_*' -o -name .ssh -o -name pip.conf -o -name"
        " .netrc -o -name .pypirc \\)"
    )
    found = docker(
        "run", "--rm", "--user", "0:0", "--entrypoint", "sh", image, "-c", search, timeout=170
    ).split()
    # Programs that only know how such a file begins, and pip's settings, which are looked at below.
    known = re.compile(
        r"\.(py|pyc|so|pm|h|hpp|md|txt|rst|html)(\.\d+)*$|^/etc/pip\.conf$|^/usr/share/|^/usr/lib/ssl/"
    )
    assert [path for path in found if not known.search(path)] == []
    assert docker("run", "--rm", "--entrypoint", "cat", image, "/etc/pip.conf").split() == [
        "[global]", "break-system-packages", "=", "true",
    ]  # fmt: skip
