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
import subprocess
from collections.abc import Callable
from shlex import split

import pytest

from entrypoint.job.failure import ended
from tests import TREE
from tests.cluster import Cluster, Make, free_port, until
from tests.rows import agrees

SLOW = pytest.mark.slow
SAVES = "trap 'sleep 0.5; echo saved; exit 0' TERM; echo up; while :; do sleep 0.05; done"
# The example, its launcher, and how far from one process it may be.
EXAMPLES = pytest.mark.parametrize(
    ("example", "launcher", "allowed"),
    [
        ("jax", "jax", "1e-10"),
        ("accelerate", "accelerate", "1e-10"),
        ("deepspeed", "deepspeed", "1e-05"),
        ("lightning", "torchrun", "1e-10"),
    ],
    ids=["jax", "accelerate", "deepspeed", "lightning"],
)


@pytest.fixture
def launcher_python(python_with: Callable[[str], str]) -> str:
    return python_with("libraries")


def start(job: Cluster, launcher: str, *program: str, **more: str) -> None:
    ports = {"ENTRYPOINT_TORCH_PORT": str(free_port()), "ENTRYPOINT_JAX_PORT": str(free_port())}
    env = {**ports, "OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu", "JAX_PLATFORMS": "cpu", **more}
    job.start_all(*program, env=env, launcher=launcher)


# --------------------------------------------------------------------------------------------------
# Without the library


def test_every_process_of_jax_is_told_which_it_is(cluster: Make) -> None:
    job = cluster(2)
    start(
        job,
        "jax",
        "sh",
        "-c",
        'echo "$JAX_PROCESS_ID of $JAX_NUM_PROCESSES at $JAX_COORDINATOR_ADDRESS"',
    )
    assert job.ends() == {0: 0, 1: 0}, job.both()
    for node in range(2):
        said = re.findall(r"^\[rank (\d)\] (\d) of 4 at 127\.0\.0\.2:(\d+)$", job.out(node), re.M)
        assert sorted(number for number, *_ in said) == [str(2 * node), str(2 * node + 1)], (
            job.both()
        )
        assert all(number == own for number, own, _ in said)
    assert job.survivors() == []


def test_one_process_a_node_prints_its_own_lines_alone(cluster: Make) -> None:
    job = cluster(2, slots=1)
    start(job, "jax", "sh", "-c", 'echo "$JAX_PROCESS_ID of $JAX_NUM_PROCESSES"')
    assert job.ends() == {0: 0, 1: 0}, job.both()
    assert [job.out(0), job.out(1)] == ["0 of 2\n", "1 of 2\n"]


@pytest.mark.parametrize(("failure", "status"), [("exit 7", 7), ("kill -9 $$", 137)])
def test_the_first_process_of_jax_that_fails_ends_all(
    cluster: Make, failure: str, status: int
) -> None:
    job = cluster(2)
    others_are_up = 'until [ "$(ls up-* 2>/dev/null | wc -l)" = 3 ]; do sleep 0.05; done'
    fails = f"[ $JAX_PROCESS_ID = 3 ] && {{ {others_are_up}; echo why >&2; {failure}; }}"
    start(
        job,
        "jax",
        "sh",
        "-c",
        f"{fails}; {SAVES.replace('echo up', 'echo up; touch up-$JAX_PROCESS_ID')}",
    )
    assert job.ends() == {0: status, 1: status}, job.both()
    assert (job.out(0) + job.out(1)).count("saved") == 3, job.both()
    assert "last 1 line of rank 3 on worker-1 (node-1):\n" in job.err(0), job.both()
    last = f" {ended('rank 3 on worker-1 (node-1)', status)}; exit {status}\n"
    assert all(last in job.err(node) for node in range(2)), job.both()
    assert job.survivors() == []


@pytest.mark.parametrize("node", [0, 1])
def test_sigterm_reaches_every_process_of_jax(cluster: Make, node: int) -> None:
    job = cluster(2)
    start(job, "jax", "sh", "-c", SAVES)
    stops(job, node)


def stops(job: Cluster, node: int, seconds: float = 20) -> None:
    """SIGTERM to one node, and every process of both has the time to save."""

    def lines(word: str) -> int:
        """DeepSpeed's launcher prints the command, too."""
        return len(re.findall(rf"^(?:\[rank \d\] )?{word}$", job.out(0) + job.out(1), re.M))

    until(lambda: lines("up") == 4, seconds, "four processes")
    job.signal(node, signal.SIGTERM)
    assert job.ends() == {0: 143, 1: 143}, job.both()
    assert lines("saved") == 4, job.both()
    assert job.survivors() == []


