# Rendered by entrypoint {{ version | comment }}.
#
#   python ray_node.py NODES SECONDS ADDRESS OWN OPTION ... -- PROGRAM ...
#
# Starts Ray on this node (`ray start`, with these options), and on the head, once NODES nodes have
# joined within SECONDS, the program, whose status is this one's. ADDRESS is where Ray's head
# listens, OWN this node's address.
#
# At SIGTERM the program alone is told, which may need Ray on all nodes to save what it has: Ray
# stays until the program has ended, and on the others until the head is gone. Then the entrypoint
# ends Ray, with what is left of the grace.
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from importlib import metadata

LOST = 75  # Ray itself failed: another try may help
# Waits in a process of its own, so that nothing of Ray stays in this one.
JOINED = """
import sys, time
import ray
count, last = int(sys.argv[1]), time.monotonic() + float(sys.argv[2])
here, why = 0, ""
while here < count and time.monotonic() < last:
    try:
        if not ray.is_initialized():
            ray.init(log_to_driver=False, logging_level="ERROR")
        here = sum(node["Alive"] for node in ray.nodes())
    except (ConnectionError, RuntimeError, TimeoutError) as error:
        why = f" | {error}"
    time.sleep(0.1)
if here < count:
    late = f"EP612 {here} of {count} nodes joined Ray within {sys.argv[2]}s{why}"
    sys.exit(f"ray_node.py: {late} | see the other nodes' logs")
"""

count, seconds, address, own = sys.argv[1:5]
end = sys.argv.index("--")
options, program = sys.argv[5:end], sys.argv[end + 1 :]
is_head = "--head" in options
folder = os.path.dirname(os.path.abspath(__file__))
log = os.path.join(folder, "ray_start.log")
told = []  # numbers of the signals that came to end this


class Told(Exception):
    """This node is told to stop."""


def hear(number, frame):
    told.append(number)
    if not is_head and len(told) == 1:
        raise Told


def main():
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, hear)
    for number in (signal.SIGUSR1, signal.SIGUSR2):  # for the program alone
        signal.signal(number, lambda number, frame: None)
    try:
        release = metadata.version("ray")
    except metadata.PackageNotFoundError:
        what = f"EP650 ray is not installed in {sys.executable}"
        do = "install it there, or start the program with the Python that has it"
        return say(78, what, "the launcher needs it", do)
    if os.environ.get("RAY_AUTH_MODE") == "token":
        if tuple(map(int, release.split(".")[:2])) < (2, 52):
            what = "warning: EP306 Ray is open to everybody who reaches its ports"
            seen = f"Ray {release} knows no token"
            say(0, what, seen, "use Ray 2.52 or newer")
        if "RAY_AUTH_TOKEN_PATH" not in os.environ:  # one node, which asks nobody else
            os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    try:
        return lead() if is_head else follow()
    except Told:
        return 128 + told[0]


def lead():
    """Start the head, wait for the others, run the program."""
    cluster = start()
    joined = subprocess.Popen([sys.executable, "-c", JOINED, count, seconds], stdout=sys.stderr)
    if first(joined, cluster) is cluster:
        return lost(cluster)
    if told:
        return 128 + told[0]
    if joined.returncode:
        return LOST
    try:
        work = subprocess.Popen(program)
    except OSError as error:
        status = 127 if isinstance(error, FileNotFoundError) else 126
        return say(
            status,
            "the program cannot be started",
            f"{program[0]}: {error.strerror}",
            "give another command",
        )
    if first(work, cluster) is cluster:
        return lost(cluster)
    return work.returncode if work.returncode >= 0 else 128 - work.returncode


def follow():
    """Join the head, and stay as long as it does."""
    last = time.monotonic() + float(seconds)
    while not answers():
        if time.monotonic() > last:
            return say(
                LOST,
                f"EP612 Ray's head did not answer within {seconds}s",
                address,
                "see worker-0's log",
            )
        time.sleep(0.1)
    cluster = start()
    try:
        cluster.wait()
    except Told:
        while cluster.poll() is None and answers():
            time.sleep(0.1)
        return 128 + told[0]
    return lost(cluster)


def start():
    """Ray's own processes on this node, in a session of their own: they get no signal that is for
    the program."""
    where = socket.getaddrinfo(own, None, type=socket.SOCK_STREAM)[0][4][0]
    line = [
        sys.executable,
        "-m",
        "ray.scripts.scripts",
        "start",
        "--block",
        f"--node-ip-address={where}",
        *options,
    ]
    with open(log, "wb") as out:
        return subprocess.Popen(
            line, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
        )


def answers():
    """Return whether Ray's head listens."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=1).close()
    except OSError:
        return False
    return True


def first(*processes):
    """The first of these that has ended."""
    while True:
        for process in processes:
            if process.poll() is not None:
                return process
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)


def lost(cluster):
    """Ray has ended before the job: what it printed last, and where the rest is."""
    if told:
        return 128 + told[0]
    with open(log, errors="replace") as file:
        for line in file.read().splitlines()[-20:]:
            print("ray start |", line, file=sys.stderr)
    seen = f"`ray start` exited with {cluster.returncode}, its last lines are above"
    return say(
        LOST,
        "EP612 Ray ended before the job",
        seen,
        "see its logs, in /tmp/ray/session_latest/logs",
    )


def say(status, what, seen, do):
    print(f"ray_node.py: {what} | {seen} | {do}", file=sys.stderr)
    return status


sys.exit(main())
