"""Real containers of both images: a hostile pod beside the job, another user inside it, what a
leaked image tells."""

from __future__ import annotations

import base64
import errno
import json
import os
import re
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from shlex import split

import pytest

from tests.cluster import until
from tests.containers import container, docker, engine, exit_code, inspect, logs, remove, wait

HERE = Path(__file__).parent
PORT = 36666
LOOP = """import os, time
print('rank is up', flush=True)
while not os.path.exists('/tmp/go'): time.sleep(0.05)
print('rank is fine', flush=True)
"""
Start = Callable[..., dict[str, str]]


@pytest.fixture
def pods(image: str) -> Iterator[Start]:
    """Starts the containers of one job, each named by its host, on a network of their own."""
    network = f"sec{os.getpid()}"
    engine().networks.create(network)
    names: list[str] = []

    def start(
        *command: str, hosts: int = 2, options: tuple[str, ...] = (), **env: str
    ) -> dict[str, str]:
        made = {f"worker-{rank}": f"{network}-worker-{rank}" for rank in range(hosts)}
        for rank, (host, name) in enumerate(made.items()):
            variables = {
                "ENTRYPOINT_HOSTS": ",".join(made), "ENTRYPOINT_NODE_RANK": str(rank), "ENTRYPOINT_NAME": "known-job",
                "ENTRYPOINT_SLOTS": "1", "ENTRYPOINT_TIMEOUTS_PEERS": "90", **env,
            }  # fmt: skip
            words = [word for key, value in variables.items() for word in ("-e", f"{key}={value}")]
            alias = ["--network", network, "--network-alias", host, "--hostname", host]
            docker("run", "-d", "--name", name, *alias, *words, *options, image, *command)
            names.append(name)
        return made

    start.network, start.names = network, names  # type: ignore[attr-defined]
    yield start
    remove(*names)
    engine().networks.get(network).remove()


def _up(leader: str) -> None:
    """Wait until both ranks of the job run."""
    try:
        until(lambda: logs(leader).splitlines().count("rank is up") == 2, 60, "two ranks")
    except AssertionError as error:
        raise AssertionError(f"{error}\n{logs(leader)}") from None


def _go(job: dict[str, str]) -> None:
    """Let the program end, and the job with it."""
    for name in job.values():
        docker("exec", name, "touch", "/tmp/go")
    wait(*job.values())


@pytest.mark.promise("a secret is what lets a node in")
def test_a_nosy_pod_gets_nothing(image: str, pods: Start) -> None:
    """A hostile pod on the job's network, with the image, not the secret: no login, no command, no
    secret, no end."""
    secret, needle = secrets.token_hex(32), f"needle-{secrets.token_hex(16)}"
    nosy = f"{pods.network}-nosy"  # type: ignore[attr-defined]
    pods.names.append(nosy)  # type: ignore[attr-defined]
    docker(
        "run", "-d", "--name", nosy, "--network", pods.network, "--cap-drop", "ALL",  # type: ignore[attr-defined]
        "--security-opt", "no-new-privileges", "-v", f"{HERE}:/nosy:ro",
        "-e", f"NEEDLE={base64.b64encode(needle.encode()).decode()}",
        "--entrypoint", "/opt/entrypoint/bin/python", image, "/nosy/nosy.py",
        "worker-0,worker-1", str(PORT), "known-job",
    )  # fmt: skip
    # before the job is there, while it starts, and while it runs
    until(lambda: "at it" in logs(nosy), 20, logs(nosy))
    job = pods("python", "-c", LOOP, ENTRYPOINT_SECRET=secret, MY_TOKEN=needle)
    leader = job["worker-0"]
    _up(leader)
    before = [inspect(name)["State"]["Pid"] for name in job.values()]
    rounds = logs(nosy).count("a round")
    until(
        lambda: logs(nosy).count("a round") >= rounds + 2,
        90,
        "two rounds through every port with the ranks up",
    )
    assert [inspect(name)["State"]["Pid"] for name in job.values()] == before, logs(leader)
    docker("exec", nosy, "touch", "/tmp/stop")
    wait(nosy)
    report = json.loads(next(line for line in logs(nosy).splitlines() if line.startswith('{"got"')))
    assert report["got"] == []
    assert report["logins"] > 30  # the control: it did try
    assert report["garbage"] > 10
    assert report["held"] > 100
    assert PORT in report["ports"]
    assert len(report["ports"]) > 2  # and those that mpirun listens on
    _go(job)
    assert [exit_code(name) for name in job.values()] == [0, 0], logs(leader)
    assert logs(leader).splitlines().count("rank is fine") == 2
    for name in job.values():
        assert secret not in logs(name)
        assert "was-here" not in str(container(name).diff())


