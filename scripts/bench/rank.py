"""A rank of a benchmark's job: prints its node, and the time. With a node's name, the first attempt
of a job with restarts ends by the death of that node's rank, which prints when; with `leaves`
behind it, that node gets SIGTERM instead. It imports next to nothing, since the ranks of all
nodes share the cores of one machine."""

import os
import sys
import time


def say(word: str) -> None:
    # one write: mpirun mixes the lines of two ranks
    os.write(1, f"{word} {time.time():.6f}\n".encode())


if __name__ == "__main__":
    say(os.uname().nodename)
    if len(sys.argv) > 1 and os.environ["ENTRYPOINT_ATTEMPT"] == "1":
        dies = os.uname().nodename == sys.argv[1]
        time.sleep(2 if dies else 600)  # until all others run
        say("killed")
        os.kill(*((1, 15) if "leaves" in sys.argv else (os.getpid(), 9)))
        time.sleep(600)
