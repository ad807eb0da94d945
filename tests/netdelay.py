"""A network interface whose packets take longer, as by `tc netem delay`, but without netem, which
some kernels lack.

Two tap devices, one for the node and one for its network, and a process that carries frames between
them: what the node sends waits for its time, what it gets does not, as netem does it.
"""

from __future__ import annotations

import fcntl
import functools
import heapq
import os
import select
import struct
import subprocess
import sys
import time

_TUNSETIFF, _IFF_TAP, _IFF_NO_PI = 0x400454CA, 0x0002, 0x1000  # linux/if_tun.h
_MOST = 1000  # packets that wait, as netem's own limit


@functools.cache
def has_netem() -> bool:
    """Whether this kernel delays packets by itself."""
    words = ["unshare", "-n", "sh", "-c", "tc qdisc add dev lo root netem delay 1ms"]
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


def tap(name: str) -> int:
    """A tap device of this name, as a file of frames."""
    file = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(file, _TUNSETIFF, struct.pack("16sH", name.encode(), _IFF_TAP | _IFF_NO_PI))
    return file


def carry(node: int, network: int, seconds: float) -> None:
    """Carry frames until somebody ends this process."""
    waiting: list[tuple[float, int, bytes]] = []
    number = 0
    while True:
        wait = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        ready, _, _ = select.select([node, network], [], [], wait)
        for file in ready:
            try:
                frame = os.read(file, 1 << 16)
                if file == network:
                    os.write(node, frame)
                elif len(waiting) < _MOST:
                    number += 1
                    heapq.heappush(waiting, (time.monotonic() + seconds, number, frame))
            except OSError:
                continue  # a device that is down
        while waiting and waiting[0][0] <= time.monotonic():
            frame = heapq.heappop(waiting)[2]
            try:
                os.write(network, frame)
            except OSError:
                continue


def start(node: str, network: str, seconds: float) -> subprocess.Popen[bytes]:
    """Both devices, in this namespace, and the process that carries frames between them, once they
    are there."""
    process = subprocess.Popen(
        [sys.executable, __file__, node, network, str(seconds)],
        stdout=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
    )
    assert process.stdout.readline() == b"ready\n"
    return process


if __name__ == "__main__":
    files = [tap(name) for name in sys.argv[1:3]]
    print("ready", flush=True)
    carry(files[0], files[1], float(sys.argv[3]))
