"""Data-parallel training that goes on when nodes go or come, and checks itself against one process.

torchrun starts every process anew then. The batch stays the same: each rank takes its share,
whatever their number is. Rank 0 saves every step, and tells all the others where it is when they
start.
"""

import argparse
import os
import signal
import socket
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

BATCH = 48  # divided by 1, 2, 3, 4, 6 or 8 ranks
LOSS_OF = torch.nn.MSELoss()


def model() -> torch.nn.Module:
    torch.manual_seed(1)
    return torch.nn.Sequential(
        torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1)
    ).double()


def data() -> tuple[torch.Tensor, torch.Tensor]:
    inputs = torch.randn(BATCH, 16, generator=torch.Generator().manual_seed(2), dtype=torch.double)
    return inputs, torch.sin(inputs.sum(dim=1, keepdim=True))


def one_process(steps: int) -> tuple[torch.nn.Module, float, float]:
    """The weights of one process that trains on the whole batch, its first loss and its last."""
    whole, (inputs, targets), losses = model(), data(), []
    optimizer = torch.optim.SGD(whole.parameters(), lr=0.05)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = LOSS_OF(whole(inputs), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return whole, losses[0], losses[-1]


def told(number: int, frame: object) -> None:
    os.write(1, f"rank {os.environ['RANK']} told\n".encode())
    os._exit(0)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--pause", type=float, default=0.0, help="seconds between two steps")
    parser.add_argument("--tolerance", type=float, default=1e-10)
    parser.add_argument(
        "--fail", type=int, default=0, help="exit status of one rank after half the steps"
    )
    parser.add_argument("--fail-rank", type=int, default=0, help="which rank that is")
    parser.add_argument("--stay", action="store_true", help="wait for SIGTERM")
    args = parser.parse_args()

    dist.init_process_group("gloo")
    rank, size, local = dist.get_rank(), dist.get_world_size(), os.environ["LOCAL_RANK"]
    saved = Path(tempfile.gettempdir(), f"elastic-{os.environ['TORCHELASTIC_RUN_ID']}.pt")
    ours, state = model(), [0, None]
    if rank == 0 and saved.exists():
        state = torch.load(saved)
    dist.broadcast_object_list(state)
    begun = state[0]
    if state[1]:
        ours.load_state_dict(state[1])
    where = (
        f"{os.environ.get('DEMO_NODE', socket.gethostname())}, local rank {local}, pid"
        f" {os.getpid()}"
    )
    os.write(1, f"rank {rank} of {size} on {where}, from step {begun}\n".encode())
    if args.stay:
        signal.signal(signal.SIGTERM, told)
        os.write(1, f"rank {rank} is up\n".encode())
        while True:
            signal.pause()

    wrapped = DistributedDataParallel(ours)
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.05)
    inputs, targets = data()
    share = BATCH // size
    mine = slice(rank * share, (rank + 1) * share)
    for step in range(begun, args.steps):
        if args.fail and rank == args.fail_rank and step == args.steps // 2:
            return args.fail
        optimizer.zero_grad()
        LOSS_OF(wrapped(inputs[mine]), targets[mine]).backward()
        optimizer.step()
        if rank == 0:
            torch.save([step + 1, ours.state_dict()], f"{saved}.new")
            os.replace(f"{saved}.new", saved)
            print(f"step {step}", flush=True)
        time.sleep(args.pause)

    whole, first, last = one_process(args.steps)
    pairs = zip(ours.parameters(), whole.parameters(), strict=True)
    worst = max((each - one).abs().max().item() for each, one in pairs)
    if rank == 0:
        print(f"loss {first:.6f} -> {last:.6f}", flush=True)
        print(f"difference to one process: {worst:.1e} (allowed {args.tolerance:.0e})", flush=True)
    dist.barrier()  # nobody leaves while another still talks to it
    return 0 if worst <= args.tolerance and last < first else 1


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    # at once: on a busy machine gloo's threads may abort a Python that is being taken apart
    os._exit(status)
