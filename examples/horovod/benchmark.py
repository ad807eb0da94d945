"""Horovod's synthetic benchmark: images a second, of each rank and in all, with the flags of its
own example.

The models are written out below (resnet18 to resnet152 and a `small` one), so that torch is all it
needs; with torchvision any of its models can be named. Before the clock starts, the gradient that
Horovod averages over all ranks is compared with that of one process. Afterwards all ranks must have
the same weights.
"""

import argparse
import os
import socket
import statistics
import sys
import timeit

import horovod.torch as hvd
import torch
from torch import nn

# blocks in each of the four stages; whether a block is a bottleneck
RESNETS = {
    "resnet18": ((2, 2, 2, 2), False),
    "resnet34": ((3, 4, 6, 3), False),
    "resnet50": ((3, 4, 6, 3), True),
    "resnet101": ((3, 4, 23, 3), True),
    "resnet152": ((3, 8, 36, 3), True),
}


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def convolution(before: int, after: int, size: int, stride: int = 1) -> list[nn.Module]:
    return [nn.Conv2d(before, after, size, stride, size // 2, bias=False), nn.BatchNorm2d(after)]


class Block(nn.Module):
    """Two convolutions, or three with a bottleneck, beside a short cut."""

    def __init__(self, before: int, width: int, stride: int, bottleneck: bool) -> None:
        super().__init__()
        after = 4 * width if bottleneck else width
        if bottleneck:
            path = [
                *convolution(before, width, 1),
                nn.ReLU(),
                *convolution(width, width, 3, stride),
                nn.ReLU(),
            ]
            path += convolution(width, after, 1)
        else:
            path = [
                *convolution(before, width, 3, stride),
                nn.ReLU(),
                *convolution(width, after, 3),
            ]
        self.path = nn.Sequential(*path)
        same = stride == 1 and before == after
        self.short = (
            nn.Identity() if same else nn.Sequential(*convolution(before, after, 1, stride))
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.path(images) + self.short(images))


def resnet(stages: tuple[int, ...], bottleneck: bool) -> nn.Module:
    layers = [*convolution(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    before = 64
    for stage, blocks in enumerate(stages):
        width = 64 * 2**stage
        for block in range(blocks):
            layers.append(Block(before, width, 2 if stage > 0 and block == 0 else 1, bottleneck))
            before = 4 * width if bottleneck else width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, 1000))


def small() -> nn.Module:
    layers = [*convolution(3, 8, 7, 4), nn.ReLU(), *convolution(8, 16, 3, 4), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 1000))


def model_named(name: str) -> nn.Module:
    """The same on every rank: torchvision's where it is installed and has the name."""
    torch.manual_seed(1)
    if name == "small":
        return small()
    try:
        from torchvision import models

        return getattr(models, name)()
    except (ImportError, AttributeError):
        if name not in RESNETS:
            sys.exit(f"no model {name}: without torchvision there are small, {', '.join(RESNETS)}")
        return resnet(*RESNETS[name])


def images(
    rank: int, count: int, size: int, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """One rank's random images and what they are said to show."""
    dice = torch.Generator().manual_seed(rank)
    drawn = (
        torch.randn(count, 3, size, size, generator=dice),
        torch.randint(0, 1000, (count,), generator=dice),
    )
    return drawn[0].to(device), drawn[1].to(device)


def difference_to_one_process(
    model: nn.Module, args: argparse.Namespace, device: torch.device
) -> float:
    """Of the gradients of one image a rank, relative to the greatest. In eval mode no image changes
    others' result."""
    compression = hvd.Compression.fp16 if args.fp16_allreduce else hvd.Compression.none
    model.eval()

    def gradients(shown: torch.Tensor, labels: torch.Tensor) -> list[torch.Tensor]:
        model.zero_grad()
        nn.functional.cross_entropy(model(shown), labels).backward()
        return [weight.grad.clone() for weight in model.parameters()]

    own = gradients(*images(hvd.rank(), 1, args.image_size, device))
    averaged = [hvd.allreduce(each, op=hvd.Average, compression=compression) for each in own]
    everyone = [images(rank, 1, args.image_size, device) for rank in range(hvd.size())]
    whole = gradients(*(torch.cat(each) for each in zip(*everyone, strict=True)))
    model.train()
    model.zero_grad()
    greatest = max(each.abs().max().item() for each in whole)
    return (
        max((one - other).abs().max().item() for one, other in zip(averaged, whole, strict=True))
        / greatest
    )


def main() -> int:
    parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument(
        "--fp16-allreduce", action="store_true", help="use fp16 compression during allreduce"
    )
    parser.add_argument("--model", default="resnet50", help="model to benchmark")
    parser.add_argument("--batch-size", type=int, default=32, help="input batch size")
    parser.add_argument(
        "--num-warmup-batches", type=int, default=10, help="batches that are not benchmarked"
    )
    parser.add_argument(
        "--num-batches-per-iter", type=int, default=10, help="batches per benchmark iteration"
    )
    parser.add_argument("--num-iters", type=int, default=10, help="benchmark iterations")
    parser.add_argument("--no-cuda", action="store_true", help="disables CUDA training")
    parser.add_argument(
        "--use-adasum", action="store_true", help="use adasum algorithm to do reduction"
    )
    parser.add_argument(
        "--image-size", type=int, default=224, help="width and height (not one of Horovod's flags)"
    )
    args = parser.parse_args()

    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    say(
        f"rank {rank} of {size} on {socket.gethostname()}, local rank {hvd.local_rank()}, pid"
        f" {os.getpid()}"
    )
    cuda = torch.cuda.is_available() and not args.no_cuda
    device, kind = (
        (torch.device("cuda", hvd.local_rank()), "GPU") if cuda else (torch.device("cpu"), "CPU")
    )
    if cuda:
        torch.cuda.set_device(device)
        torch.backends.cudnn.benchmark = True

    model = model_named(args.model).to(device)
    apart, allowed = 0.0, 2e-2 if args.fp16_allreduce else 1e-4
    if not args.use_adasum:  # which is no average
        apart = difference_to_one_process(model, args, device)
        apart = hvd.allreduce(torch.tensor(apart), op=hvd.Max).item()
        if rank == 0:
            say(f"gradient difference to one process: {apart:.1e} (allowed {allowed:.0e})")

    # Horovod's rule: the learning rate grows with the batch, and Adasum needs none of that.
    scale = size
    if args.use_adasum:
        scale = hvd.local_size() if cuda and hvd.nccl_built() else 1
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.01 * scale),
        named_parameters=model.named_parameters(),
        compression=hvd.Compression.fp16 if args.fp16_allreduce else hvd.Compression.none,
        op=hvd.Adasum if args.use_adasum else hvd.Average,
    )
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    data, target = images(rank, args.batch_size, args.image_size, device)

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(data), target).backward()
        optimizer.step()

    if rank == 0:
        say(
            f"Model: {args.model}\nBatch size: {args.batch_size}\nNumber of {kind}s:"
            f" {size}\nRunning warmup..."
        )
    timeit.timeit(step, number=args.num_warmup_batches)
    if rank == 0:
        say("Running benchmark...")
    speeds = []
    for number in range(args.num_iters):
        seconds = timeit.timeit(step, number=args.num_batches_per_iter)
        speeds.append(args.batch_size * args.num_batches_per_iter / seconds)
        if rank == 0:
            say(f"Iter #{number}: {speeds[-1]:.1f} img/sec per {kind}")

    # Every rank has its own speed and the ranks' sum is what the job does.
    everyone = hvd.allgather(torch.tensor([speeds]))
    if rank == 0:
        for each, measured in enumerate(everyone.tolist()):
            say(f"rank {each}: {with_spread(measured)} img/sec")
        say(f"Img/sec per {kind}: {with_spread(everyone.flatten().tolist())}")
        say(f"Total img/sec on {size} {kind}(s): {with_spread(everyone.sum(dim=0).tolist())}")

    weights = torch.cat([weight.detach().flatten() for weight in model.parameters()])
    first = hvd.broadcast(weights, root_rank=0)
    drifted = hvd.allreduce((weights - first).abs().max(), op=hvd.Max).item()
    if rank == 0:
        say(f"weights differ between ranks by {drifted:.1e} (allowed 0)")
    return 0 if drifted == 0 and apart <= allowed else 1


def with_spread(values: list[float]) -> str:
    """Mean and the half width of the interval that holds 95 of 100 values."""
    return f"{statistics.fmean(values):.1f} +-{1.96 * statistics.pstdev(values):.1f}"


if __name__ == "__main__":
    sys.exit(main())
