"""Data-parallel training with Horovod and plain torch, which checks itself against one process
doing it all.

Every rank makes the same whole batch, trains on its own share of it, and lets Horovod average the
gradients. A second model on every rank trains on the whole batch without Horovod. The two must stay
the same, up to rounding.
"""

import argparse
import os
import socket
import sys

import horovod.torch as hvd
import torch


def model() -> torch.nn.Module:
    torch.manual_seed(1)
    return torch.nn.Sequential(
        torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1)
    ).double()


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--share", type=int, default=8, help="samples of a step on each rank")
    parser.add_argument("--tolerance", type=float, default=1e-5)
    parser.add_argument(
        "--fail", type=int, default=0, help="exit status to end with after half the steps"
    )
    args = parser.parse_args()

    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    where = f"{socket.gethostname()}, local rank {hvd.local_rank()}, pid {os.getpid()}"
    print(f"rank {rank} of {size} on {where}", flush=True)

    device = (
        torch.device("cuda", hvd.local_rank()) if torch.cuda.is_available() else torch.device("cpu")
    )
    ours, reference = model().to(device), model().to(device)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(ours.parameters(), lr=0.05), named_parameters=ours.named_parameters()
    )
    plain = torch.optim.SGD(reference.parameters(), lr=0.05)
    hvd.broadcast_parameters(ours.state_dict(), root_rank=0)

    batches = torch.Generator().manual_seed(2)
    inputs = torch.randn(size * args.share, 16, generator=batches, dtype=torch.double).to(device)
    targets = torch.sin(inputs.sum(dim=1, keepdim=True))
    mine = slice(rank * args.share, (rank + 1) * args.share)
    loss_of = torch.nn.MSELoss()

    worst, first, whole = 0.0, None, torch.tensor(0.0)
    for step in range(args.steps):
        if args.fail and step == args.steps // 2:
            return args.fail
        optimizer.zero_grad()
        loss_of(ours(inputs[mine]), targets[mine]).backward()
        optimizer.synchronize()  # the gradients are now Horovod's average over all ranks
        plain.zero_grad()
        whole = loss_of(reference(inputs), targets)
        whole.backward()
        for averaged, one_process in zip(ours.parameters(), reference.parameters(), strict=True):
            worst = max(worst, (averaged.grad - one_process.grad).abs().max().item())
        with optimizer.skip_synchronize():
            optimizer.step()
        plain.step()
        first = whole.item() if first is None else first
        if rank == 0 and step % 5 == 0:
            print(f"step {step} loss {whole.item():.6f}", flush=True)

    everywhere = hvd.allreduce(torch.tensor(worst, dtype=torch.double), op=hvd.Max).item()
    if rank == 0:
        print(f"loss {first:.6f} -> {whole.item():.6f}", flush=True)
        print(
            f"gradient difference to one process: {everywhere:.1e} (allowed {args.tolerance:.0e})",
            flush=True,
        )
    falling = first is not None and whole.item() < first
    return 0 if everywhere <= args.tolerance and falling else 1


if __name__ == "__main__":
    sys.exit(main())
