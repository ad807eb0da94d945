"""Data-parallel training in PyTorch, which checks itself against one process doing it all.

A launcher such as torchrun gives every process its rank in the environment. With --processes, this
starts the processes of its node itself, by mp.spawn, and the launcher says which node it is. With
neither, this process trains alone.

Every rank makes the same whole batch and trains on its own share of it; DDP averages the gradients.
Afterwards every rank trains a second model on the whole batch alone: the two must be the same, up
to rounding. With --checkpoint rank 0 saves after each step, and all ranks go on from there when
they are started again, whatever their number is then.
"""

import argparse
import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import NoReturn

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel

LOSS_OF = torch.nn.MSELoss()


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument(
        "--batch",
        type=int,
        default=0,
        help="samples of a step, which the number of ranks divides (default: 8 for each rank)",
    )
    parser.add_argument("--tolerance", type=float, default=1e-10)
    parser.add_argument(
        "--fail", type=int, default=0, help="exit status of one rank after half the steps"
    )
    parser.add_argument("--fail-rank", type=int, default=0, help="which rank that is")
    parser.add_argument("--stay", action="store_true", help="wait for SIGTERM")
    # torch.distributed.launch (with TORCHLAUNCH_USE_ENV=0) and DeepSpeed's launcher give it, too
    parser.add_argument(
        "--local_rank", "--local-rank", type=int, default=int(os.environ.get("LOCAL_RANK", "0"))
    )
    return parser


def model() -> torch.nn.Module:
    torch.manual_seed(1)
    return torch.nn.Sequential(
        torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1)
    ).double()


