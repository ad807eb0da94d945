"""A hostile pod: in a container of the job's own image, on its network. It knows names and ports,
but not the secret. Tries what it can until /tmp/stop is there, then prints what it got as JSON.
"""

import base64
import contextlib
import io
import json
import os
import socket
import subprocess
import sys
import threading
import time

import paramiko
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

from entrypoint.base.model import Device, Node, Topology
from entrypoint.system import keys

HOSTS, PORT, JOB = sys.argv[1].split(","), int(sys.argv[2]), sys.argv[3]
GUESSES = (
    "0123456789abcdef", "0123456789abcdef0123456789abcdef", "changeme-changeme", "secret", JOB, "",
    "entrypoint",
)  # fmt: skip
got = []  # logins and whatever they gave
tried = {"logins": 0, "garbage": 0, "held": 0, "ports": set()}


def stopped():
    return os.path.exists("/tmp/stop")


def private_keys():
    """Keys that guessed secrets would give for this job, and a fresh one."""
    nodes = tuple(Node(rank, host, 1) for rank, host in enumerate(HOSTS))
    topology = Topology(
        job=JOB, nodes=nodes, me=0, platform="local", device=Device("cpu", 0, ""), run_dir="/tmp/x", log_dir="/tmp/x",
        user="ma-user",
    )  # fmt: skip
    for guess in GUESSES:
        yield keys._derived(guess.encode(), topology).client_private.decode()
    fresh = ed25519.Ed25519PrivateKey.generate()
    form = serialization.PrivateFormat.OpenSSH
    yield fresh.private_bytes(
        serialization.Encoding.PEM, form, serialization.NoEncryption()
    ).decode()


def login(host, how):
    """One try to log in; what a command then said, if it came to that."""
    tried["logins"] += 1
    client = paramiko.Transport((host, PORT))
    try:
        client.start_client(timeout=5)
        how(client)
        channel = client.open_session(timeout=5)
        channel.exec_command("id; env; cat $ENTRYPOINT_RUN_DIR/*")
        got.append(f"{host}: {channel.recv(4096)!r}")
    finally:
        client.close()


def log_in():
    """With every key, password and name that one might think of."""
    ways = [lambda client: client.auth_none("ma-user")]
    for text in private_keys():
        key = paramiko.Ed25519Key.from_private_key(io.StringIO(text))
        ways += [
            lambda client, key=key, name=name: client.auth_publickey(name, key)
            for name in ("ma-user", "root")
        ]
    for word in ("", "ma-user", "password"):
        ways.append(lambda client, word=word: client.auth_password("ma-user", word, fallback=True))
    while not stopped():
        for host in HOSTS:
            for how in ways:
                with contextlib.suppress(Exception):
                    login(host, how)
                time.sleep(0.1)  # or this process has no time for the rest


def hold():
    """As many connections as it gets, silent, for as long as they last, then again."""
    while not stopped():
        with contextlib.ExitStack() as stack:
            for number in range(100):
                with contextlib.suppress(OSError):
                    caller = socket.create_connection((HOSTS[number % len(HOSTS)], PORT), timeout=1)
                    stack.enter_context(caller)
                    tried["held"] += 1
            time.sleep(1)


def open_ports(host):
    host = socket.gethostbyname(host)
    found = []
    for start in range(32768, 61000, 700):  # where a system's own choice of ports lies, and sshd's
        waiting = []
        for port in range(start, min(start + 700, 61000)):
            caller = socket.socket()
            caller.setblocking(False)
            if caller.connect_ex((host, port)) in (0, 115):
                waiting.append((port, caller))
        time.sleep(0.02)
        for port, caller in waiting:
            with contextlib.suppress(OSError):
                caller.getpeername()
                found.append(port)
            caller.close()
    return found


def throw():
    """Garbage at every open port of every node: at sshd's, and at those that mpirun and its ranks
    listen on."""
    lumps = (
        b"\0" * 64,
        os.urandom(4096),
        b"GET / HTTP/1.0\r\n\r\n",
        b"SSH-2.0-nosy\r\n" + b"\xff" * 2000,
        b'{"kind":"release"}\n',
    )
    while not stopped():
        for host in HOSTS:
            with contextlib.suppress(OSError):  # such as a name that is not there yet
                for port in open_ports(host):
                    tried["ports"].add(port)
                    for lump in lumps:
                        with (
                            contextlib.suppress(OSError),
                            socket.create_connection((host, port), timeout=1) as caller,
                        ):
                            caller.sendall(lump)
                            caller.settimeout(0.1)
                            tried["garbage"] += 1
                            answer = caller.recv(4096)
                            if (
                                os.environ.get("NEEDLE")
                                and base64.b64decode(os.environ["NEEDLE"]) in answer
                            ):
                                got.append(f"{host}:{port} gave the job's variable away")
        print("a round", flush=True)


def pose():
    """Be worker-0 of the same job, with another secret: call the others and give them something to
    run."""
    env = {
        **os.environ,
        "ENTRYPOINT_SECRET": os.urandom(16).hex(),
        "ENTRYPOINT_HOSTS": ",".join(HOSTS),
    }
    env |= {"ENTRYPOINT_NODE_RANK": "0", "ENTRYPOINT_NAME": JOB, "ENTRYPOINT_TIMEOUTS_PEERS": "3"}
    env |= {"ENTRYPOINT_SSH_PORT": "36000", "ENTRYPOINT_RUN_DIR": "/tmp/pose"}
    while not stopped():
        done = subprocess.run(
            ["entrypoint", "run", "--launcher", "mpirun", "--", "touch", "/tmp/was-here"],
            env=env,
            check=False,
        )
        time.sleep(2)
        if done.returncode == 0:
            got.append("the others took it for worker-0")


threads = [threading.Thread(target=work, daemon=True) for work in (log_in, hold, throw, pose)]
for thread in threads:
    thread.start()
print("at it", flush=True)
while not stopped():
    time.sleep(0.1)
for thread in threads:
    thread.join(15)
print(json.dumps({"got": got, **tried, "ports": sorted(tried["ports"])}), flush=True)
os._exit(0)
