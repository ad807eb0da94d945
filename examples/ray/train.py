"""Data-parallel training by Ray Train, a process for each core, which checks itself against one
process doing it all.

Every process makes the same whole batch and trains on its own share of it; DDP averages the
gradients. A second model in every process trains on the whole batch alone. The two must stay the
same, up to rounding.
"""

import argparse
import os
import socket
import sys
import tempfile

import ray
import torch
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer, prepare_model


def model() -> torch.nn.Module:
    torch.manual_seed(1)
    return torch.nn.Sequential(
        torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1)
    ).double()


def train(config: dict) -> None:
    """Train as one process of the job."""
    context = ray.train.get_context()
    rank, size, share = context.get_world_rank(), context.get_world_size(), config["share"]
    where = (
        f"{os.environ.get('DEMO_NODE', socket.gethostname())}, local rank"
        f" {context.get_local_rank()}, pid {os.getpid()}"
    )
    print(f"rank {rank} of {size} on {where}", flush=True)

    ours, reference = prepare_model(model()), model()
    device = next(ours.parameters()).device
    reference = reference.to(device)
    optimizer = torch.optim.SGD(ours.parameters(), lr=0.05)
    plain = torch.optim.SGD(reference.parameters(), lr=0.05)
    batches = torch.Generator().manual_seed(2)
    inputs = torch.randn(size * share, 16, generator=batches, dtype=torch.double).to(device)
    targets = torch.sin(inputs.sum(dim=1, keepdim=True))
    mine, loss_of = slice(rank * share, (rank + 1) * share), torch.nn.MSELoss()

    worst, first, last = 0.0, 0.0, 0.0
    for step in range(config["steps"]):
        if config["fail"] and rank == config["fail_rank"] and step == config["steps"] // 2:
            print(f"rank {rank} fails with {config['fail']}", flush=True)
            os._exit(config["fail"])
        optimizer.zero_grad()
        loss_of(ours(inputs[mine]), targets[mine]).backward()
        optimizer.step()
        plain.zero_grad()
        whole = loss_of(reference(inputs), targets)
        whole.backward()
        plain.step()
        last = whole.item()
        first = last if step == 0 else first
        for averaged, one_process in zip(ours.parameters(), reference.parameters(), strict=True):
            worst = max(worst, (averaged.grad - one_process.grad).abs().max().item())
    everywhere = torch.tensor(worst, dtype=torch.double, device=device)
    torch.distributed.all_reduce(everywhere, op=torch.distributed.ReduceOp.MAX)
    worst, allowed = everywhere.item(), config["tolerance"]
    if rank == 0:
        print(f"loss {first:.6f} -> {last:.6f}", flush=True)
        print(f"difference to one process: {worst:.1e} (allowed {allowed:.0e})", flush=True)
    if worst > allowed or last >= first:
        raise AssertionError("this is not what one process learns")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--share", type=int, default=8, help="samples of a step in each process")
    parser.add_argument("--tolerance", type=float, default=1e-10)
    parser.add_argument(
        "--fail", type=int, default=0, help="exit status of one process after half the steps"
    )
    parser.add_argument("--fail-rank", type=int, default=0, help="which one that is")
    args = parser.parse_args()

    ray.init()  # where the launcher's RAY_ADDRESS says
    size, gpus = int(ray.cluster_resources()["CPU"]), int(ray.cluster_resources().get("GPU", 0))
    # Checkpoints need a folder that every node has; this job saves none.
    with tempfile.TemporaryDirectory() as folder:
        trainer = TorchTrainer(
            train,
            train_loop_config=vars(args),
            scaling_config=ScalingConfig(num_workers=gpus or size, use_gpu=gpus > 0),
            run_config=RunConfig(storage_path=folder),
        )
        trainer.fit()
    return 0


if __name__ == "__main__":
    sys.exit(main())
