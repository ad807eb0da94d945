"""A rank that notes in a file when it starts, and when it gets SIGTERM, which ends it: a word, its
node, its pid and the time."""

import os
import signal
import sys
import time

FILE = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND)


def note(word: str) -> None:
    os.write(FILE, f"{word} {os.environ['NODE']} {os.getpid()} {time.time():.6f}\n".encode())


def end(*_: object) -> None:
    note("told")
    os._exit(0)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, end)
    note("up")
    time.sleep(900)
