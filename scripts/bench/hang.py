"""A rank of a job whose ranks wait for each other after each step.

hang.py slow STEPS SECONDS FOLDER    each step takes up to so many seconds
hang.py WAY RANK SECONDS FOLDER      that rank hangs in this way in its fourth step, and prints when
"""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time


def wait_for_all(size: int, file: str) -> None:
    """Return when so many ranks have come here."""
    with open(file, "a") as those:
        those.write(".")
    while os.path.getsize(file) < size:
        time.sleep(0.1)


def sleep() -> None:
    time.sleep(600)


def spin() -> None:
    while True:
        pass


def lock() -> None:
    held = threading.Lock()
    held.acquire()
    held.acquire()


def read_pipe() -> None:
    read, _write = os.pipe()
    os.read(read, 1)


def accept() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.accept()


def join() -> None:
    thread = threading.Thread(target=time.sleep, args=(600,), daemon=True)
    thread.start()
    thread.join()


def child() -> None:
    subprocess.run(["sleep", "600"], check=True)


def stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


WAYS = {each.__name__: each for each in (sleep, spin, lock, read_pipe, accept, join, child, stop)}


def main(how: str, argument: int, seconds: float, folder: str) -> None:
    rank, size = (int(os.environ[f"OMPI_COMM_WORLD_{name}"]) for name in ("RANK", "SIZE"))
    steps, hangs = (argument, -1) if how == "slow" else (600, argument)
    for step in range(steps):
        if rank == hangs and step == 3:
            print(f"hangs {time.time():.6f}", flush=True)
            WAYS[how]()
        time.sleep(random.uniform(0.5, 1.0) * seconds)
        wait_for_all(size, f"{folder}/{step}")
        print(f"step {step}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), sys.argv[4])
