"""Data-parallel training that goes on from its checkpoint: each rank has its share of the samples,
and Gloo adds up the gradients. Rank 0 prints the loss of each step, and saves the step and the weights
every few steps.

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

try:  # the tests import this, too, where it is not
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


def add_up(numbers: np.ndarray) -> np.ndarray:
    """The sum of all ranks' numbers."""
    total = torch.from_numpy(numbers.copy())
    dist.all_reduce(total)
    return total.numpy()


def train(folder: str, steps: int, pause: float) -> None:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    file = Path(folder, "checkpoint.json")
    step, weights = load(file)
    attempt = os.environ["ENTRYPOINT_ATTEMPT"]
    say(f"rank {rank} of {ranks} on {socket.gethostname()}, attempt {attempt}, from step {step}")
    for number in range(step, steps):
        weights, loss = next_weights(weights, add_up(gradient(rank, weights)), ranks)
        if rank == 0:
            say(f"step {number} loss {loss!r}")
            if (number + 1) % EVERY == 0:
                save(file, number + 1, weights)
        time.sleep(pause)
    dist.barrier()  # nobody leaves while another still talks to it


if __name__ == "__main__":
    dist.init_process_group("gloo")  # where RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT say
    train(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
    dist.destroy_process_group()
    sys.stdout.flush()
    # at once: on a busy machine Gloo's threads may abort a Python that is being taken apart
    os._exit(0)
