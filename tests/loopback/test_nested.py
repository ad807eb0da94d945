"""A launcher inside the ranks of a job of two nodes: one training must not silently become several,
each with 0."""

from __future__ import annotations

import json
import sys

import pytest

from tests.cluster import Make, free_port

OURS = (sys.executable, "-m", "entrypoint", "run")
# As root, Open MPI starts only where it is allowed to; a rank has the variables of the mpirun that
# started it.
INNER = (
    "cd /tmp\nmpirun --allow-run-as-root --oversubscribe -np 2 -host localhost:2 sh -c 'echo"
    " training; sleep 3'\n"
)


@pytest.mark.promise("a nested launcher is refused by name, in the command and in a rank's script")
@pytest.mark.parametrize("launcher", ["mpirun", "jax"])
def test_an_mpirun_in_the_ranks_script_ends_the_job_by_name(launcher: str, cluster: Make) -> None:
    job = cluster(2, slots=1)
    script = job.folder / "train.sh"
    script.write_text(
        "for name in $(env | grep -oE '^(OMPI|PMIX|ORTE)_[A-Za-z_]*'); do unset $name; done\n"
        + INNER
    )
    for node in (1, 0):
        job.start(node, argv=(*OURS, "--launcher", launcher, "--", "bash", str(script)))
    assert job.ends() == {0: 78, 1: 78}, job.both()
    assert "EP118 `mpirun` started inside rank 1 of a job of several" in job.both()
    assert job.survivors() == []


def test_where_lines_are_json_so_is_what_is_said_of_it(cluster: Make) -> None:
    job = cluster(2, slots=1)
    (job.folder / "train.sh").write_text("printf 'no end of line'\n" + INNER)
    for node in (1, 0):
        words = (*OURS, "--launcher", "jax", "--", "bash", str(job.folder / "train.sh"))
        job.start(node, argv=words, env={"ENTRYPOINT_LOGS_FORMAT": "json"})
    assert job.ends() == {0: 78, 1: 78}, job.both()
    said = [json.loads(line) for line in (job.out(1) + job.err(1)).splitlines()]
    (line,) = [
        each for each in said if each["text"].startswith("EP118 `mpirun` started inside rank 1")
    ]
    assert (line["rank"], line["stream"]) == (1, "stderr")


@pytest.mark.control("a nested launcher is refused by name, in the command and in a rank's script")
def test_a_launcher_that_is_asked_its_version_is_the_control(cluster: Make) -> None:
    job = cluster(2, slots=1)
    script = job.folder / "train.sh"
    script.write_text("mpirun --version\nsleep 0.5\necho trained\n")
    for node in (1, 0):
        job.start(node, argv=(*OURS, "--launcher", "jax", "--", "bash", str(script)))
    assert job.ends() == {0: 0, 1: 0}, job.both()
    assert "trained" in job.out(0)


@pytest.mark.parametrize("wrapper", [("timeout", "300"), ("env", "X=1")])
def test_a_launcher_behind_a_wrapper_is_refused_on_both_nodes(
    wrapper: tuple[str, ...], cluster: Make
) -> None:
    job = cluster(2, slots=1)
    inner = ["mpirun", "-np", "2", "true"]
    for node in (1, 0):
        job.start(node, argv=(*OURS, "--launcher", "mpirun", "--", *wrapper, *inner))
    assert job.ends() == {0: 65, 1: 65}, job.both()
    assert "EP118 the command is a launcher itself" in job.err(0)


@pytest.mark.parametrize(
    ("options", "status", "sizes"),
    [
        ("--nproc-per-node 2", 78, set()),
        # in the rank's own process, whose name tells nothing
        ("IN_PROCESS", 78, set()),
        (
            (
                "--nnodes 2 --node-rank $OMPI_COMM_WORLD_RANK --master-addr 127.0.0.2 --master-port"
                " $MASTER_PORT"
            ),
            0,
            {"2"},
        ),
    ],
    ids=["each its own", "in its own process", "control: one of all"],
)
def test_torch_s_own_launcher_in_a_script(
    options: str, status: int, sizes: set[str], torch_python: str, cluster: Make
) -> None:
    job, port = cluster(2, slots=1), str(free_port())
    script = job.folder / "train.sh"
    run = f"-m torch.distributed.run {options}"
    if options == "IN_PROCESS":
        call = "from torch.distributed import run; run.main(['--nproc-per-node', '2', *argv[1:]])"
        run = f'-c "from sys import argv; {call}"'
    script.write_text(f"echo begin\n{torch_python} {run} {job.folder}/train.py\n")
    wait = "import time; time.sleep(3)\n" if status else ""
    (job.folder / "train.py").write_text(
        f"{wait}import os; print('ranks', os.environ['WORLD_SIZE'], flush=True)\n"
    )
    for node in (1, 0):
        env = {"ENTRYPOINT_TORCH_PORT": port, "OMP_NUM_THREADS": "1"}
        job.start(node, argv=(*OURS, "--launcher", "mpirun", "--", "bash", str(script)), env=env)
    assert job.ends() == {0: status, 1: status}, job.both()
    assert {
        line.split()[-1] for line in job.both().splitlines() if line.startswith("ranks ")
    } == sizes, job.both()
