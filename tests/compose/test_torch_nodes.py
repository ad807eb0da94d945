"""PyTorch's ways to start, as engines of `entrypoint run`: two containers of two processes, one
verdict for all."""

from __future__ import annotations

import re
import time

import pytest

from tests import TREE
from tests.cluster import until
from tests.composed import Compose
from tests.containers import IMAGE, container, docker, finished_at, logs
from tests.modelarts import ModelArts
from tests.rows import ended, said

FAILED = 10.0  # seconds from a rank's failure to the last container's end
NAMES = ["worker-0", "worker-1"]


def up(compose: Compose, example: str, *command: str) -> dict[str, str]:
    """The example's containers, started: host -> id."""
    compose.render(TREE / f"examples/pytorch-{example}/job.yaml", *command)
    compose.run("up", "-d")
    containers = compose.containers()
    assert list(containers) == NAMES
    return containers


def trained_well(containers: dict[str, str], hosts: list[str]) -> None:
    """Every rank where it belongs, the loss falling, and the same as one process's."""
    log = said(containers)
    for node, each in enumerate(containers.values()):
        # Two ranks may write into one line.
        places = re.findall(r"rank (\d) of 4 on (\S+), local rank (\d), pid \d", logs(each))
        assert sorted(places) == [
            (str(2 * node + local), hosts[node], str(local)) for local in range(2)
        ], log
    difference = re.search(r"difference to one process: (\S+) \(allowed 1e-10\)", log)
    assert difference, log
    assert float(difference[1]) <= 1e-10
    losses = re.search(r"loss (\S+) -> (\S+)", log)
    assert losses, log
    assert float(losses[2]) < 0.7 * float(losses[1])


def time_of(containers: dict[str, str], words: str) -> float:
    """When these words were printed, by the engine's clock."""
    for each in containers.values():
        log = container(each).logs(timestamps=True).decode()
        found = re.search(rf"^(\S{{19}})(\.\d{{1,6}})\d*Z .*{words}", log, re.M)
        if found:
            return (
                time.mktime(time.strptime(found[1], "%Y-%m-%dT%H:%M:%S"))
                - time.timezone
                + float(found[2])
            )
    raise AssertionError(f"nobody said {words}:\n{said(containers)}")


@pytest.mark.parametrize("example", ["spawn", "torchrun", "torchlaunch"])
def test_two_containers_train_as_one_process_would(compose: Compose, example: str) -> None:
    containers = up(compose, example)
    assert ended(containers, 60) == dict.fromkeys(NAMES, 0), said(containers)
    trained_well(containers, NAMES)
    assert "all 2 nodes are here, 4 slots" in logs(containers["worker-0"])
    for each in containers.values():
        paths = [change["Path"] for change in container(each).diff()]
        left = [path for path in paths if path.startswith("/tmp/")]
        # The compiler's cache is the program's own doing: an optimizer imports it.
        assert [path for path in left if "/torchinductor_" not in path] == [
            "/tmp/entrypoint-1000-36666-state.json"
        ]


@pytest.mark.parametrize(
    ("example", "command", "rank"),
    [
        ("spawn", ("python", "train.py", "--processes", "2"), 0),
        ("torchrun", ("train.py",), 3),  # which is not on the node where all meet
    ],
)
def test_a_rank_that_fails_ends_every_container_soon(
    compose: Compose, example: str, command: tuple[str, ...], rank: int
) -> None:
    containers = up(compose, example, *command, "--fail", "7", "--fail-rank", str(rank))
    assert ended(containers, 60) == dict.fromkeys(NAMES, 7), said(containers)
    if example == "torchrun":
        told = logs(containers["worker-0"])
        assert re.search(
            r"last \d+ lines? of rank 3 on worker-1:\n.*  \| rank 3 fails with 7\n", told, re.S
        ), told
        assert told.rstrip().endswith("EP600 rank 3 on worker-1 exited with 7; exit 7"), told
    failed = time_of(containers, f"rank {rank} fails with 7")
    assert max(finished_at(each) for each in containers.values()) - failed < FAILED


def test_sigterm_to_one_container_ends_all_with_143_within_the_grace(compose: Compose) -> None:
    containers = up(compose, "torchrun", "train.py", "--steps", "1000000")
    until(lambda: "step 5 " in logs(containers["worker-0"]), 40, "training")
    asked = time.time()
    container(containers["worker-1"]).kill("TERM")
    assert ended(containers, 60) == dict.fromkeys(NAMES, 143), said(containers)
    # the example's grace
    assert max(finished_at(each) for each in containers.values()) - asked < 10


def test_mp_spawn_from_modelarts_variables_alone(modelarts: ModelArts) -> None:
    train = ("python", "train.py", "--processes", "2")
    containers = modelarts.start(
        IMAGE, "pytorch-spawn", *train, env={"ENTRYPOINT_LAUNCHER": "pytorch"}
    )
    assert ended(containers, 60) == dict.fromkeys(containers, 0), said(containers)
    trained_well(containers, list(containers))


def test_without_a_secret_it_trains_where_that_was_asked_for_and_says_what_that_costs(
    modelarts: ModelArts,
) -> None:
    env = {
        "ENTRYPOINT_LAUNCHER": "torchrun",
        "ENTRYPOINT_SECRET": "",
        "ENTRYPOINT_ROLL_CALL": "none",
    }
    containers = modelarts.start(IMAGE, "pytorch-torchrun", "train.py", env=env)
    # Each by itself, so not together.
    assert ended(containers, 60, together=60) == dict.fromkeys(containers, 0), said(containers)
    trained_well(containers, list(containers))
    for each in containers.values():
        assert (
            "warning: EP506 no roll call, roll_call: none (env ENTRYPOINT_ROLL_CALL) | nobody sees "
            in logs(each)
        )


def test_without_a_secret_nothing_starts(modelarts: ModelArts) -> None:
    env = {"ENTRYPOINT_LAUNCHER": "torchrun", "ENTRYPOINT_SECRET": ""}
    containers = modelarts.start(IMAGE, "pytorch-torchrun", "train.py", env=env)
    assert ended(containers, 60, together=60) == dict.fromkeys(containers, 78), said(containers)
    for each in containers.values():
        assert "EP300 " in logs(each)
        assert " | add ENTRYPOINT_SECRET to the job's variables " in logs(each)


def test_one_card_runs_the_program_as_it_is() -> None:
    code = f"{TREE}/examples/pytorch-single:/code:ro"
    printed = docker("run", "--rm", "-v", code, "-w", "/code", IMAGE, "--spec", "job.yaml")
    python = docker(
        "run", "--rm", IMAGE, "python", "-c", "import sys; print(sys.executable)"
    ).strip()
    assert f"arguments ['--steps', '20'] in /code by {python}\n" in printed
    losses = re.search(r"loss (\S+) -> (\S+)", printed)
    assert losses, printed
    assert float(losses[2]) < float(losses[1])
