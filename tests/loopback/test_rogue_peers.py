"""A node that answers with the job's keys and then says what no node does, too much, or nothing: it
fails, by name.

A rogue is a real worker with a real sshd, whose end of the roll call's session is replaced by a
program of ours.
"""

from __future__ import annotations

import signal
import socket
import struct
import subprocess
import sys

import pytest

from tests.cluster import Cluster, Make, until

SLEEPS = "echo up; exec sleep 600"
# Answers well, then does what it was made for. `line` writes one line, whole.
ANSWERS = """import json, os, sys, time
def line(text):
    data = text.encode() + b"\\n"
    while data:
        data = data[os.write(1, data):]
def say(kind, **fields):
    line(json.dumps(dict(fields, kind=kind)))
def await_told(kind):
    while (message := json.loads(sys.stdin.readline()))["kind"] != kind:
        pass
    return message
hello = json.loads(sys.stdin.readline())
facts = dict(slots=1, mpi="", toolkit=hello["toolkit"], clock=time.time(), attempt=1, not_ready=None)
facts |= dict(interface=None, interfaces=[])
own = dict(program=False, stop=False)
"""


def rogue(job: Cluster, rank: int, program: str, real: bool = False) -> None:
    """A node that does all that a worker does until the session, which runs this Python, or shell
    before the `real`."""
    job.start(rank, "sh", "-c", SLEEPS)
    attend = job.run_dir(rank) / "attend"
    until(lambda: attend.exists() and "listening" in sshd_log(job, rank), 60, "the rogue's sshd")
    if real:
        text = attend.read_text().replace("\nexec ", "\n" + program + "\nexec ")
    else:
        (job.folder / "rogue.py").write_text(ANSWERS + program)
        text = f"#!/bin/sh\nexec {sys.executable} -u {job.folder}/rogue.py\n"
    attend.write_text(text)


def sshd_log(job: Cluster, rank: int) -> str:
    """Whether its sshd is up; its own log is the entrypoint's."""
    try:
        socket.create_connection((f"127.0.0.{rank + 2}", job.port), 1).close()
    except OSError:
        return ""
    return "listening"


def leader_ends(job: Cluster) -> int:
    """Its status: it ends by a deadline of its own, long before the rogue and its own program."""
    until(lambda: job.processes[0].poll() is not None, 120, "the leader's end")
    return int(job.processes[0].returncode)


FORGED = (
    r"say('node_info', **facts); say('failed', status=9, reason='a\n[entrypoint] forged \x1b[2Kx',"
    r" **own)"
)


def lead(job: Cluster, *command: str, seconds: str = "20", launcher: str = "plain") -> None:
    env = {"ENTRYPOINT_TIMEOUTS_PEERS": seconds, "ENTRYPOINT_TIMEOUTS_GRACE": "1"}
    job.start(0, *command, env=env, launcher=launcher)


@pytest.mark.promise("a peer that sends what no node sends has failed, and no other node suffers")
@pytest.mark.parametrize(
    ("does", "status", "words"),
    [
        (
            (
                "say('node_info', **facts); await_told('start')\n"
                "while True: say('pong', idle=1.0, number=0)"
            ),
            143,
            "SIGTERM",
        ),
        (FORGED, 9, "worker-1 (node-1): a [entrypoint] forged x"),
    ],
    ids=["flood", "forged"],
)
def test_a_peer_that_says_what_no_node_does_has_failed(
    cluster: Make, does: str, status: int, words: str
) -> None:
    job = cluster(2, slots=1)
    rogue(job, 1, does if does is FORGED else f"{does}\ntime.sleep(600)\n")
    lead(job, "sh", "-c", SLEEPS, seconds="2")
    if status == 143:
        until(lambda: "up" in job.out(0), 60, "the leader's program")
        job.signal(0, signal.SIGTERM)
    # After a signal, a peer that says nothing sensible has 18 s (EP618).
    assert leader_ends(job) == status, job.both()
    assert words in job.err(0)
    assert all(line.startswith("[entrypoint") for line in job.err(0).splitlines()), "a forged line"
    assert "\x1b" not in job.err(0)


