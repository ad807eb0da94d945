# Rendered by entrypoint {{ version | comment }}.
#
#   python all_reduce.py RANK NODES HOST PORT SECONDS
#
# One process on each node: all-reduces of growing size for at most SECONDS, by the library that
# training would use. On rank 0, PORT 0 takes a free one, which the first line on stdout tells; the
# others follow it, a JSON object each.
import json
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist

rank = int(sys.argv[1])
nodes = int(sys.argv[2])
host = sys.argv[3]
port = int(sys.argv[4])
seconds = float(sys.argv[5])
limit, end = timedelta(seconds=seconds), time.monotonic() + seconds
AT_MOST, EACH = 50, 0.3  # repetitions of a size, and the seconds that they should take


def tell(**what):
    if rank == 0:
        print(json.dumps(what), flush=True)


def own_backend():
    if torch.cuda.is_available() and dist.is_nccl_available():
        return "nccl"
    try:
        import torch_npu  # noqa: F401

        if torch.npu.is_available():
            return "hccl"
    except ImportError:
        pass
    return "gloo"


store = dist.TCPStore(host, port, nodes, rank == 0, limit, wait_for_workers=False)
tell(port=store.port)
store.set(f"backend/{rank}", own_backend())
backends = {store.get(f"backend/{each}").decode() for each in range(nodes)}
backend = backends.pop() if len(backends) == 1 else "gloo"  # all must have the same
device = {"nccl": "cuda:0", "hccl": "npu:0"}.get(backend, "cpu")
if device != "cpu":
    getattr(torch, device[:-2]).set_device(0)
dist.init_process_group(
    backend, store=dist.PrefixStore("netcheck", store), rank=rank, world_size=nodes, timeout=limit
)
tell(backend=backend)


def took(data, count):
    """Seconds of one all-reduce, of so many."""
    begun = time.perf_counter()
    for _ in range(count):
        dist.all_reduce(data)
    if device != "cpu":
        getattr(torch, device[:-2]).synchronize()
    return (time.perf_counter() - begun) / count


for power in range(10, 23, 2):  # 1 KiB to 4 MiB
    data = torch.zeros((1 << power) // 4, device=device)
    took(data, 2)  # the first ones make connections
    one = took(data, 1)
    count = max(1, min(AT_MOST, int(EACH / one)))
    over = time.monotonic() + 2 * one * count > end
    told = torch.tensor([0 if over else count], device=device)  # rank 0 decides for all
    dist.broadcast(told, 0)
    if not (count := int(told.item())):
        tell(early="its time was over")
        break
    tell(size=1 << power, seconds=took(data, count))
dist.destroy_process_group()
