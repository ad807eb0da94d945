"""Data-parallel linear regression by Ray actors: each has its share of the samples, the program
averages the gradients.

Afterwards the program does the same on all samples alone: the weights must be the same, up to
rounding.
"""

import argparse
import os
import signal
import socket
import sys
import time

import numpy as np
import ray

LEARNING_RATE = 0.02
TRUTH = np.linspace(-1.0, 1.0, 8)


def here() -> str:
    """The node that this process runs on."""
    return os.environ.get("DEMO_NODE", socket.gethostname())


def samples(rank: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """One actor's share: inputs and targets."""
    inputs = np.random.default_rng(rank).normal(size=(count, TRUTH.size))
    return inputs, inputs @ TRUTH


@ray.remote(num_cpus=1)
class Worker:
    """One process of the job. It runs on any node that has a free core."""

    def __init__(self, rank: int, count: int) -> None:
        self.rank, (self.inputs, self.targets) = rank, samples(rank, count)

    def place(self) -> tuple[int, str, int]:
        """Return the actor's rank, its host and its process."""
        return self.rank, here(), os.getpid()

    def gradient(self, weights: np.ndarray) -> tuple[np.ndarray, float]:
        """The gradient and the loss on its own share."""
        error = self.inputs @ weights - self.targets
        return 2 * self.inputs.T @ error / len(error), float(error @ error) / len(error)

    def save(self) -> str:
        """Report that a stopped job has told this actor to save."""
        return f"rank {self.rank} told, on {here()}"

    def fail(self, status: int) -> None:
        """End this process at once."""
        os._exit(status)


def one_process(size: int, args: argparse.Namespace) -> np.ndarray:
    """The weights of one process that has every actor's samples."""
    shares = [samples(rank, args.samples) for rank in range(size)]
    inputs, targets = (np.concatenate(each) for each in zip(*shares, strict=True))
    weights = np.zeros_like(TRUTH)
    for _ in range(args.steps):
        weights -= LEARNING_RATE * 2 * inputs.T @ (inputs @ weights - targets) / len(inputs)
    return weights


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--samples", type=int, default=64, help="samples of each actor")
    parser.add_argument("--tolerance", type=float, default=1e-10)
    parser.add_argument(
        "--fail", type=int, default=0, help="exit status of the program after half the steps"
    )
    parser.add_argument(
        "--lose", type=int, default=-1, help="the actor that dies after half the steps"
    )
    parser.add_argument(
        "--stay", action="store_true", help="wait for SIGTERM, then have every actor save"
    )
    args = parser.parse_args()

    ray.init()  # where the launcher's RAY_ADDRESS says
    size = int(ray.cluster_resources()["CPU"])
    workers = [Worker.remote(rank, args.samples) for rank in range(size)]
    for rank, host, pid in ray.get([worker.place.remote() for worker in workers]):
        print(f"rank {rank} of {size} on {host}, pid {pid}", flush=True)

    if args.stay:
        told: list[int] = []
        # in the place of Ray's own
        signal.signal(signal.SIGTERM, lambda number, frame: told.append(number))
        for rank in range(size):
            print(f"rank {rank} is up", flush=True)
        while not told:
            time.sleep(0.1)
        for line in ray.get([worker.save.remote() for worker in workers]):
            print(line, flush=True)
        return 0

    weights, first, last = np.zeros_like(TRUTH), 0.0, 0.0
    for step in range(args.steps):
        if step == args.steps // 2 and args.fail:
            print(f"the program fails with {args.fail}", flush=True)
            return args.fail
        if step == args.steps // 2 and args.lose >= 0:
            workers[args.lose].fail.remote(7)
        gradients, losses = zip(
            *ray.get([worker.gradient.remote(weights) for worker in workers]), strict=True
        )
        weights = weights - LEARNING_RATE * np.mean(gradients, axis=0)
        last = float(np.mean(losses))
        first = last if step == 0 else first
        if step % 5 == 0:
            print(f"step {step} loss {last:.6f}", flush=True)

    difference = float(np.abs(weights - one_process(size, args)).max())
    print(f"loss {first:.6f} -> {last:.6f}", flush=True)
    print(f"difference to one process: {difference:.1e} (allowed {args.tolerance:.0e})", flush=True)
    return 0 if last < first and difference <= args.tolerance else 1


if __name__ == "__main__":
    sys.exit(main())
