"""The training of train.py by DeepSpeed, in 32 bits: ZeRO keeps a part of the gradients and of the
optimizer's state on each rank."""

import os
import sys

import deepspeed
import torch.distributed as dist
import train

# On CPUs DeepSpeed compiles an operator of inference at its first start, with a compiler that an
# image need not have.
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False


def main() -> int:
    parser = train.options()
    parser.set_defaults(tolerance=1e-5)
    args = parser.parse_args()
    deepspeed.init_distributed()
    rank, size = dist.get_rank(), dist.get_world_size()
    train.say_where(rank, size, args.local_rank)
    if args.stay:
        train.stay(rank)

    ours = train.model().float()
    inputs, targets = train.share(args, ours)
    settings = {
        "train_micro_batch_size_per_gpu": len(inputs),
        "zero_optimization": {"stage": 2},
        "zero_allow_untested_optimizer": True,
        "gradient_clipping": 0.0,  # else gradients of a norm above 1 are shortened
    }
    engine, *_ = deepspeed.initialize(
        model=ours, optimizer=train.optimizer_of(ours), config=settings
    )
    inputs, targets = inputs.to(engine.device), targets.to(engine.device)
    for step in range(args.steps):
        train.fail_if_asked(args, rank, step)
        loss = train.LOSS_OF(engine(inputs), targets)
        engine.backward(loss)
        engine.step()
        train.show(step, loss)
    status = train.check(args, engine.module)
    dist.barrier()  # nobody leaves while another still talks to it
    dist.destroy_process_group()
    return status


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    # at once: on a busy machine gloo's threads may abort a Python that is being taken apart
    os._exit(status)
