"""A launcher inside a rank of a job of several is ended at once, by name; what a program may start
is not."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from entrypoint.base.kept import KeptForm, OutputForm
from tests.process.keeps import Keeper

LONG = "600"  # seconds that a launcher of these tests runs
SHORT = 1.0  # seconds that what is allowed runs: several looks


@pytest.fixture
def launcher(tmp_path: Path) -> Path:
    """A folder of launchers that only wait: programs of their own, as mpirun, and console scripts,
    as torchrun."""
    wait = "import sys, time; print('started', flush=True); time.sleep(float(sys.argv[-1]))\n"
    for name in ("torchrun", "accelerate"):
        (tmp_path / name).write_text(f"#!{sys.executable}\n{wait}")
    # one whose name tells nothing, with variables for its children
    starts = "import os, subprocess, sys; environment = {**os.environ, **eval(sys.argv[1])}\n"
    starts += "subprocess.run(['sleep', sys.argv[-1]], env=environment)\n"
    (tmp_path / "starts").write_text(f"#!{sys.executable}\n{starts}")
    (tmp_path / "mpirun").symlink_to("/bin/sleep")
    (tmp_path / "torch/distributed").mkdir(parents=True)
    (tmp_path / "torch/distributed/run.py").write_text(wait)
    for path in ("torchrun", "accelerate", "starts"):
        (tmp_path / path).chmod(0o755)
    return tmp_path


def rank(folder: Path, number: str, program: str) -> tuple[int, str, float]:
    """The status of a rank of this number that runs a script, what it printed, and the seconds that
    it took."""
    script = folder / "train.sh"
    script.write_text(f"cd {folder}\nPATH={folder}:$PATH\n{program}\necho after\n")
    begun = time.monotonic()
    kept = Keeper(folder, stderr=subprocess.STDOUT)
    kept.start("bash", str(script), form=KeptForm(OutputForm(), 1.0, nested=number))
    end = next(each for each in kept.ended() if each.startswith("end"))
    seconds = time.monotonic() - begun
    said = kept.over().decode()
    kept.close()
    return int(end.partition(" ")[2]), said, seconds


def starts(size: int, kind: str = "torch", seconds: str = LONG) -> str:
    """The command of a launcher of another name, whose job has this size."""
    variables = {
        "torch": {
            "TORCHELASTIC_RUN_ID": "none",
            "GROUP_RANK": "0",
            "GROUP_WORLD_SIZE": str(size),
            "WORLD_SIZE": "4",
        },
        "mpi": {"PMIX_NAMESPACE": "77", "OMPI_COMM_WORLD_SIZE": str(size)},
    }[kind]
    return f'starts "{variables}" {seconds}'


TORCHRUN = f"torchrun --nproc-per-node 4 train.py {LONG}"
SUBPROCESS = f'{sys.executable} -c \'import subprocess; subprocess.run(["torchrun", "{LONG}"])\''


@pytest.mark.promise("a nested launcher is refused by name, in the command and in a rank's script")
@pytest.mark.promise("a launcher that starts late, or by another name, is seen")
@pytest.mark.parametrize(
    ("program", "name"),
    [
        (TORCHRUN, "torchrun"),
        (f"echo begin; sleep 0.3; timeout 900 {TORCHRUN}", "torchrun"),
        (f"{sys.executable} -m torch.distributed.run train.py {LONG}", "-m torch.distributed.run"),
        (f"accelerate launch train.py {LONG} | cat", "accelerate"),
        (f"env X=1 setsid -w mpirun {LONG}", "mpirun"),
        (SUBPROCESS, "torchrun"),
        # known by what it sets for its processes
        (f"exec {TORCHRUN}", "torchrun"),
        (starts(1), "torchrun"),
        (f"exec {starts(1)}", "torchrun"),
        (f"sleep 0.3; env X=1 {starts(2, 'mpi')}", "mpirun"),
        # it runs for two seconds, in the middle between two looks that grow further apart
        ("sleep 1.7; torchrun --nproc-per-node 4 a.py 2", "torchrun"),
        ("sleep 6.5; torchrun --nproc-per-node 4 a.py 2", "torchrun"),
    ],
)
def test_a_launcher_below_a_rank_ends_it(program: str, name: str, launcher: Path) -> None:
    status, said, _ = rank(launcher, "1", program)
    assert status == 78, said
    assert "EP118 `" in said
    assert f"{name}` started inside rank 1" in said
    assert "after" not in said


@pytest.mark.control("a nested launcher is refused by name, in the command and in a rank's script")
@pytest.mark.control("a launcher that starts late, or by another name, is seen")
@pytest.mark.parametrize(
    ("number", "program"),
    [
        ("0", f"torchrun --nproc-per-node 4 train.py {SHORT}"),  # one rank alone makes no copies
        ("1", f"torchrun --nnodes 2 --node-rank 1 train.py {SHORT}"),
        ("1", f"PET_NNODES=2 torchrun train.py {SHORT}"),
        ("1", f'{sys.executable} -c \'import subprocess; subprocess.run(["mpirun", "{SHORT}"])\''),
        (
            "1",
            (
                f"{sys.executable} -c 'import os; os.system(\"mpirun {SHORT} & sleep 0.1\")'; sleep"
                f" {SHORT}"
            ),
        ),
        ("1", f"{sys.executable} train.py {SHORT} || sleep {SHORT}"),
        ("1", starts(2, seconds=str(SHORT))),  # one training of all ranks
        ("1", starts(1, "mpi", seconds=str(SHORT))),
        ("1", f"""{sys.executable} -c 'import os; os.system(open("simulator").read())'"""),
        ("1", f"OMPI_COMM_WORLD_SIZE=2 sleep {SHORT}"),
    ],
)
def test_what_a_rank_may_start_runs(number: str, program: str, launcher: Path) -> None:
    (launcher / "simulator").write_text(starts(2, "mpi", seconds=str(SHORT)))
    status, said, seconds = rank(launcher, number, program)
    assert (status, "EP118" in said, "after" in said) == (0, False, True), said
    assert seconds >= SHORT


# --------------------------------------------------------------------------------------------------
# The program of a node, under plain


def of_size(
    size: int, local: int, names: str = "WORLD_SIZE LOCAL_WORLD_SIZE", seconds: str = LONG
) -> str:
    """The command of a launcher of another name, with so many processes in all and here."""
    variables = dict(zip(names.split(), (str(size), str(local)), strict=True))
    return f'starts "{variables}" {seconds}'


LIGHTNING = "WORLD_SIZE LOCAL_RANK"
MPI = "OMPI_COMM_WORLD_SIZE OMPI_COMM_WORLD_LOCAL_SIZE"


@pytest.mark.promise("a node of several under plain does not train alone")
@pytest.mark.parametrize(
    ("program", "name"),
    [
        (
            f"NNODES=${{WORLD_SIZE:-1}}\ntorchrun --nnodes=$NNODES --nproc_per_node=2 {LONG}",
            "torchrun",
        ),
        (TORCHRUN, "torchrun"),
        (f"torchrun --standalone --nnodes 1 train.py {LONG}", "torchrun"),
        (f"sleep 0.3; {of_size(2, 2)}", "WORLD_SIZE=2"),
        (of_size(1, 1), "WORLD_SIZE=1"),
        (
            of_size(2, 1, LIGHTNING),
            "WORLD_SIZE=2",
        ),  # the second of two, with no number of those here
        (of_size(2, 2, MPI), "OMPI_COMM_WORLD_SIZE=2"),
    ],
)
def test_a_node_does_not_train_alone(program: str, name: str, launcher: Path) -> None:
    """A launcher for this node alone, whatever it is called"""
    status, said, _ = rank(launcher, "node 1", program)
    assert (status, "after" in said) == (78, False), said
    assert f"EP118 `{name}` started on node 1 of several for this node alone" in said


@pytest.mark.control("a node of several under plain does not train alone")
@pytest.mark.parametrize(
    "program",
    [
        f"torchrun --nnodes 2 --node-rank 1 train.py {SHORT}",
        f"PET_NNODES=2 torchrun train.py {SHORT}",
        f"accelerate launch --config_file nodes.yaml train.py {SHORT}",  # the file has the nodes
        f"mpirun {SHORT}",  # the same
        of_size(4, 2, seconds=str(SHORT)),
        of_size(4, 1, LIGHTNING, str(SHORT)),
        of_size(1, 1, MPI, str(SHORT)),
        f"LOCAL_WORLD_SIZE=2 sleep {SHORT}",
    ],
)
def test_a_node_that_joins_the_others_runs(program: str, launcher: Path) -> None:
    status, said, seconds = rank(launcher, "node 1", program)
    assert (status, "EP118" in said, "after" in said) == (0, False, True), said
    assert seconds >= SHORT