# --------------------------------------------------------------------------------------------------
# With it


@pytest.mark.control("jax, accelerate, deepspeed and lightning share status and pass on SIGTERM")
@EXAMPLES
def test_they_train_as_one_process_would(
    cluster: Make, launcher_python: str, example: str, launcher: str, allowed: str
) -> None:
    job = cluster(2)
    start(job, launcher, launcher_python, str(TREE / "examples" / example / "train.py"))
    assert job.ends(120) == {0: 0, 1: 0}, job.both()
    for node in range(2):
        ranks = re.findall(r"rank (\d) of 4 on ", job.out(node))
        assert sorted(ranks) == [str(2 * node), str(2 * node + 1)], job.both()
        # JAX's own count: one device a process, of four
        assert job.out(node).count(" with 1 of 4 devices\n") == (2 if example == "jax" else 0)
    agrees(job.out(0), allowed)
    assert job.survivors() == []


@pytest.mark.promise("jax, accelerate, deepspeed and lightning share status and pass on SIGTERM")
@EXAMPLES
def test_a_failing_rank_gives_its_status_on_both_nodes(
    cluster: Make, launcher_python: str, example: str, launcher: str, allowed: str
) -> None:
    job = cluster(2)
    program = (
        launcher_python,
        str(TREE / "examples" / example / "train.py"),
        *split("--fail 7 --fail-rank 3"),
    )
    # which JAX's other processes take to the full
    start(job, launcher, *program, ENTRYPOINT_TIMEOUTS_GRACE="5")
    assert job.ends(120) == {0: 7, 1: 7}, job.both()
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


@pytest.mark.parametrize("nodes", [1, 2])
def test_a_file_of_accelerate_config_says_all_but_the_machines(
    cluster: Make, launcher_python: str, nodes: int
) -> None:
    job = cluster(nodes)
    (job.folder / "config.yaml").write_text(CONFIG)
    program = 'echo "$RANK of $WORLD_SIZE, $ACCELERATE_MIXED_PRECISION, $ACCELERATE_USE_CPU"'
    options = "[--config_file, config.yaml]"
    start(
        job,
        "accelerate",
        "sh",
        "-c",
        program,
        PYTHON=launcher_python,
        ENTRYPOINT_ACCELERATE_EXTRA_ARGS=options,
    )
    assert job.ends() == dict.fromkeys(range(nodes), 0), job.both()
    said = sorted("".join(map(job.out, range(nodes))).splitlines())
    assert said == [f"{rank} of {2 * nodes}, bf16, true" for rank in range(2 * nodes)], job.both()


def test_deepspeed_of_accelerate_logs_in_nowhere(cluster: Make, launcher_python: str) -> None:
    job, options = cluster(2), "[--use_deepspeed, --zero_stage=2]"
    program = (
        'echo "$RANK of $WORLD_SIZE, $ACCELERATE_USE_DEEPSPEED, $ACCELERATE_DEEPSPEED_ZERO_STAGE"'
    )
    start(
        job,
        "accelerate",
        "sh",
        "-c",
        program,
        PYTHON=launcher_python,
        ENTRYPOINT_ACCELERATE_EXTRA_ARGS=options,
    )
    assert job.ends() == {0: 0, 1: 0}, job.both()
    said = sorted((job.out(0) + job.out(1)).splitlines())
    assert [line for line in said if " of " in line] == [
        f"{rank} of 4, true, 2" for rank in range(4)
    ], job.both()


@pytest.mark.promise("jax, accelerate, deepspeed and lightning share status and pass on SIGTERM")
@pytest.mark.parametrize("launcher", ["accelerate", "deepspeed"])
@pytest.mark.parametrize("node", [0, pytest.param(1, marks=SLOW)])
def test_sigterm_reaches_every_process(
    cluster: Make, launcher_python: str, launcher: str, node: int
) -> None:
    job = cluster(2)
    start(
        job,
        launcher,
        "sh",
        "-c",
        SAVES,
        PATH=f"{launcher_python.rpartition('/')[0]}:/usr/bin:/bin:/usr/sbin",
    )
    stops(job, node, 60)


@EXAMPLES
def test_sigterm_reaches_every_process_of_the_examples(
    cluster: Make, launcher_python: str, example: str, launcher: str, allowed: str
) -> None:
    job = cluster(2)

    def ranks(word: str) -> set[str]:
        return set(re.findall(rf"rank (\d) {word}", job.out(0) + job.out(1)))

    start(job, launcher, launcher_python, str(TREE / "examples" / example / "train.py"), "--stay")
    until(lambda: len(ranks("is up")) == 4, 120, "four processes")
    job.signal(1, signal.SIGTERM)
    assert job.ends() == {0: 143, 1: 143}, job.both()
    assert ranks("told") == set("0123"), job.both()
    assert job.survivors() == []


