"""Data-parallel training started by torch.distributed.launch, which checks itself against one
process doing it all.

Every rank makes the same whole batch and trains on its own share of it; DDP averages the gradients.
A second model on every rank trains on the whole batch alone. The two must stay the same, up to
rounding.
"""

import argparse
import os
import socket
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def model() -> torch.nn.Module:
    torch.manual_seed(1)
    return torch.nn.Sequential(
        torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1)
    ).double()


def train(local_rank: int, args: argparse.Namespace) -> int:
    rank, size = dist.get_rank(), dist.get_world_size()
    where = f"{socket.gethostname()}, local rank {local_rank}, pid {os.getpid()}"
    print(f"rank {rank} of {size} on {where}", flush=True)

    device = torch.device("cuda", local_rank) if torch.cuda.is_available() else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    ours, reference = DistributedDataParallel(model().to(device)), model().to(device)
    optimizer = torch.optim.SGD(ours.parameters(), lr=0.05)
    plain = torch.optim.SGD(reference.parameters(), lr=0.05)

    batches = torch.Generator().manual_seed(2)
    inputs = torch.randn(size * args.share, 16, generator=batches, dtype=torch.double).to(device)
    targets = torch.sin(inputs.sum(dim=1, keepdim=True))
    mine = slice(rank * args.share, (rank + 1) * args.share)
    loss_of = torch.nn.MSELoss()

    worst, first, last = 0.0, None, 0.0
    for step in range(args.steps):
        if args.fail and rank == args.fail_rank and step == args.steps // 2:
            print(f"rank {rank} fails with {args.fail}", flush=True)
            return args.fail
        optimizer.zero_grad()
        loss_of(ours(inputs[mine]), targets[mine]).backward()
        optimizer.step()
        plain.zero_grad()
        whole = loss_of(reference(inputs), targets)
        whole.backward()
        plain.step()
        last = whole.item()
        first = last if first is None else first
        for averaged, one_process in zip(ours.parameters(), reference.parameters(), strict=True):
            worst = max(worst, (averaged.grad - one_process.grad).abs().max().item())
        if rank == 0 and step % 5 == 0:
            print(f"step {step} loss {last:.6f}", flush=True)

    # The loss on the whole batch is the mean of the shares', since all are of one size.
    with torch.no_grad():
        ended = loss_of(ours(inputs[mine]), targets[mine]) / size
        dist.all_reduce(ended)
        last = ended.item()
        worst = max(worst, abs(last - loss_of(reference(inputs), targets).item()))
    everywhere = torch.tensor(worst, dtype=torch.double, device=device)
    dist.all_reduce(everywhere, op=dist.ReduceOp.MAX)
    worst = everywhere.item()
    if rank == 0:
        print(f"loss {first:.6f} -> {last:.6f}", flush=True)
        print(f"difference to one process: {worst:.1e} (allowed {args.tolerance:.0e})", flush=True)
    return 0 if worst <= args.tolerance and first is not None and last < first else 1


def main() -> int:
    parser = argparse.ArgumentParser()
    # With TORCHLAUNCH_USE_ENV=0 the launcher gives it as an argument, spelled one way before torch
    # 2.0, other since.
    parser.add_argument(
        "--local_rank", "--local-rank", type=int, default=int(os.environ.get("LOCAL_RANK", "0"))
    )
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--share", type=int, default=8, help="samples of a step on each rank")
    parser.add_argument("--tolerance", type=float, default=1e-10)
    parser.add_argument(
        "--fail", type=int, default=0, help="exit status of one rank after half the steps"
    )
    parser.add_argument("--fail-rank", type=int, default=0, help="which rank that is")
    args = parser.parse_args()

    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    status = train(args.local_rank, args)
    if status == 0:
        dist.barrier()  # nobody leaves while another still talks to it
        dist.destroy_process_group()
    return status


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    # at once: on a busy machine gloo's threads may abort a Python that is being taken apart
    os._exit(status)
