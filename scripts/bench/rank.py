"""What a rank of a job runs. It imports next to nothing: a start is timed until the last rank's
first statement, and the ranks of all nodes share the cores of one machine.

python3 rank.py place             prints its node, then the time of its end
python3 rank.py mark [once]       leaves a mark in /marks that it has started, and waits
python3 rank.py lines BYTES       prints so many bytes of its own letter
python3 rank.py reduce LOOPS SIZE all-reduces of SIZE doubles; rank 0 prints the seconds
"""

import os
import sys
import time

BLOCK = 65536
LINE = 128  # bytes, the line end too


def place() -> None:
    """One line: this rank's node, and the seconds since the epoch at its end."""
    # one write: mpirun mixes the lines of two ranks
    os.write(1, f"{os.uname().nodename} {time.time():.6f}\n".encode())


def mark(stays: bool) -> None:
    """One line in this rank's file: its node, the seconds since the epoch, its process id."""
    rank = os.environ.get("RANK") or os.environ["OMPI_COMM_WORLD_RANK"]
    with open(f"/marks/rank-{rank}", "a") as file:
        file.write(f"{os.uname().nodename} {time.time():.6f} {os.getpid()}\n")
    while stays:
        time.sleep(3600)


def lines(size: int) -> None:
    """Lines of one letter, rank 0's is A: so many bytes in all."""
    letter = bytes([65 + int(os.environ["OMPI_COMM_WORLD_RANK"])])
    block = (letter * (LINE - 1) + b"\n") * (BLOCK // LINE)
    while size > 0:
        size -= os.write(1, block[:size])


def reduce(loops: int, size: int) -> None:
    """All ranks add up their numbers, again and again; rank 0 prints the seconds that took."""
    import numpy
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    mine, total = numpy.full(size, world.Get_rank() + 1.0), numpy.empty(size)
    for _ in range(10):  # opens the connections
        world.Allreduce(mine, total)
    world.Barrier()
    begun = time.perf_counter()
    for _ in range(loops):
        world.Allreduce(mine, total)
    seconds = time.perf_counter() - begun
    ranks = world.Get_size()
    assert total[0] == total[-1] == ranks * (ranks + 1) / 2, total
    if world.Get_rank() == 0:
        print(f"seconds {seconds:.6f}", flush=True)


def main(what: str, *words: str) -> None:
    """One of the commands above."""
    if what == "place":
        place()
    elif what == "mark":
        mark(stays=not words)
    elif what == "lines":
        lines(int(words[0]))
    else:
        reduce(int(words[0]), int(words[1]))


if __name__ == "__main__":
    main(*sys.argv[1:])
