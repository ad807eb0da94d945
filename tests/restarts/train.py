"""Data-parallel training that goes on from its checkpoint, by itself under every launcher.

Each rank has its share of the samples; the gradients are added up by JAX where its launcher started
this, by torch's Gloo where the image has torch, else by MPI. Under Ray the program starts an actor
for each rank, which do the same. Rank 0 prints the loss of each step, and saves the step and the
weights every few steps.

    python train.py FOLDER STEPS PAUSE
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from pathlib import Path

import numpy as np

try:  # the tests import this, too, where neither is
    import torch
    import torch.distributed as dist
except ImportError:
    torch = None

EVERY = 5  # steps between two checkpoints
RATE, SAMPLES, SIZE = 0.05, 16, 8


def samples(rank: int) -> tuple[np.ndarray, np.ndarray]:
    """The share of this rank: inputs and targets."""
    inputs = np.random.default_rng(rank).normal(size=(SAMPLES, SIZE))
    return inputs, np.sin(inputs.sum(axis=1))


def gradient(rank: int, weights: np.ndarray) -> np.ndarray:
    """This rank's part of the gradient, and of the loss as the last number."""
    inputs, targets = samples(rank)
    error = inputs @ weights - targets
    return np.append(2 * inputs.T @ error / SAMPLES, error @ error / SAMPLES)


def next_weights(weights: np.ndarray, total: np.ndarray, ranks: int) -> tuple[np.ndarray, float]:
    """The weights after a step, and the loss before it."""
    return weights - RATE * total[:-1] / ranks, float(total[-1] / ranks)


def reference(ranks: int, steps: int) -> list[float]:
    """The loss of each step where one process has all samples and nothing is lost."""
    weights, losses = np.zeros(SIZE), []
    for _ in range(steps):
        total = sum(gradient(rank, weights) for rank in range(ranks))
        weights, loss = next_weights(weights, total, ranks)
        losses.append(loss)
    return losses


def say(words: str) -> None:
    """One line at once: ranks share a pipe."""
    os.write(1, f"{words}\n".encode())


def load(file: Path) -> tuple[int, np.ndarray]:
    """The step to go on with, and the weights."""
    if not file.exists():
        return 0, np.zeros(SIZE)
    saved = json.loads(file.read_text())
    return saved["step"], np.array(saved["weights"])


def save(file: Path, step: int, weights: np.ndarray) -> None:
    """Keep both, at once or not at all."""
    new = file.with_suffix(".new")
    new.write_text(json.dumps({"step": step, "weights": list(weights)}))
    new.rename(file)


def train(rank: int, ranks: int, add_up, folder: str, steps: int, pause: float) -> None:
    """`add_up`: returns the sum of all ranks' numbers."""
    file = Path(folder, "checkpoint.json")
    step, weights = load(file)
    attempt = os.environ.get("ENTRYPOINT_ATTEMPT", "1")
    say(f"rank {rank} of {ranks} on {socket.gethostname()}, attempt {attempt}, from step {step}")
    for number in range(step, steps):
        weights, loss = next_weights(weights, add_up(gradient(rank, weights)), ranks)
        if rank == 0:
            say(f"step {number} loss {loss!r}")
            if (number + 1) % EVERY == 0:
                save(file, number + 1, weights)
        time.sleep(pause)
    if rank == 0:
        say("trained")


# --------------------------------------------------------------------------------------------------
# What adds up


def by_gloo(*words) -> None:
    """Where RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT say."""

    def add_up(numbers: np.ndarray) -> np.ndarray:
        total = torch.from_numpy(numbers.copy())
        dist.all_reduce(total)
        return total.numpy()

    dist.init_process_group("gloo")
    train(dist.get_rank(), dist.get_world_size(), add_up, *words)
    dist.barrier()  # nobody leaves while another still talks to it
    dist.destroy_process_group()


def by_mpi(*words) -> None:
    from mpi4py import MPI

    def add_up(numbers: np.ndarray) -> np.ndarray:
        total = np.empty_like(numbers)
        MPI.COMM_WORLD.Allreduce(numbers, total)
        return total

    train(MPI.COMM_WORLD.Get_rank(), MPI.COMM_WORLD.Get_size(), add_up, *words)


def by_jax(*words) -> None:
    import jax
    from jax.experimental import multihost_utils

    def add_up(numbers: np.ndarray) -> np.ndarray:
        return np.asarray(multihost_utils.process_allgather(numbers)).sum(axis=0)

    jax.config.update("jax_enable_x64", True)
    rank = int(os.environ["JAX_PROCESS_ID"])
    jax.distributed.initialize(num_processes=int(os.environ["JAX_NUM_PROCESSES"]), process_id=rank)
    train(rank, jax.process_count(), add_up, *words)
    jax.distributed.shutdown()  # which waits for the others


def by_ray(*words) -> None:
    """An actor on each node, which meet at the first one's."""
    import ray

    @ray.remote(num_cpus=1)
    class Rank:
        def address(self) -> str:
            return ray.util.get_node_ip_address()

        def run(self, env: dict[str, str]) -> None:
            os.environ.update(env)
            by_gloo(*words)

    ray.init()  # where the launcher's RAY_ADDRESS says
    ranks = [Rank.remote() for _ in range(int(ray.cluster_resources()["CPU"]))]
    env = {
        "WORLD_SIZE": str(len(ranks)),
        "MASTER_ADDR": ray.get(ranks[0].address.remote()),
        "MASTER_PORT": "29400",
        "ENTRYPOINT_ATTEMPT": os.environ.get("ENTRYPOINT_ATTEMPT", "1"),
    }
    ray.get([each.run.remote({**env, "RANK": str(rank)}) for rank, each in enumerate(ranks)])


def main() -> None:
    """DeepSpeed's launcher adds an option with the local rank."""
    words = [word for word in sys.argv[1:] if not word.startswith("--local_rank")]
    given = (words[0], int(words[1]), float(words[2]))
    if "JAX_PROCESS_ID" in os.environ:
        by_jax(*given)
    elif "RAY_ADDRESS" in os.environ:
        by_ray(*given)
    elif torch is not None:
        by_gloo(*given)
    else:
        by_mpi(*given)


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    # at once: on a busy machine Gloo's threads may abort a Python that is being taken apart
    os._exit(0)
