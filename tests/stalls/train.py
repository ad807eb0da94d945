"""A training on two nodes of two ranks, which hangs at step 3 in the way that its argument names."""

from __future__ import annotations

import os
import sys
import threading
import time

import torch
import torch.distributed as dist

HOW = sys.argv[1]
RANK = int(os.environ["RANK"])
CULPRIT = 3
STEP = 3  # at which it happens


class Samples(torch.utils.data.Dataset[int]):
    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> int:
        if HOW == "worker" and RANK == CULPRIT and index == STEP:
            self.fetch()
        return index

    def fetch(self) -> None:
        threading.Event().wait()


def answer_pipe(prefix: str) -> None:
    """Dump torch's own record when somebody writes into the pipe. A thread of NCCL's and of HCCL's
    process groups does this; Gloo's has none, and records the same."""
    pipe = f"{prefix}{RANK}.pipe"
    os.mkfifo(pipe)
    read = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    while True:
        time.sleep(0.2)
        if os.read(read, 128):
            record = torch._C._distributed_c10d._dump_fr_trace()  # type: ignore[attr-defined]
            with open(f"{os.environ['TORCH_FR_DUMP_TEMP_FILE']}{RANK}", "wb") as file:
                file.write(record)


def main() -> None:
    if prefix := os.environ.get("TORCH_NCCL_DEBUG_INFO_PIPE_FILE"):
        threading.Thread(target=answer_pipe, args=(prefix,), daemon=True).start()
    dist.init_process_group("gloo")
    loader = torch.utils.data.DataLoader(
        Samples(), batch_size=None, num_workers=1, prefetch_factor=2
    )
    for step, _ in enumerate(loader):
        if step == STEP and HOW == "order" and RANK == CULPRIT:
            dist.broadcast(torch.ones(1), src=0)
        dist.all_reduce(torch.ones(1))
        print("step", step, flush=True)


if __name__ == "__main__":
    main()
