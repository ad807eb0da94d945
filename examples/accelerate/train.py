"""Data-parallel training by Accelerate, which checks itself against one process doing it all.

Every rank makes the same whole batch and trains on its own share of it; Accelerate has the
gradients averaged. A second model on every rank trains on the whole batch alone. The two must stay
the same, up to rounding.
"""

import argparse
import os
import signal
import socket
import sys

import torch
from accelerate import Accelerator


def model() -> torch.nn.Module:
    torch.manual_seed(1)
    return torch.nn.Sequential(
        torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1)
    ).double()


def stay(rank: int) -> None:
    """Wait for SIGTERM, as a job does that saves what it has."""

    def told(number: int, frame: object) -> None:
        os.write(1, f"rank {rank} told\n".encode())
        os._exit(0)

    signal.signal(signal.SIGTERM, told)
    os.write(1, f"rank {rank} is up\n".encode())
    while True:
        signal.pause()


def train(accelerator: Accelerator, args: argparse.Namespace) -> int:
    rank, size = accelerator.process_index, accelerator.num_processes
    where = (
        f"{socket.gethostname()}, local rank {accelerator.local_process_index}, pid {os.getpid()}"
    )
    print(f"rank {rank} of {size} on {where}", flush=True)
    if size != int(os.environ["WORLD_SIZE"]):
        print(f"this process trains alone: {accelerator.distributed_type}", file=sys.stderr)
        return 1
    if args.stay:
        stay(rank)

    ours, reference = model(), model().to(accelerator.device)
    ours, optimizer = accelerator.prepare(ours, torch.optim.SGD(ours.parameters(), lr=0.05))
    plain = torch.optim.SGD(reference.parameters(), lr=0.05)

    batches = torch.Generator().manual_seed(2)
    inputs = torch.randn(size * args.share, 16, generator=batches, dtype=torch.double).to(
        accelerator.device
    )
    targets = torch.sin(inputs.sum(dim=1, keepdim=True))
    mine = slice(rank * args.share, (rank + 1) * args.share)
    loss_of = torch.nn.MSELoss()

    first = last = 0.0
    for step in range(args.steps):
        if args.fail and rank == args.fail_rank and step == args.steps // 2:
            print(f"rank {rank} fails with {args.fail}", flush=True)
            return args.fail
        optimizer.zero_grad()
        loss = loss_of(ours(inputs[mine]), targets[mine])
        accelerator.backward(loss)
        optimizer.step()
        plain.zero_grad()
        loss_of(reference(inputs), targets).backward()
        plain.step()
        last = accelerator.gather(loss.detach()).mean().item()
        first = last if step == 0 else first
        if accelerator.is_main_process and step % 5 == 0:
            print(f"step {step} loss {last:.6f}", flush=True)

    pairs = zip(accelerator.unwrap_model(ours).parameters(), reference.parameters(), strict=True)
    worst = torch.stack([(one - other).abs().max() for one, other in pairs]).max().detach()
    worst = accelerator.gather(worst).max().item()
    if accelerator.is_main_process:
        print(f"loss {first:.6f} -> {last:.6f}", flush=True)
        print(f"difference to one process: {worst:.1e} (allowed {args.tolerance:.0e})", flush=True)
    return 0 if worst <= args.tolerance and last < first else 1


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--share", type=int, default=8, help="samples of a step on each rank")
    parser.add_argument("--tolerance", type=float, default=1e-10)
    parser.add_argument(
        "--fail", type=int, default=0, help="exit status of one rank after half the steps"
    )
    parser.add_argument("--fail-rank", type=int, default=0, help="which rank that is")
    parser.add_argument("--stay", action="store_true", help="wait for SIGTERM")
    args = parser.parse_args()

    accelerator = Accelerator()
    status = train(accelerator, args)
    if status == 0:
        accelerator.wait_for_everyone()  # nobody leaves while another still talks to it
        accelerator.end_training()
    return status


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    # at once: on a busy machine gloo's threads may abort a Python that is being taken apart
    os._exit(status)
