"""PyTorch's ways to start, as engines of `entrypoint run`: two containers of two processes, one verdict for all."""

from __future__ import annotations

import re
import secrets
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster import until
from tests.containers import IMAGE, TREE, Compose, docker, exit_code, finished_at, logs

TOGETHER = 2.0  # seconds between the first container's end and the last one's
FAILED = 10.0  # seconds from a rank's failure to the last container's end
NAMES = ["worker-0", "worker-1"]
SECRET = secrets.token_hex(32)


def up(compose: Compose, example: str, *command: str) -> dict[str, str]:
    """The example's containers, started: host -> id."""
    compose.render(TREE / f"examples/pytorch-{example}/job.yaml", *command)
    compose.run("up", "-d")
    containers = compose.containers()
    assert list(containers) == NAMES
    return containers


def ended(containers: dict[str, str], seconds: float = 60) -> dict[str, int]:
    """Each container's status; all end by themselves, together, and leave nothing behind."""
    docker("wait", *containers.values(), timeout=seconds)
    ends = [finished_at(each) for each in containers.values()]
    assert max(ends) - min(ends) < TOGETHER, said(containers)
    return {name: exit_code(each) for name, each in containers.items()}


def said(containers: dict[str, str]) -> str:
    return "".join(f"--- {name}\n{logs(each)}" for name, each in containers.items())


def trained_well(containers: dict[str, str], hosts: list[str]) -> None:
    """Every rank where it belongs, the loss falling, and the same as one process's."""
    log = said(containers)
    for node, each in enumerate(containers.values()):
        # Two ranks may write into one line.
        places = re.findall(r"rank (\d) of 4 on (\S+), local rank (\d), pid \d", logs(each))
        assert sorted(places) == [(str(2 * node + local), hosts[node], str(local)) for local in range(2)], log
    difference = re.search(r"difference to one process: (\S+) \(allowed 1e-10\)", log)
    assert difference, log
    assert float(difference[1]) <= 1e-10
    losses = re.search(r"loss (\S+) -> (\S+)", log)
    assert losses, log
    assert float(losses[2]) < 0.7 * float(losses[1])


def time_of(containers: dict[str, str], words: str) -> float:
    """When these words were printed, by the engine's clock."""
    for each in containers.values():
        done = subprocess.run(["docker", "logs", "-t", each], capture_output=True, text=True, check=True)
        found = re.search(rf"^(\S{{19}})(\.\d{{1,6}})\d*Z .*{words}", done.stdout, re.M)
        if found:
            return time.mktime(time.strptime(found[1], "%Y-%m-%dT%H:%M:%S")) - time.timezone + float(found[2])
    raise AssertionError(f"nobody said {words}:\n{said(containers)}")


@pytest.mark.parametrize("example", ["spawn", "torchrun", "torchlaunch"])
def test_two_containers_train_as_one_process_would(compose: Compose, example: str) -> None:
    containers = up(compose, example)
    assert ended(containers) == dict.fromkeys(NAMES, 0), said(containers)
    trained_well(containers, NAMES)
    assert "all 2 nodes are here, 4 slots" in logs(containers["worker-0"])


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
    assert ended(containers) == dict.fromkeys(NAMES, 7), said(containers)
    failed = time_of(containers, f"rank {rank} fails with 7")
    assert max(finished_at(each) for each in containers.values()) - failed < FAILED


def test_sigterm_to_one_container_ends_all_with_143_within_the_grace(compose: Compose) -> None:
    containers = up(compose, "torchrun", "train.py", "--steps", "1000000")
    until(lambda: "step 5 " in logs(containers["worker-0"]), 40, "training")
    asked = time.time()
    docker("kill", "-s", "TERM", containers["worker-1"])
    assert ended(containers) == dict.fromkeys(NAMES, 143), said(containers)
    assert max(finished_at(each) for each in containers.values()) - asked < 10  # the example's grace


Start = Callable[..., dict[str, str]]


@pytest.fixture
def modelarts(network: str) -> Iterator[Start]:
    """Containers with ModelArts' variables and no spec; the code directory is where they start."""
    names: list[str] = []

    def start(example: str, launcher: str, *command: str, secret: bool = True) -> dict[str, str]:
        job = f"ma-job-{network}"
        hosts = [f"{job}-worker-{index}.{job}" for index in range(2)]
        code = "/home/ma-user/modelarts/user-job-dir/code"
        for index, host in enumerate(hosts):
            env = {
                "MA_JOB_DIR": str(Path(code).parent),
                "MA_NUM_HOSTS": "2",
                "MA_NUM_GPUS": "2",
                "MA_TASK_NAME": "worker",
                "MA_VJ_NAME": job,
                "VC_TASK_INDEX": str(index),
                "VC_WORKER_HOSTS": ",".join(hosts),
                "OMP_NUM_THREADS": "1",
                "ENTRYPOINT_LAUNCHER": launcher,
                **({"ENTRYPOINT_SECRET": SECRET} if secret else {}),
            }
            words = [word for name, value in env.items() for word in ("-e", f"{name}={value}")]
            names.append(f"{network}-{index}")
            docker(
                "run", "-d", "--name", names[-1], "--hostname", host.split(".")[0], "--network", network,
                "--network-alias", host, "-v", f"{TREE}/examples/pytorch-{example}:{code}:ro", "-w", code, *words,
                IMAGE, *command,
            )  # fmt: skip
        return dict(zip((host.split(".")[0] for host in hosts), names, strict=True))

    yield start
    docker("rm", "-f", *names, check=False)


def test_mp_spawn_from_modelarts_variables_alone(modelarts: Start) -> None:
    containers = modelarts("spawn", "pytorch", "python", "train.py", "--processes", "2")
    assert ended(containers) == dict.fromkeys(containers, 0), said(containers)
    trained_well(containers, list(containers))


def test_without_a_secret_it_still_trains_and_says_what_that_costs(modelarts: Start) -> None:
    containers = modelarts("torchrun", "torchrun", "train.py", secret=False)
    docker("wait", *containers.values(), timeout=60)
    assert [exit_code(each) for each in containers.values()] == [0, 0], said(containers)
    trained_well(containers, list(containers))
    for each in containers.values():
        assert "no roll call, since no secret was given: each node waits for its peers and ends by itself" in logs(each)


def test_one_card_runs_the_program_as_it_is() -> None:
    code = f"{TREE}/examples/pytorch-single:/code:ro"
    said = docker("run", "--rm", "-v", code, "-w", "/code", IMAGE, "--spec", "job.yaml")
    python = docker("run", "--rm", IMAGE, "python", "-c", "import sys; print(sys.executable)").strip()
    assert f"arguments ['--steps', '20'] in /code by {python}\n" in said
    losses = re.search(r"loss (\S+) -> (\S+)", said)
    assert losses, said
    assert float(losses[2]) < float(losses[1])
