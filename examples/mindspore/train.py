"""Data-parallel training with MindSpore, which checks itself against one process doing it all.

Every rank trains on its own share of the batch and averages the gradients with an all-reduce. A
second set of weights on every rank trains on the whole batch alone. The two must stay the same, up
to rounding (MindSpore's CPU all-reduce has 32 bits).
"""

import argparse
import atexit
import os
import socket
import sys

# Registered before MindSpore's own handler, this one runs after it, and skips the destructors of
# MindSpore's threads, which sometimes crash. MindSpore's handler must run: it leaves the cluster,
# without which the scheduler waits 30 s and fails, and msrun with it.
STATUS = [1]
atexit.register(lambda: os._exit(STATUS[0]))

import mindspore as ms  # noqa: E402
import numpy as np  # noqa: E402
from mindspore import communication, ops  # noqa: E402

LEARNING_RATE = 0.05


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def weights() -> list[ms.Tensor]:
    random = np.random.default_rng(1)
    layers = random.normal(size=(16, 32)) / 4, random.normal(size=(32, 1)) / 6
    return [ms.Tensor(each.astype(np.float32)) for each in layers]


def loss_of(
    first: ms.Tensor, second: ms.Tensor, inputs: ms.Tensor, targets: ms.Tensor
) -> ms.Tensor:
    return ops.mean((ops.matmul(ops.tanh(ops.matmul(inputs, first)), second) - targets) ** 2)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--share", type=int, default=8, help="samples of a step on each rank")
    parser.add_argument("--tolerance", type=float, default=1e-5)
    parser.add_argument(
        "--fail", type=int, default=0, help="exit status of one rank after half the steps"
    )
    parser.add_argument("--fail-rank", type=int, default=0, help="which rank that is")
    args = parser.parse_args()

    ms.set_context(mode=ms.PYNATIVE_MODE)
    communication.init()
    rank, size = communication.get_rank(), communication.get_group_size()
    local = os.environ.get("OMPI_COMM_WORLD_LOCAL_RANK", os.environ.get("DEVICE_ID", "?"))
    say(f"rank {rank} of {size} on {socket.gethostname()}, local rank {local}, pid {os.getpid()}")

    random = np.random.default_rng(2)
    drawn = random.normal(size=(args.share * size, 16)).astype(np.float32)
    inputs, targets = ms.Tensor(drawn), ms.Tensor(np.sin(drawn.sum(axis=1, keepdims=True)))
    mine = slice(rank * args.share, (rank + 1) * args.share)

    step_of = ms.value_and_grad(loss_of, grad_position=(0, 1))
    together = ops.AllReduce(ops.ReduceOp.SUM)
    ours, reference = weights(), weights()
    worst = first = last = 0.0
    for step in range(args.steps):
        if args.fail and rank == args.fail_rank and step == args.steps // 2:
            say(f"rank {rank} fails with {args.fail}")
            return args.fail
        _, shares = step_of(*ours, inputs[mine], targets[mine])
        ours = [
            layer - LEARNING_RATE * together(share) / size
            for layer, share in zip(ours, shares, strict=True)
        ]
        whole, gradients = step_of(*reference, inputs, targets)
        reference = [
            layer - LEARNING_RATE * each for layer, each in zip(reference, gradients, strict=True)
        ]
        apart = [abs(a.asnumpy() - b.asnumpy()).max() for a, b in zip(ours, reference, strict=True)]
        worst = float(np.max([worst, *apart]))
        last = float(whole.asnumpy())
        first = last if step == 0 else first
        if rank == 0 and step % 5 == 0:
            say(f"step {step} loss {last:.6f}")

    # the sum is no less than the greatest
    worst = float(together(ms.Tensor(np.float32(worst))).asnumpy())
    if rank == 0:
        say(f"loss {first:.6f} -> {last:.6f}")
        say(f"difference to one process: {worst:.1e} (allowed {args.tolerance:.0e})")
    return 0 if worst <= args.tolerance and last < first else 1


if __name__ == "__main__":
    STATUS[0] = main()
    sys.stdout.flush()
