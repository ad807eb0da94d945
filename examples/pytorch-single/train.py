"""Training on one card, or on the CPU; the loss must fall."""

import argparse
import os
import sys

import torch


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--samples", type=int, default=32)
    parser.add_argument(
        "--fail", type=int, default=0, help="exit status to end with after half the steps"
    )
    args = parser.parse_args()
    print(f"arguments {sys.argv[1:]} in {os.getcwd()} by {sys.executable}", flush=True)

    torch.manual_seed(1)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = torch.nn.Sequential(
        torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1)
    ).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    inputs = torch.randn(args.samples, 16).to(device)
    targets = torch.sin(inputs.sum(dim=1, keepdim=True))

    first, last = None, 0.0
    for step in range(args.steps):
        if args.fail and step == args.steps // 2:
            return args.fail
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        last = loss.item()
        first = last if first is None else first
        if step % 5 == 0:
            print(f"step {step} loss {last:.6f}", flush=True)
    print(f"loss {first:.6f} -> {last:.6f}", flush=True)
    return 0 if first is not None and last < first else 1


if __name__ == "__main__":
    sys.exit(main())