# Of these, a rogue knows what the job is: it has the secret, and starts mpirun's daemon as it is
# told.
STARTS = """order = await_told("start_daemon")
import subprocess
open(os.environ["ENTRYPOINT_RUN_DIR"] + "/rank.sh", "w").write("exec sleep 600")
say('daemon_started', status=subprocess.run(["sh", "-c", order["command"]], stdout=2).returncode)
while not os.path.exists("up"):
    time.sleep(0.05)
"""
START_OF = "say('rank_start', rank=rank, pid=os.getpid())"
END_OF = "say('rank_end', rank=rank, status=0, tail=[], why='')"


@pytest.mark.promise("a node is believed only about itself, its own ranks and its own programs")
@pytest.mark.parametrize(
    ("does", "status", "words"),
    [
        (
            f"{STARTS}for rank in (0, 1): {START_OF}; {END_OF}",
            75,
            "both report that rank 0 runs there",
        ),
        (
            f"await_told('start')\nfor rank in (0, 1): {START_OF}; {END_OF}\n"
            "await_told('stop'); sys.exit()",
            78,
            "EP604 worker-1 (node-1) reports 2 ranks and has 1 slot: none runs on worker-0 (node-0)",
        ),
    ],
    ids=["starts and ends", "before mpirun has started any"],
)
def test_a_peer_that_speaks_for_others_ends_no_job_well(
    cluster: Make, does: str, status: int, words: str
) -> None:
    version = subprocess.run(
        ["mpirun", "--version"], capture_output=True, text=True, check=True
    ).stdout
    mpi, job = version.split()[3], cluster(2, slots=1)
    rogue(
        job,
        1,
        f"os.chdir({str(job.folder)!r})\nsay('node_info', **facts |"
        f" dict(mpi={mpi!r}))\n{does}\ntime.sleep(600)\n",
    )
    lead(job, "sh", "-c", f"touch {job.folder}/up; {SLEEPS}", launcher="mpirun")
    assert leader_ends(job) == status, job.both()
    assert words in job.err(0)


def test_what_a_session_says_beside_its_messages_is_shown_once(cluster: Make) -> None:
    job = cluster(2, slots=1)
    rogue(job, 1, "echo bash: libtinfo.so.6: no version information available >&2", real=True)
    job.start(0, "sh", "-c", SLEEPS)
    until(lambda: job.out(0).count("up") == 2, 60, "both ranks")
    said = "EP508 worker-1 (node-1)'s session printed: bash: libtinfo.so.6: no version information available"
    assert job.err(0).count(said) == 1


def packet(payload: bytes) -> bytes:
    """A packet of the ssh protocol before anything is encrypted (RFC 4253, 6)."""
    padding = 8 - (len(payload) + 5) % 8 + 8
    return struct.pack(">IB", len(payload) + padding + 1, padding) + payload + bytes(padding)


def test_a_peer_that_answers_something_odd_is_called_again(cluster: Make) -> None:
    text = struct.pack(">I", 4) + b"\xff\xfe\xfa\x80"  # that is no UTF-8
    odd = [
        b"SSH-2.0-\xff\xfe\xfa\r\n",
        b"SSH-2.0-x\r\n"
        + packet(
            b"\x01" + struct.pack(">I", 2) + text + text
        ),  # it disconnects, with such a reason
        b"SSH-2.0-x\r\n"
        + packet(b"\x14" + bytes(16) + 10 * text + bytes(5)),  # the algorithms that it knows
        b"",
    ]
    job = cluster(2, slots=1)
    with socket.create_server(("127.0.0.3", job.port)) as listener:
        listener.settimeout(15)
        lead(job, "true")
        for answer in odd:
            caller, _ = listener.accept()
            with caller:
                caller.sendall(answer)
                caller.shutdown(socket.SHUT_WR)
                while caller.recv(65536):  # else the answer would be lost in a reset
                    pass
    argv = (sys.executable, "-m", "entrypoint", "run", "--launcher", "plain", "--", "true")
    job.start(1, argv=argv)
    assert job.ends() == {0: 0, 1: 0}, job.both()