def test_jax_s_processes_stop_at_one_step(cluster: Make, launcher_python: str) -> None:
    """JAX takes SIGTERM itself; a program asks it."""
    job = cluster(2)
    start(job, "jax", launcher_python, str(TREE / "examples/jax/train.py"), "--steps", "1000000")
    until(lambda: "step 5 " in job.out(0), 60, "training")
    job.signal(1, signal.SIGTERM)
    assert job.ends() == {0: 143, 1: 143}, job.both()
    steps = re.findall(r"rank \d stops before step (\d+), and could save", job.out(0) + job.out(1))
    assert len(steps) == 4, job.both()
    assert len(set(steps)) == 1, job.both()
    assert job.survivors() == []


WAITS = """
import jax, os, time
number = int(os.environ["JAX_PROCESS_ID"])
jax.distributed.initialize(num_processes=int(os.environ["JAX_NUM_PROCESSES"]), process_id=number)
print("up", flush=True)
time.sleep(300)
"""


@pytest.mark.parametrize("service", ["true", "false"])
def test_jax_keeps_sigterm_from_a_program_unless_it_is_told_not_to(
    cluster: Make, launcher_python: str, service: str
) -> None:
    job = cluster(2, slots=1)
    more = {"JAX_ENABLE_PREEMPTION_SERVICE": service, "ENTRYPOINT_TIMEOUTS_GRACE": "3"}
    start(job, "jax", launcher_python, "-c", WAITS, **more)
    until(lambda: job.out(0) + job.out(1) == "up\nup\n", 60, "two processes")
    job.signal(0, signal.SIGTERM)
    assert job.ends() == {0: 143, 1: 143}, job.both()
    assert ("not all programs stopped within the grace" in job.err(0)) is (service == "true"), (
        job.both()
    )


@pytest.mark.skipif(
    not shutil.which("mpirun")
    or "Open MPI) 4" not in subprocess.run(["mpirun", "-V"], capture_output=True, text=True).stdout,
    reason="not on this machine: Open MPI 4, whose variables JAX reads",
)
def test_under_mpirun_jax_needs_no_arguments(cluster: Make, launcher_python: str) -> None:
    job = cluster(2)
    code = (
        "import jax; jax.distributed.initialize(); print(f'process {jax.process_index()} of"
        " {jax.process_count()}')"
    )
    start(job, "mpirun", launcher_python, "-c", code)
    assert job.ends() == {0: 0, 1: 0}, job.both()
    assert sorted(re.findall(r"process (\d) of 4", job.out(0))) == ["0", "1", "2", "3"], job.both()


@pytest.mark.parametrize(("launcher", "slots"), [("plain", 1), ("mpirun", 2), ("torchrun", 2)])
def test_a_program_of_accelerate_trains_under_other_launchers(
    cluster: Make, launcher_python: str, launcher: str, slots: int
) -> None:
    job, program = cluster(2, slots=slots), str(TREE / "examples/accelerate/train.py")
    start(job, launcher, launcher_python, program, ACCELERATE_USE_CPU="true")
    assert job.ends() == {0: 0, 1: 0}, job.both()
    agrees(job.out(0), "1e-10")


def test_without_that_variable_each_process_trains_alone(
    cluster: Make, launcher_python: str
) -> None:
    job = cluster(2, slots=1)
    start(job, "plain", launcher_python, str(TREE / "examples/accelerate/train.py"))
    assert job.ends() == {0: 1, 1: 1}, job.both()
    assert "this process trains alone" in job.err(0), job.both()


@SLOW
@pytest.mark.skipif(not shutil.which("pdsh"), reason="not on this machine: pdsh")
@pytest.mark.parametrize(("more", "status"), [((), 0), (("--fail", "7", "--fail-rank", "3"), 7)])
def test_deepspeed_logs_in_to_the_others(
    cluster: Make, launcher_python: str, more: tuple[str, ...], status: int
) -> None:
    job = cluster(2)
    start(
        job,
        "deepspeed",
        launcher_python,
        str(TREE / "examples/deepspeed/train.py"),
        *more,
        ENTRYPOINT_SSH_CLIENT="files",
    )
    assert job.ends(120) == {0: status, 1: status}, job.both()
    assert sorted(re.findall(r"rank (\d) of 4 on ", job.out(0))) == ["0", "1", "2", "3"], job.both()
    if not status:
        agrees(job.out(0), "1e-05")
    assert job.survivors() == []
