"""One node's work: a step a second. What it has by then is saved when it is told to stop."""

import argparse
import os
import signal
import sys
import time
from types import FrameType

NODE = f"node {os.environ['NODE_RANK']} of {os.environ['NNODES']}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=int, default=12)
    seconds = parser.parse_args().seconds

    step = 0

    def save(signum: int, frame: FrameType | None) -> None:
        print(f"{NODE}: saved after step {step}")
        sys.exit(0)

    signal.signal(signal.SIGTERM, save)
    for step in range(seconds):
        if step % 3 == 0:
            print(f"{NODE}: step {step}")
        time.sleep(1)
    print(f"{NODE}: done")


if __name__ == "__main__":
    main()
