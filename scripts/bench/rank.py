"""What a rank of a job runs: it prints its node, and the time of its end. It imports next to
nothing, since the ranks of all nodes share the cores of one machine."""

import os
import time

if __name__ == "__main__":
    # one write: mpirun mixes the lines of two ranks
    os.write(1, f"{os.uname().nodename} {time.time():.6f}\n".encode())
