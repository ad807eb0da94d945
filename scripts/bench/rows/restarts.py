"""From the loss of a rank or a container until every rank runs again, beside a start by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from ..again import Job, TorchByHand, by_mpirun, limit, marks
from ..engine import bare
from ..figures import Goal
from ..page import About
from ..table import FAILURES, Row, Table, words

HAND, RANK, CONTAINER = "a start by hand", "a rank is killed", "a container is killed"
ENGINE = "the engine's own start"
KNOWN, SPARE = "until the loss is known", "a container is lost, with a spare"
LAUNCHERS = ("mpirun", "torchrun")


def measure(table: Table) -> None:
    """4 and 16 nodes under both launchers: by hand, a rank is killed, a container is killed, in
    turn."""
    for launcher, nodes, case in _cases(table):
        with by_hand(table, launcher, nodes) as hand, ExitStack() as stack:
            try:
                place = stack.enter_context(marks())
                job = Job(table, launcher, nodes, place)
                stack.callback(job.close)
                job.start()
            except FAILURES as error:
                table.add(case, RANK, "s", words(error))
                continue
            for _ in range(table.runs):
                table.take(case, HAND, "s", hand)
                table.take(case, RANK, "s", job.lose_rank)
                table.take_all(case, {ENGINE: "s", CONTAINER: "s"}, _container, job)


def measure_spare(table: Table) -> None:
    """The same with one node more: each run is a job of its own, since its spare is used up."""
    for launcher, nodes, case in _cases(table):
        with by_hand(table, launcher, nodes) as hand:
            for _ in range(table.runs):
                table.take(case, HAND, "s", hand)
                table.take_all(case, {KNOWN: "s", SPARE: "s"}, _spare, table, launcher, nodes)


def _cases(table: Table) -> Iterator[tuple[str, int, str]]:
    for nodes in table.sizes(4, 16):
        for launcher in LAUNCHERS:
            yield launcher, nodes, f"{nodes} nodes, {launcher}"


@contextmanager
def by_hand(table: Table, launcher: str, nodes: int) -> Iterator[Callable[[], float]]:
    """What starts a job by hand in containers of the same image, which are up already."""
    if launcher == "mpirun":
        with bare(table.engine, table.image, nodes) as floor:
            yield lambda: by_mpirun(floor, limit(nodes))
        return
    with marks() as place:
        hand = TorchByHand(table, nodes, place)
        try:
            yield hand.run
        finally:
            hand.close()


def _container(job: Job) -> dict[str, float]:
    engine, rest = job.lose_container()
    return {ENGINE: engine, CONTAINER: rest}


def _spare(table: Table, launcher: str, nodes: int) -> dict[str, float]:
    with marks() as place:
        job = Job(table, launcher, nodes, place, spares=1)
        try:
            job.start()
            known, rest = job.lose_node()
        finally:
            job.close()
    return {KNOWN: known, SPARE: rest}


_HOW = (
    "By hand: seconds from the start of the launcher until the last rank's first statement, in"
    " containers of the same image that are up already. mpirun logs in with ssh, as in the row of"
    " the boot; torchrun starts in all containers at the same time, with the rendezvous"
    " c10d, as torch documents it, or static on 16 nodes; the toolkit's is static. Ranks print when they start; under torchrun they do not import torch, but"
    " torchrun does."
)

ROW = Row(
    About(
        "restarts", "Restart in place",
        f"{_HOW} The toolkit's job has `restarts`. A rank is killed: seconds from the SIGKILL of the last node's rank "
        "until every rank runs again. A container is killed: SIGKILL of its first process; the engine restarts it, "
        "which takes the seconds of \"the engine's own start\", by Docker's timestamps; the rest is from there until "
        "every rank runs again. Unlike the start by hand, this includes the end of the launchers that still run; all "
        "nodes share the cores of one machine, which torch's imports keep busy.",
        (
            *(Goal(f"{nodes} nodes, mpirun", way, "", "value", most)
              for nodes, most in ((4, 0.8), (16, 1.5)) for way in (RANK, CONTAINER)),
            *(Goal(f"{nodes} nodes, torchrun", way, HAND, "ratio", 1.15)
              for nodes in (4, 16) for way in (RANK, CONTAINER)),
        ),
    ),
    measure, 5,
)  # fmt: skip
SPARE_ROW = Row(
    About(
        "spare", "Restart with a spare",
        "As for the restart in place, with one node more than ranks need. The last worker's container is killed, and "
        "nobody restarts it. \"Until the loss is known\" ends with worker-0's line about it, by the engine's clock; "
        "the rest is from there until every rank runs again, one of them on the spare.",
        (
            Goal("4 nodes, mpirun", SPARE, "", "value", 1.0),
            Goal("4 nodes, torchrun", SPARE, HAND, "ratio", 1.15),
        ),
    ),
    measure_spare, 3,
)  # fmt: skip
