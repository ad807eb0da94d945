"""The training of train.py by Lightning, which has DDP average the gradients."""

import argparse
import os
import sys

import lightning
import torch
import train


class Model(lightning.LightningModule):
    """Trains on this rank's share of the batch, and checks at the end."""

    def __init__(self, args: argparse.Namespace) -> None:
        super().__init__()
        self.args = args
        self.net = train.model()
        self.status = 1

    def train_dataloader(self) -> torch.utils.data.DataLoader:
        steps = range(self.args.steps * self.trainer.world_size)
        return torch.utils.data.DataLoader(steps, batch_size=1)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return train.optimizer_of(self.net)

    def on_train_start(self) -> None:
        train.say_where(self.global_rank, self.trainer.world_size, self.local_rank)
        if self.args.stay:
            train.stay(self.global_rank)
        inputs, targets = train.share(self.args, self.net)
        self.inputs = inputs
        self.targets = targets

    def training_step(self, batch: torch.Tensor, step: int) -> torch.Tensor:
        train.fail_if_asked(self.args, self.global_rank, step)
        loss = train.LOSS_OF(self.net(self.inputs), self.targets)
        train.show(step, loss)
        return loss

    def on_train_end(self) -> None:
        self.status = train.check(self.args, self.net)


def main() -> int:
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
    trained = Model(train.options().parse_args())
    trainer.fit(trained)
    return trained.status


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    # at once: on a busy machine gloo's threads may abort a Python that is being taken apart
    os._exit(status)
