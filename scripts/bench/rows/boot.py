"""The whole boot, the first rank and the end, compared with bare mpirun, also with many ranks on a
node; the boot compared with torchrun by hand; nodes that call in; and a restart."""

from __future__ import annotations

from collections import Counter

from ..engine import Bare, Failed, Job, Tree, bare, create_job, finish, job_env, members
from ..figures import Goal
from ..table import Row, Table

BARE = "bare mpirun"
LIST = "with a list of hosts"
HAND, STATIC = "torchrun by hand", "torchrun by hand, static"
FIRST, END, LAST = "first rank", "end", "last node's end"
_SCRIPT = "/bench/rank.py"
# the rendezvous of torchrun by hand
_C10D = (
    "--rdzv_id=bench --rdzv_backend=c10d --rdzv_endpoint=node-0:6060"
    " --rdzv_conf=is_host={first},join_timeout=600,read_timeout=600"
)
_STATIC = "--rdzv_backend=static --node_rank={rank} --master_addr=node-0 --master_port=6060"


def boot(table: Table) -> None:
    """2, 8 and 16 nodes with one rank each, all ways in turn."""
    for nodes in table.sizes(2, 8, 16):
        _compare(table, f"{nodes} nodes", nodes)


def many_ranks(table: Table) -> None:
    """64 ranks on each of 2 nodes."""
    slots = 4 if table.quick else 64
    _compare(table, f"2 nodes with {slots} ranks each", 2, slots)


def _compare(table: Table, case: str, nodes: int, slots: int = 1) -> None:
    network = table.engine.network()
    units = dict.fromkeys((case, *(f"{case}: {part}" for part in (FIRST, END, LAST))), "s")

    def by_hand(floor: Bare) -> tuple[float, ...]:
        return _parts(floor.run(f"python3 {_SCRIPT}", slots), nodes, slots)

    def by_toolkit(tree: Tree) -> tuple[float, ...]:
        return _parts(_job(table, tree, nodes, network, slots), nodes, slots)

    with bare(table.engine, table.trees[0].image, nodes) as floor:
        for _ in range(table.runs):
            table.take(units, BARE, by_hand, floor)
            for tree in table.trees:
                table.take(units, tree.way, by_toolkit, tree)


def _job(
    table: Table, tree: Tree, nodes: int, network: str, slots: int = 1, launcher: str = "mpirun",
    **more: str,
) -> Job:  # fmt: skip
    env = job_env(launcher, slots, **more)
    words = (tree.image, nodes, network, "python3", _SCRIPT)
    return finish(table.engine, create_job(table.engine, *words, env=env))


def _parts(job: Job, nodes: int, slots: int) -> tuple[float, ...]:
    """Return the seconds of the whole, until the first rank, and from the last one to worker-0's
    end and to the last node's."""
    ranks = _ranks(job.out, nodes, slots)
    last = max(ranks)
    return job.ended - job.begun, min(ranks) - job.begun, job.ended - last, job.over - last


def _ranks(out: str, nodes: int, slots: int = 1) -> list[float]:
    """Return the times that ranks have printed. Raises Failed unless each node has its ranks."""
    lines = [line.split() for line in out.splitlines() if line.startswith("node-")]
    seen = Counter(node for node, _ in lines)
    if seen != {f"node-{rank}": slots for rank in range(nodes)}:
        raise Failed(f"ranks were not where they belong: {dict(seen)}")
    return [float(at) for _, at in lines]


def call_in(table: Table) -> None:
    """2, 8 and 16 nodes that know worker-0's name alone, and the same with a list, in turn."""
    for nodes in table.sizes(2, 8, 16):
        network, units = table.engine.network(), {f"{nodes} nodes": "s"}
        called = {"HOSTS": "call-in=node-0", "NODES": str(nodes)}
        for _ in range(table.runs):
            for way, more in ((LIST, {}), (table.trees[0].way, called)):
                table.take(units, way, _boot, table, nodes, network, more)


def _boot(table: Table, nodes: int, network: str, more: dict[str, str]) -> tuple[float, ...]:
    job = _job(table, table.trees[0], nodes, network, 1, "mpirun", **more)
    return _parts(job, nodes, 1)[:1]


def torchrun(table: Table) -> None:
    """2, 8 and 16 nodes with one process each, all ways in turn."""
    for nodes in table.sizes(2, 8, 16):
        network, units = table.engine.network(), {f"{nodes} nodes": "s"}
        for _ in range(table.runs):
            for way, meet in ((HAND, _C10D), (STATIC, _STATIC)):
                table.take(units, way, _torchrun_by_hand, table, nodes, network, meet)
            for tree in table.trees:
                table.take(units, tree.way, _torchrun_by_toolkit, table, tree, nodes, network)


