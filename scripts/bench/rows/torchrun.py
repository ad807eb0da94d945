"""torchrun started by the toolkit beside torchrun started by hand, in containers of the same
image."""

from __future__ import annotations

from ..engine import Failed, boot, finish, members
from ..figures import Goal
from ..page import About
from ..table import Row, Table

OURS, HAND = "entrypoint", "torchrun by hand"
_SCRIPT = "/bench/torch_rank.py"
_ENV = {"OMP_NUM_THREADS": "1"}


def measure(table: Table) -> None:
    """2 and 8 nodes, one process each."""
    for nodes in table.sizes(2, 8):
        network = table.engine.network()
        for _ in range(table.runs):
            table.take(f"{nodes} nodes", HAND, "s", _by_hand, table, nodes, network)
            table.take(f"{nodes} nodes", OURS, "s", _by_toolkit, table, nodes, network)


def _by_hand(table: Table, nodes: int, network: str) -> float:
    """Each container runs torchrun itself, with the rendezvous c10d, as torch documents it."""
    names = []
    try:
        for rank in range(nodes):
            line = (
                f"--nnodes={nodes} --nproc_per_node=1 --rdzv_id=bench --rdzv_backend=c10d"
                " --rdzv_endpoint=node-0:6060"
                f" --rdzv_conf=is_host={int(rank == 0)},join_timeout=600,read_timeout=600"
                f" --local_addr=node-{rank} --max_restarts=0 {_SCRIPT}"
            )
            options = (
                *members(rank, network),
                "--init",
                "--no-healthcheck",
                "--entrypoint",
                "torchrun",
            )
            names.append(table.engine.create(table.image, *line.split(), options=options, env=_ENV))
        job = finish(names, 200)
        _check(job.out, nodes)
        return job.seconds
    finally:
        table.engine.remove(names)


def _by_toolkit(table: Table, nodes: int, network: str) -> float:
    env = {**_ENV, "ENTRYPOINT_LAUNCHER": "torchrun", "ENTRYPOINT_SLOTS": "1"}
    job = boot(table.engine, table.image, nodes, network, "python3", _SCRIPT, env=env, seconds=200)
    _check(job.out, nodes)
    return job.seconds


def _check(out: str, nodes: int) -> None:
    if f"rank 0 of {nodes}" not in out:
        raise Failed(f"rank 0 was not on worker-0: {out[-200:]}")


ROW = Row(
    About(
        "torchrun", "torchrun",
        "Both: seconds from the last container's start to worker-0's end, by Docker's timestamps, in containers "
        "of the same image. By hand, each container starts torchrun itself, with the rendezvous c10d, as torch documents "
        "it; the toolkit's is static. "
        "The program prints its rank and does not import torch, but torchrun does.",
        (Goal("2 nodes", OURS, HAND, "more", 0.30), Goal("8 nodes", OURS, HAND, "ratio", 1.15)),
    ),
    measure, 5,
)  # fmt: skip