@pytest.mark.control("a secret is what lets a node in")
def test_a_nosy_pod_that_knows_the_secret_gets_in(image: str, pods: Start) -> None:
    """Control: with the job's secret the same pod's calls are answered, so it is the secret that
    keeps others out."""
    secret = secrets.token_hex(32)
    # A job's own way in, since a login without it gets no command, but the control endpoint.
    job = pods(
        "python", "-c", LOOP, hosts=2, ENTRYPOINT_SECRET=secret, ENTRYPOINT_SSH_CLIENT="files"
    )
    _up(job["worker-0"])
    script = (
        "import io, sys, paramiko\nfrom entrypoint.model import Device, Node, Topology\nfrom"
        " entrypoint.system import keys\nnodes = tuple(Node(rank, f'worker-{rank}', 1) for rank"
        " in range(2))\nt = Topology(job='known-job', nodes=nodes, me=0, platform='local',"
        " device=Device('cpu', 0, ''),\n             run_dir='/x', log_dir='/x',"
        " user='ma-user')\nkey = keys._derived(sys.argv[1].encode(),"
        f" t).client_private.decode()\nclient = paramiko.Transport(('worker-1', {PORT}));"
        " client.start_client(timeout=5)\nclient.auth_publickey('ma-user',"
        " paramiko.Ed25519Key.from_private_key(io.StringIO(key)))\nchannel ="
        " client.open_session(); channel.exec_command('hostname');"
        " print(channel.recv(99).decode())\n"
    )
    said = docker(
        "run", "--rm", "--network", pods.network, "--entrypoint", "/opt/entrypoint/bin/python",  # type: ignore[attr-defined]
        image, "-c", script, secret,
    )  # fmt: skip
    assert said.split() == ["worker-1"]
    _go(job)


def test_another_user_in_the_container_gets_nothing(image: str, pods: Start) -> None:
    """Another uid inside a node's container reads no key, secret or environment, and does not get
    in by ssh."""
    secret = secrets.token_hex(32)
    folder = Path(tempfile.mkdtemp(prefix="entrypoint-"))
    folder.chmod(0o755)
    (folder / "secret").write_text(secret)
    (folder / "secret").chmod(0o400)
    os.chown(folder / "secret", 1000, 100)
    # As a mounted file: a variable of the container would be one of docker exec's too, whoever it
    # runs as.
    options = ("-v", f"{folder}/secret:/secret:ro")
    job = pods(
        "python",
        "-c",
        LOOP,
        options=options,
        ENTRYPOINT_SECRET_FILE="/secret",
        NOTE="seen-in-environ",
    )
    leader = job["worker-0"]
    _up(leader)
    look = (
        "find /tmp/entrypoint-* -type f -exec cat {} +; cat /secret /proc/[0-9]*/environ; ls"
        " /tmp/entrypoint-*/; timeout 10 ssh -o StrictHostKeyChecking=no -o BatchMode=yes -p 36666"
        " ma-user@localhost id"
    )
    seen = {}
    for user in ("12345:12345", "1000:100"):
        done = subprocess.run(
            ["docker", "exec", "-u", user, "-e", "HOME=/nowhere", leader, "sh", "-c", look],
            capture_output=True, text=True, errors="replace", check=False, timeout=40,
        )  # fmt: skip
        seen[user] = done.stdout
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
    _go(job)
    shutil.rmtree(folder)


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


def test_the_users_own_ssh_files_are_not_touched(image: str, pods: Start) -> None:
    """~/.ssh is neither read nor changed: its files are pipes that would hang any reader; control:
    plain ssh hangs."""
    folder = Path(tempfile.mkdtemp(prefix="entrypoint-"))
    for name in FILES:
        os.mkfifo(folder / name)
        (folder / name).chmod(0o666)
    folder.chmod(0o777)
    options = ("-v", f"{folder}:/home/ma-user/.ssh", "-e", "SSH_AUTH_SOCK=/home/ma-user/.ssh/agent")
    try:
        job = pods("python", "-c", LOOP, options=options, ENTRYPOINT_SECRET=secrets.token_hex(32))
        _up(job["worker-0"])
        assert _readers(folder) == []
        with subprocess.Popen(
            ["docker", "exec", job["worker-0"], "timeout", "20", "ssh", "worker-1", "id"]
        ) as control:
            until(lambda: "config" in _readers(folder), 15, "plain ssh reading its config")
            control.kill()
        _go(job)
        assert [exit_code(name) for name in job.values()] == [0, 0]
        assert sorted(path.name for path in folder.iterdir()) == sorted(FILES)
    finally:
        shutil.rmtree(folder)


def test_no_ssh_folder_is_made(image: str, pods: Start) -> None:
    """A job leaves no ~/.ssh behind where there was none, and no file of ours beside the run
    directory's own place."""
    job = pods("python", "-c", "print('up')", ENTRYPOINT_SECRET=secrets.token_hex(32))
    wait(*job.values())
    assert [exit_code(name) for name in job.values()] == [0, 0], logs(job["worker-0"])
    for name in job.values():
        changed = [each["Path"] for each in container(name).diff()]
        assert not [
            path for path in changed if ".ssh" in path or path.startswith(("/root", "/etc/ssh"))
        ]
        assert not [
            path
            for path in changed
            if path.endswith(("key", "known_hosts", "authorized_keys", "sshd_config"))
        ]


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
