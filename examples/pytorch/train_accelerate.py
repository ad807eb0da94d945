"""The training of train.py by Accelerate, which has the gradients averaged."""

import os
import sys

import train
from accelerate import Accelerator


def main() -> int:
    args = train.options().parse_args()
    accelerator = Accelerator()
    rank, size = accelerator.process_index, accelerator.num_processes
    train.say_where(rank, size, accelerator.local_process_index)
    if size != int(os.environ["WORLD_SIZE"]):
        print(f"this process trains alone: {accelerator.distributed_type}", file=sys.stderr)
        return 1
    if args.stay:
        train.stay(rank)

    ours = train.model()
    wrapped, optimizer = accelerator.prepare(ours, train.optimizer_of(ours))
    inputs, targets = train.share(args, wrapped)
    for step in range(args.steps):
        train.fail_if_asked(args, rank, step)
        optimizer.zero_grad()
        loss = train.LOSS_OF(wrapped(inputs), targets)
        accelerator.backward(loss)
        optimizer.step()
        train.show(step, loss)
    status = train.check(args, accelerator.unwrap_model(wrapped))
    accelerator.wait_for_everyone()  # nobody leaves while another still talks to it
    accelerator.end_training()
    return status


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    # at once: on a busy machine gloo's threads may abort a Python that is being taken apart
    os._exit(status)
