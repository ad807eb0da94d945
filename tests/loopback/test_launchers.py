"""JAX, Accelerate, DeepSpeed and Lightning on nodes of this machine, each by its launcher: two
nodes of two processes.

The quick tests need none of them. The others run the examples with the Python that --with
libraries=... names (scripts/dev/python-with makes it). What has to hold in images is in
tests/engines/test_launchers.py.
"""

from __future__ import annotations

import re
import shutil
import signal
from collections.abc import Callable
from shlex import split

import pytest

from tests import TREE
from tests.cluster import Cluster, Make, free_port
from tests.waits import until

SLOW = pytest.mark.slow
SAVES = "trap 'sleep 0.5; echo saved; exit 0' TERM; echo up; while :; do sleep 0.05; done"
DEEPSPEED = str(TREE / "examples/pytorch/train_deepspeed.py")
JAX = str(TREE / "examples/jax/train.py")
# The example, and its launcher.
EXAMPLES = pytest.mark.parametrize(
    ("example", "launcher"),
    [
        pytest.param(JAX, "jax", id="jax"),
        pytest.param(
            str(TREE / "examples/pytorch/train_accelerate.py"), "accelerate", id="accelerate"
        ),
        pytest.param(DEEPSPEED, "deepspeed", id="deepspeed"),
        pytest.param(str(TREE / "examples/pytorch/train_lightning.py"), "torchrun", id="lightning"),
    ],
)


@pytest.fixture
def launcher_python(python_with: Callable[[str], str]) -> str:
    return python_with("libraries")


def start(job: Cluster, launcher: str, *program: str, **more: str) -> None:
    ports = {"ENTRYPOINT_PORT": str(free_port())}
    env = {**ports, "OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu", "JAX_PLATFORMS": "cpu", **more}
    job.start_all(*program, env=env, launcher=launcher)


# --------------------------------------------------------------------------------------------------
# Without the library


def test_the_first_process_of_jax_that_fails_ends_all(cluster: Make) -> None:
    job = cluster(2)
    others_are_up = 'until [ "$(ls up-* 2>/dev/null | wc -l)" = 3 ]; do sleep 0.05; done'
    fails = f"[ $JAX_PROCESS_ID = 3 ] && {{ {others_are_up}; echo why >&2; exit 7; }}"
    saves = SAVES.replace("echo up", "echo up; touch up-$JAX_PROCESS_ID")
    start(job, "jax", "sh", "-c", f"{fails}; {saves}")
    assert job.ends() == {0: 7, 1: 7}, job.both()
    assert (job.out(0) + job.out(1)).count("saved") == 3, job.both()
    assert "last 1 line of rank 3 on worker-1 (node-1):\n" in job.err(0), job.both()
    last = "EP600 rank 3 on worker-1 (node-1) exited with 7; exit 7\n"
    assert all(job.err(node).endswith(last) for node in range(2)), job.both()
    assert job.survivors() == []


# --------------------------------------------------------------------------------------------------
# With it


@pytest.mark.promise(
    "jax, accelerate, deepspeed and lightning share status and pass on SIGTERM",
    control="the same examples end with 0 in engines/test_launchers.py",
)
@EXAMPLES
def test_a_failing_rank_gives_its_status_on_both_nodes(
    cluster: Make, launcher_python: str, example: str, launcher: str
) -> None:
    job = cluster(2)
    program = (launcher_python, example, *split("--fail 7 --fail-rank 3"))
    # which JAX's other processes take to the full
    start(job, launcher, *program, ENTRYPOINT_TIMEOUTS_GRACE="5")
    assert job.ends() == {0: 7, 1: 7}, job.both()
    said = re.findall(r"^\[entrypoint[^]]*\] (.*)", job.err(0), re.M)
    assert said[-1] == "EP600 rank 3 on worker-1 (node-1) exited with 7; exit 7", job.both()
    assert any(
        line.startswith("last ") and line.endswith("of rank 3 on worker-1 (node-1):")
        for line in said
    ), job.both()
    assert job.survivors() == []


# What a person had it write on another machine.
CONFIG = """
compute_environment: LOCAL_MACHINE
distributed_type: 'NO'
num_machines: 9
num_processes: 99
machine_rank: 5
main_process_ip: nowhere
main_process_port: 1
mixed_precision: bf16
use_cpu: true
"""


@pytest.mark.parametrize(
    ("options", "own"),
    [
        ("[--config_file, config.yaml]", ("$ACCELERATE_MIXED_PRECISION $ACCELERATE_USE_CPU", "bf16 true")),
        ("[--use_deepspeed, --zero_stage=2]", ("$ACCELERATE_USE_DEEPSPEED $ACCELERATE_DEEPSPEED_ZERO_STAGE", "true 2")),
    ],
    ids=["a file of accelerate config", "deepspeed, which logs in nowhere"],
)  # fmt: skip
def test_options_of_accelerate_say_all_but_the_machines(
    cluster: Make, launcher_python: str, options: str, own: tuple[str, str]
) -> None:
    job = cluster(2)
    (job.folder / "config.yaml").write_text(CONFIG)
    more = {"PYTHON": launcher_python, "ENTRYPOINT_LAUNCHER_ARGS": options}
    start(job, "accelerate", "sh", "-c", f'echo "$RANK of $WORLD_SIZE: {own[0]}"', **more)
    assert job.ends() == {0: 0, 1: 0}, job.both()
    said = sorted((job.out(0) + job.out(1)).splitlines())
    expected = [f"{rank} of 4: {own[1]}" for rank in range(4)]
    assert [line for line in said if " of " in line] == expected, job.both()


@pytest.mark.promise("jax, accelerate, deepspeed and lightning share status and pass on SIGTERM")
@EXAMPLES
def test_sigterm_reaches_every_process_of_the_examples(
    cluster: Make, launcher_python: str, example: str, launcher: str
) -> None:
    job = cluster(2)

    def ranks(word: str) -> set[str]:
        return set(re.findall(rf"rank (\d) {word}", job.out(0) + job.out(1)))

    start(job, launcher, launcher_python, example, "--stay")
    until(lambda: len(ranks("is up")) == 4, "four processes")
    job.signal(1, signal.SIGTERM)
    assert job.ends() == {0: 143, 1: 143}, job.both()
    assert ranks("told") == set("0123"), job.both()
    assert job.survivors() == []


def test_jax_s_processes_stop_at_one_step(cluster: Make, launcher_python: str) -> None:
    """JAX takes SIGTERM itself; a program asks it."""
    job = cluster(2)
    start(job, "jax", launcher_python, JAX, "--steps", "1000000")
    until(lambda: "step 5 " in job.out(0), "training")
    job.signal(1, signal.SIGTERM)
    assert job.ends() == {0: 143, 1: 143}, job.both()
    steps = re.findall(r"rank \d stops before step (\d+), and could save", job.out(0) + job.out(1))
    assert len(steps) == 4, job.both()
    assert len(set(steps)) == 1, job.both()
    assert job.survivors() == []


@SLOW
@pytest.mark.skipif(not shutil.which("pdsh"), reason="not on this machine: pdsh")
def test_deepspeed_logs_in_to_the_others(cluster: Make, launcher_python: str) -> None:
    job = cluster(2)
    fails = split("--fail 7 --fail-rank 3")
    start(job, "deepspeed", launcher_python, DEEPSPEED, *fails, ENTRYPOINT_SSH_CLIENT="files")
    assert job.ends() == {0: 7, 1: 7}, job.both()
    assert sorted(re.findall(r"rank (\d) of 4 on ", job.out(0))) == ["0", "1", "2", "3"], job.both()
    assert job.survivors() == []
