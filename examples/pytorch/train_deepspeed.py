"""Data-parallel training by DeepSpeed, which checks itself against one process doing it all.

Every rank makes the same whole batch and trains on its own share of it; ZeRO keeps a part of the
gradients and of the optimizer's state on each. A second model on every rank trains on the whole
batch alone. The two must stay the same, up to rounding.
"""

import argparse
import os
import signal
import socket
import sys

import deepspeed
import torch
import torch.distributed as dist

# On CPUs DeepSpeed compiles an operator of inference at its first start, with a compiler that an
# image need not have.
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False


def model() -> torch.nn.Module:
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))


def stay(rank: int) -> None:
    """Wait for SIGTERM, as a job does that saves what it has."""

    def told(number: int, frame: object) -> None:
        os.write(1, f"rank {rank} told\n".encode())
        os._exit(0)

    signal.signal(signal.SIGTERM, told)
    os.write(1, f"rank {rank} is up\n".encode())
    while True:
        signal.pause()


def train(args: argparse.Namespace) -> int:
    rank, size = dist.get_rank(), dist.get_world_size()
    where = f"{socket.gethostname()}, local rank {os.environ['LOCAL_RANK']}, pid {os.getpid()}"
    print(f"rank {rank} of {size} on {where}", flush=True)
    if args.stay:
        stay(rank)

    settings = {
        "train_micro_batch_size_per_gpu": args.share,
        "zero_optimization": {"stage": 2},
        "zero_allow_untested_optimizer": True,
    }
    ours = model()
    engine, *_ = deepspeed.initialize(
        model=ours, optimizer=torch.optim.SGD(ours.parameters(), lr=0.05), config=settings
    )
    reference = model().to(engine.device)
    plain = torch.optim.SGD(reference.parameters(), lr=0.05)

    batches = torch.Generator().manual_seed(2)
    inputs = torch.randn(size * args.share, 16, generator=batches).to(engine.device)
    targets = torch.sin(inputs.sum(dim=1, keepdim=True))
    mine = slice(rank * args.share, (rank + 1) * args.share)
    loss_of = torch.nn.MSELoss()

    first = last = 0.0
    for step in range(args.steps):
        if args.fail and rank == args.fail_rank and step == args.steps // 2:
            print(f"rank {rank} fails with {args.fail}", flush=True)
            return args.fail
        loss = loss_of(engine(inputs[mine]), targets[mine])
        engine.backward(loss)
        engine.step()
        plain.zero_grad()
        loss_of(reference(inputs), targets).backward()
        plain.step()
        # The loss on the whole batch is the mean of the shares', since all are of one size.
        whole = loss.detach() / size
        dist.all_reduce(whole)
        last = whole.item()
        first = last if step == 0 else first
        if rank == 0 and step % 5 == 0:
            print(f"step {step} loss {last:.6f}", flush=True)

    pairs = zip(engine.module.parameters(), reference.parameters(), strict=True)
    worst = torch.stack([(one - other).abs().max() for one, other in pairs]).max().detach()
    dist.all_reduce(worst, op=dist.ReduceOp.MAX)
    if rank == 0:
        print(f"loss {first:.6f} -> {last:.6f}", flush=True)
        print(
            f"difference to one process: {worst.item():.1e} (allowed {args.tolerance:.0e})",
            flush=True,
        )
    return 0 if worst.item() <= args.tolerance and last < first else 1


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--local_rank", type=int, help="which DeepSpeed's launcher gives; LOCAL_RANK says the same"
    )
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--share", type=int, default=8, help="samples of a step on each rank")
    parser.add_argument("--tolerance", type=float, default=1e-5)
    parser.add_argument(
        "--fail", type=int, default=0, help="exit status of one rank after half the steps"
    )
    parser.add_argument("--fail-rank", type=int, default=0, help="which rank that is")
    parser.add_argument("--stay", action="store_true", help="wait for SIGTERM")
    args = parser.parse_args()

    deepspeed.init_distributed()
    status = train(args)
    if status == 0:
        dist.barrier()  # nobody leaves while another still talks to it
        dist.destroy_process_group()
    return status


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    # at once: on a busy machine gloo's threads may abort a Python that is being taken apart
    os._exit(status)
