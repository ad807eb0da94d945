"""Data-parallel training by Lightning, which checks itself against one process doing it all.

Every rank makes the same whole batch and trains on its own share of it; Lightning has DDP average
the gradients. A second model on every rank trains on the whole batch alone. The two must stay the
same, up to rounding.
"""

import argparse
import os
import signal
import socket
import sys

import lightning
import torch


def network() -> torch.nn.Module:
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


class Model(lightning.LightningModule):
    """Trains on this rank's share of the batch, and checks at the end."""

    def __init__(self, args: argparse.Namespace) -> None:
        super().__init__()
        self.args, self.net, self.loss_of = args, network(), torch.nn.MSELoss()
        self.first = self.last = 0.0
        self.worst = float("inf")

    def train_dataloader(self) -> torch.utils.data.DataLoader:
        return torch.utils.data.DataLoader(
            range(self.args.steps * self.trainer.world_size), batch_size=1
        )

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.net.parameters(), lr=0.05)

    def on_train_start(self) -> None:
        rank, size = self.global_rank, self.trainer.world_size
        where = f"{socket.gethostname()}, local rank {self.local_rank}, pid {os.getpid()}"
        print(f"rank {rank} of {size} on {where}", flush=True)
        if self.args.stay:
            stay(rank)
        batches = torch.Generator().manual_seed(2)
        self.inputs = torch.randn(
            size * self.args.share, 16, generator=batches, dtype=torch.double
        ).to(self.device)
        self.targets = torch.sin(self.inputs.sum(dim=1, keepdim=True))
        self.mine = slice(rank * self.args.share, (rank + 1) * self.args.share)

    def training_step(self, batch: torch.Tensor, step: int) -> torch.Tensor:
        if (
            self.args.fail
            and self.global_rank == self.args.fail_rank
            and step == self.args.steps // 2
        ):
            print(f"rank {self.global_rank} fails with {self.args.fail}", flush=True)
            sys.stdout.flush()
            os._exit(self.args.fail)
        loss = self.loss_of(self.net(self.inputs[self.mine]), self.targets[self.mine])
        self.last = self.all_gather(loss.detach()).mean().item()
        self.first = self.last if step == 0 else self.first
        if self.trainer.is_global_zero and step % 5 == 0:
            print(f"step {step} loss {self.last:.6f}", flush=True)
        return loss

    def on_train_end(self) -> None:
        reference = network().to(self.device)
        plain = torch.optim.SGD(reference.parameters(), lr=0.05)
        for _ in range(self.args.steps):
            plain.zero_grad()
            self.loss_of(reference(self.inputs), self.targets).backward()
            plain.step()
        pairs = zip(self.net.parameters(), reference.parameters(), strict=True)
        worst = torch.stack([(one - other).abs().max() for one, other in pairs]).max().detach()
        self.worst = self.all_gather(worst).max().item()
        if self.trainer.is_global_zero:
            print(f"loss {self.first:.6f} -> {self.last:.6f}", flush=True)
            print(
                f"difference to one process: {self.worst:.1e} (allowed {self.args.tolerance:.0e})",
                flush=True,
            )


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

    # torchrun has started the processes: Lightning has to be told of as many, and starts none
    # itself.
    trainer = lightning.Trainer(
        num_nodes=int(os.environ["GROUP_WORLD_SIZE"]),
        devices=int(os.environ["LOCAL_WORLD_SIZE"]),
        strategy="ddp",
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    model = Model(args)
    trainer.fit(model)
    return 0 if model.worst <= args.tolerance and model.last < model.first else 1


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    # at once: on a busy machine gloo's threads may abort a Python that is being taken apart
    os._exit(status)
