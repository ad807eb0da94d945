"""Data-parallel linear regression: each rank takes its share of the samples, and MPI averages the
gradients.

Afterwards rank 0 does the same on all samples alone: the weights must be the same, up to rounding.
"""

import argparse
import os
import socket
import sys

import numpy as np
from mpi4py import MPI

LEARNING_RATE = 0.02
TRUTH = np.linspace(-1.0, 1.0, 8)


def samples(rank: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """One rank's share: inputs and targets."""
    inputs = np.random.default_rng(rank).normal(size=(count, TRUTH.size))
    return inputs, inputs @ TRUTH


def one_process(size: int, args: argparse.Namespace) -> np.ndarray:
    """The weights of one process that has every rank's samples."""
    shares = [samples(rank, args.samples) for rank in range(size)]
    inputs, targets = (np.concatenate(each) for each in zip(*shares, strict=True))
    weights = np.zeros_like(TRUTH)
    for _ in range(args.steps):
        weights -= LEARNING_RATE * 2 * inputs.T @ (inputs @ weights - targets) / len(inputs)
    return weights


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--samples", type=int, default=64, help="samples on each rank")
    parser.add_argument("--tolerance", type=float, default=1e-10)
    args = parser.parse_args()

    world = MPI.COMM_WORLD
    rank, size = world.Get_rank(), world.Get_size()
    # Two ranks that think they are alone would also see their loss fall.
    started = os.environ.get("OMPI_COMM_WORLD_SIZE") or os.environ.get("PMI_SIZE", size)
    if size != int(started):
        print(f"rank {rank}: MPI has {size} ranks, the launcher started {started}", file=sys.stderr)
        return 1
    where = f"{socket.gethostname()}, local rank {os.environ.get('LOCAL_RANK', '?')}"
    # in one write: ranks share a pipe
    os.write(1, f"rank {rank} of {size} on {where}, pid {os.getpid()}\n".encode())

    inputs, targets = samples(rank, args.samples)
    weights = np.zeros_like(TRUTH)

    first = last = 0.0
    for step in range(args.steps):
        error = inputs @ weights - targets
        last = world.allreduce(float(error @ error), op=MPI.SUM) / (size * args.samples)
        gradient = np.empty_like(weights)
        world.Allreduce(2 * inputs.T @ error / (size * args.samples), gradient, op=MPI.SUM)
        weights -= LEARNING_RATE * gradient
        first = last if step == 0 else first
        if rank == 0 and step % 10 == 0:
            print(f"step {step:3d}  loss {last:.6f}", flush=True)

    difference = 0.0
    if rank == 0:
        print(f"loss {first:.6f} -> {last:.6f} on {size} ranks", flush=True)
        difference = float(np.abs(weights - one_process(size, args)).max())
        print(
            f"difference to one process: {difference:.1e} (allowed {args.tolerance:.0e})",
            flush=True,
        )
    return 0 if last < first / 10 and difference <= args.tolerance else 1


if __name__ == "__main__":
    sys.exit(main())
