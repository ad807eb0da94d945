"""What answers a roll call beside a node's messages, or in place of a node: it ends no job."""

from __future__ import annotations

import contextlib
import socket
import struct
import sys

from tests.cluster import Cluster, Make
from tests.waits import until

SLEEPS = "echo up; exec sleep 600"


def listens(job: Cluster, rank: int) -> bool:
    """Return whether a node's sshd is up."""
    with contextlib.suppress(OSError):
        socket.create_connection((f"127.0.0.{rank + 2}", job.port), 1).close()
        return True
    return False


def test_what_a_session_says_beside_its_messages_is_shown_once(cluster: Make) -> None:
    job = cluster(2, slots=1)
    job.start(1, "sh", "-c", SLEEPS)
    attend = job.run_dir(1) / "attend"
    until(lambda: attend.exists() and listens(job, 1), "the worker's sshd")
    prints = "echo bash: libtinfo.so.6: no version information available >&2"
    attend.write_text(attend.read_text().replace("\nexec ", f"\n{prints}\nexec "))
    job.start(0, "sh", "-c", SLEEPS)
    until(lambda: job.out(0).count("up") == 2, "both ranks")
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
        job.start(0, "true", launcher="plain")
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