def _torchrun_by_hand(table: Table, nodes: int, network: str, meet: str) -> tuple[float, ...]:
    """Each container runs torchrun itself, as torch documents it."""
    names = []
    for rank in range(nodes):
        line = (
            f"--nnodes={nodes} --nproc_per_node=1 {meet.format(rank=rank, first=int(rank == 0))}"
            f" --local_addr=node-{rank} --max_restarts=0 {_SCRIPT}"
        )
        own = ("--init", "--no-healthcheck", "--entrypoint", "torchrun")
        image, options = table.trees[0].image, (*members(rank, network), *own)
        names.append(table.engine.create(image, *line.split(), options=options, env=job_env()))
    job = finish(table.engine, names)
    return _parts(job, 1, 1)[:1]  # torchrun prints its own node's lines alone


def _torchrun_by_toolkit(table: Table, tree: Tree, nodes: int, network: str) -> tuple[float, ...]:
    return _parts(_job(table, tree, nodes, network, launcher="torchrun"), 1, 1)[:1]


def restart(table: Table) -> None:
    """4 and 16 nodes: from the death of a rank until every rank runs again; 4 nodes and a spare:
    from SIGTERM to a worker until every rank runs on the others."""
    for nodes in table.sizes(4, 16):
        network, units = table.engine.network(), {f"{nodes} nodes, a rank is killed": "s"}
        for _ in range(table.runs):
            for tree in table.trees:
                table.take(units, tree.way, _restarted, table, tree, nodes, network)
    network, units = table.engine.network(), {"4 nodes and a spare, one leaves": "s"}
    for _ in range(table.runs):
        table.take(units, table.trees[0].way, _left, table, table.trees[0], 4, network)


def _restarted(table: Table, tree: Tree, nodes: int, network: str) -> tuple[float, ...]:
    env = job_env(RESTARTS="1", RESTARTS_ON="any")
    words = (tree.image, nodes, network, "python3", _SCRIPT, f"node-{nodes - 1}")
    job = finish(table.engine, create_job(table.engine, *words, env=env))
    _, killed, after = job.out.partition("killed ")
    if not killed:
        raise Failed("no rank was killed")
    at, _, again = after.partition("\n")
    return (max(_ranks(again, nodes)) - float(at),)


def _left(table: Table, tree: Tree, nodes: int, network: str) -> tuple[float, ...]:
    env, last = job_env(RESTARTS="1", SPARES="1"), f"node-{nodes - 1}"
    words = (tree.image, nodes + 1, network, "python3", _SCRIPT, last, "leaves")
    job = finish(table.engine, create_job(table.engine, *words, env=env), ends=(0, 143))
    at, _, again = job.out.partition("killed ")[2].partition("\n")
    # the spare has the place of the node that has left
    return (max(_ranks(again.replace(f"node-{nodes} ", f"{last} "), nodes)) - float(at),)


BOOT = Row(
    "boot", boot, 7,
    (
        Goal("2 nodes", "added", 0.30, BARE),
        Goal("8 nodes", "ratio", 1.2, BARE),
        Goal("16 nodes", "ratio", 1.0, BARE),
        Goal(f"16 nodes: {END}", "value", 0.25),
    ),
    quick=5,
)  # fmt: skip
CALL_IN = Row(
    "call-in", call_in, 7,
    tuple(Goal(f"{nodes} nodes", "added", 0.2, LIST) for nodes in (2, 8, 16)),
)  # fmt: skip
TORCHRUN = Row(
    "torchrun", torchrun, 3,
    (
        Goal("2 nodes", "added", 0.30, HAND),
        *(Goal(f"{nodes} nodes", "ratio", 0.8, HAND) for nodes in (8, 16)),
        *(Goal(f"{nodes} nodes", "ratio", 1.0, STATIC) for nodes in (8, 16)),
    ),
)  # fmt: skip
RANKS = Row(
    "ranks", many_ranks, 12, (Goal("2 nodes with 64 ranks each", "ratio", 1.2, BARE),),
)  # fmt: skip
RESTART = Row(
    "restart", restart, 5,
    (
        Goal("4 nodes, a rank is killed", "value", 0.8),
        Goal("16 nodes, a rank is killed", "value", 1.0),
        Goal("4 nodes and a spare, one leaves", "value", 1.5),
    ),
)  # fmt: skip