def optimizer_of(trained: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(trained.parameters(), lr=0.05)


def batch(args: argparse.Namespace, trained: torch.nn.Module) -> tuple[torch.Tensor, torch.Tensor]:
    """The whole batch, inputs and targets, which is the same on every rank."""
    samples = args.batch or 8 * dist.get_world_size()
    generator = torch.Generator().manual_seed(2)
    inputs = torch.randn(samples, 16, generator=generator, dtype=torch.double)
    inputs = inputs.to(next(trained.parameters()))
    return inputs, torch.sin(inputs.sum(dim=1, keepdim=True))


def share(args: argparse.Namespace, trained: torch.nn.Module) -> tuple[torch.Tensor, torch.Tensor]:
    """This rank's part of the batch."""
    inputs, targets = batch(args, trained)
    mine = slice(dist.get_rank(), None, dist.get_world_size())
    return inputs[mine], targets[mine]


def say_where(rank: int, size: int, local_rank: int, step: int = 0) -> None:
    host = os.environ.get("DEMO_NODE", socket.gethostname())
    line = f"rank {rank} of {size} on {host}, local rank {local_rank}, pid {os.getpid()}"
    # in one write: other ranks may write to the same pipe
    os.write(1, f"{line}, from step {step}\n".encode())


def stay(rank: int) -> None:
    """Wait for SIGTERM, as a job does that saves what it has."""

    def told(number: int, frame: object) -> None:
        os.write(1, f"rank {rank} told\n".encode())
        os._exit(0)

    signal.signal(signal.SIGTERM, told)
    os.write(1, f"rank {rank} is up\n".encode())
    while True:
        signal.pause()


def fail_if_asked(args: argparse.Namespace, rank: int, step: int) -> None:
    if args.fail and rank == args.fail_rank and step == args.steps // 2:
        print(f"rank {rank} fails with {args.fail}", flush=True)
        os._exit(args.fail)


def show(step: int, loss: torch.Tensor) -> None:
    """Print the loss on the whole batch: the mean of the shares', since all are of one size."""
    whole = loss.detach() / dist.get_world_size()
    dist.all_reduce(whole)
    if dist.get_rank() == 0 and step % 5 == 0:
        print(f"step {step} loss {whole.item():.6f}", flush=True)


def check(args: argparse.Namespace, trained: torch.nn.Module) -> int:
    """Train on the whole batch in this process alone; return 0 if the weights are the same."""
    inputs, targets = batch(args, trained)
    alone = model().to(next(trained.parameters()))
    optimizer = optimizer_of(alone)
    losses = []
    for _ in range(args.steps):
        optimizer.zero_grad()
        loss = LOSS_OF(alone(inputs), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    pairs = zip(trained.parameters(), alone.parameters(), strict=True)
    worst = torch.stack([(one - other).abs().max() for one, other in pairs]).max().detach()
    dist.all_reduce(worst, op=dist.ReduceOp.MAX)
    difference = worst.item()
    if dist.get_rank() == 0:
        print(f"loss {losses[0]:.6f} -> {losses[-1]:.6f}", flush=True)
        allowed = f"(allowed {args.tolerance:.0e})"
        print(f"difference to one process: {difference:.1e} {allowed}", flush=True)
    return 0 if difference <= args.tolerance and losses[-1] < losses[0] else 1


def train(local_rank: int, args: argparse.Namespace) -> int:
    rank = dist.get_rank()
    device = torch.device("cuda", local_rank) if torch.cuda.is_available() else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    ours = model().to(device)

    state = [0, None]
    saved = Path(args.checkpoint)
    if args.checkpoint and rank == 0 and saved.exists():
        state = torch.load(saved, map_location="cpu")
    dist.broadcast_object_list(state)  # rank 0's step and weights
    first_step, weights = state
    if weights:
        ours.load_state_dict(weights)
    say_where(rank, dist.get_world_size(), local_rank, first_step)
    if args.stay:
        stay(rank)

    wrapped = DistributedDataParallel(ours)
    optimizer = optimizer_of(wrapped)
    inputs, targets = share(args, ours)
    for step in range(first_step, args.steps):
        fail_if_asked(args, rank, step)
        optimizer.zero_grad()
        loss = LOSS_OF(wrapped(inputs), targets)
        loss.backward()
        optimizer.step()
        if args.checkpoint and rank == 0:
            torch.save([step + 1, ours.state_dict()], f"{saved}.new")
            os.replace(f"{saved}.new", saved)
        show(step, loss)
        time.sleep(args.pause)
    return check(args, ours)


def start(local_rank: int, args: argparse.Namespace) -> NoReturn:
    """Train as one of the processes of this node, and end the process with its status."""
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    if args.processes:
        dist.init_process_group(
            backend,
            init_method=args.init_method,
            rank=args.rank * args.processes + local_rank,
            world_size=args.world_size * args.processes,
        )
    elif "RANK" in os.environ:
        dist.init_process_group(backend)
    else:
        print(f"arguments {sys.argv[1:]} in {os.getcwd()} by {sys.executable}", flush=True)
        dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
    status = train(local_rank, args)
    dist.barrier()  # nobody leaves while another still talks to it
    dist.destroy_process_group()
    sys.stdout.flush()
    # at once: on a busy machine gloo's threads may abort a Python that is being taken apart
    os._exit(status)


def main() -> int:
    parser = options()
    parser.add_argument("--pause", type=float, default=0.0, help="seconds between two steps")
    parser.add_argument("--checkpoint", default="", help="a file, such as /data/checkpoint.pt")
    parser.add_argument("--processes", type=int, default=0, help="on each node, by mp.spawn")
    # what the launcher `pytorch` adds
    parser.add_argument("--init_method", default="tcp://127.0.0.1:6060")
    parser.add_argument("--rank", type=int, default=0, help="this node's number")
    parser.add_argument("--world_size", type=int, default=1, help="nodes")
    args = parser.parse_args()
    if not args.processes:
        start(args.local_rank, args)
    try:
        mp.spawn(start, args=(args,), nprocs=args.processes)
    except mp.ProcessExitedException as error:
        # Its own status, and not the 1 of an exception that nobody caught.
        return error.exit_code if error.exit_code > 0 else 128 - error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
