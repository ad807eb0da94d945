"""Data-parallel linear regression: each rank takes its share of the samples, and MPI averages the gradients."""

import argparse
import os
import sys

import numpy as np
from mpi4py import MPI


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--samples", type=int, default=64, help="samples on each rank")
    args = parser.parse_args()

    world = MPI.COMM_WORLD
    rank, size = world.Get_rank(), world.Get_size()
    # Two ranks that think they are alone would also see their loss fall.
    if size != int(os.environ.get("OMPI_COMM_WORLD_SIZE", size)):
        print(f"rank {rank}: MPI has {size} ranks, the launcher started more", file=sys.stderr)
        return 1

    random = np.random.default_rng(rank)
    truth = np.linspace(-1.0, 1.0, 8)
    inputs = random.normal(size=(args.samples, truth.size))
    targets = inputs @ truth
    weights = np.zeros_like(truth)

    first = last = 0.0
    for step in range(args.steps):
        error = inputs @ weights - targets
        last = world.allreduce(float(error @ error), op=MPI.SUM) / (size * args.samples)
        gradient = np.empty_like(weights)
        world.Allreduce(2 * inputs.T @ error / (size * args.samples), gradient, op=MPI.SUM)
        weights -= 0.02 * gradient
        first = last if step == 0 else first
        if rank == 0 and step % 10 == 0:
            print(f"step {step:3d}  loss {last:.6f}", flush=True)

    places = world.gather((rank, os.environ.get("DEMO_NODE", MPI.Get_processor_name()), os.getpid()))
    if rank == 0:
        for place in places or []:
            print("rank {} ran on {} (pid {})".format(*place), flush=True)
        print(f"loss {first:.6f} -> {last:.6f} on {size} ranks", flush=True)
    return 0 if last < first / 10 else 1


if __name__ == "__main__":
    sys.exit(main())
