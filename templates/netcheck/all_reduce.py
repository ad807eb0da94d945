# Rendered by entrypoint {{ version | comment }}.
#
#   python all_reduce.py SECONDS
#
# One process on each node, which reduces with others by the library that training would use. Each
# line of stdin is a question, each line of stdout an answer, as in
# entrypoint/features/netcheck/messages.py.
import json
import os
import statistics
import sys
import time
from datetime import timedelta

PATIENCE = timedelta(seconds=float(sys.argv[1]))  # for a group to meet, and for each operation
TRIPS, TRIPS_SECONDS = 200, 1.0  # small all-reduces, and the time for them
WARM = 3  # operations that do not count: the first ones make connections
SMALLEST, LARGEST = 1 << 20, 1 << 28  # bytes, for the bandwidth

answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # what libraries print is no answer


def answer(kind, **fields):
    print(json.dumps({"kind": kind, **fields}), file=answers, flush=True)


def unable(error):
    lines = str(error).strip().splitlines() or [""]
    answer("Unable", why=f"{type(error).__name__}: {lines[0]}"[:300])


try:
    import torch
    import torch.distributed as dist
except ImportError as error:
    unable(error)
    sys.exit(1)


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


def measure(rank, nodes, device, seconds):
    """Milliseconds of a small all-reduce, the median and the worst; Gbit/s of bus bandwidth."""

    def took(data):
        begun = time.perf_counter()
        dist.all_reduce(data)
        if device != "cpu":
            getattr(torch, device.partition(":")[0]).synchronize()
        return time.perf_counter() - begun

    def agreed(number):
        """Return the number of rank 0."""
        data = torch.tensor([number if rank == 0 else 0], dtype=torch.int64, device=device)
        dist.all_reduce(data)
        return int(data.item())

    small = torch.zeros(2, device=device)
    first = [took(small) for _ in range(WARM)][-1]
    trips = [took(small) for _ in range(agreed(min(TRIPS, 2 + int(TRIPS_SECONDS / first))))]
    size, best, until = SMALLEST, 0.0, time.monotonic() + seconds
    while size <= LARGEST and agreed(not best or time.monotonic() < until):
        # as nccl-tests counts it, doc/PERFORMANCE.md: busbw = algbw * 2 * (n - 1) / n
        bits = 8 * size * 2 * (nodes - 1) / nodes
        best = max(best, bits / 1e9 / took(torch.zeros(size // 4, device=device)))
        size *= 2
    return {
        "latency_ms": statistics.median(trips) * 1e3,
        "worst_ms": max(trips) * 1e3,
        "gbps": best,
    }


def reduce(store, rank, nodes, host, port, backend, seconds):
    device = {"nccl": "cuda:0", "hccl": "npu:0"}.get(backend, "cpu")
    if device != "cpu":
        getattr(torch, device.partition(":")[0]).set_device(0)
    if rank:
        store = dist.TCPStore(host, port, nodes, False, PATIENCE)
    meeting = {"store": store, "rank": rank, "world_size": nodes, "timeout": PATIENCE}
    dist.init_process_group(backend, **meeting)
    try:
        return measure(rank, nodes, device, seconds)
    finally:
        dist.destroy_process_group()


answer("Ready", backend=own_backend())
store = None
for line in sys.stdin:
    question = json.loads(line)
    try:
        if question.pop("kind") == "Serve":
            store = dist.TCPStore("localhost", 0, None, True, PATIENCE, wait_for_workers=False)
            answer("Serving", port=store.port)
        else:
            answer("Figures", **reduce(store, **question))
    except Exception as error:
        unable(error)
