"""A command that is a launcher itself is refused by name: also behind wrappers, and as a module."""

from __future__ import annotations

import json
import shlex

import pytest

from entrypoint import spec
from entrypoint.errors import SpecError
from entrypoint.launchers._command import refuse_launcher
from entrypoint.launchers._nested import launcher_of, starts_own_job


def refused(command: str) -> str:
    """What the refusal of this command says; "" where it is taken."""
    job = spec.load(
        f"hosts: [a, b]\ncommand: {json.dumps(shlex.split(command))}", "job.yaml", {}, {}
    )
    try:
        refuse_launcher(job, "jax")
    except SpecError as error:
        return str(error)
    return ""


@pytest.mark.promise("a nested launcher is refused by name, in the command and in a rank's script")
@pytest.mark.parametrize(
    ("command", "ours"),
    [
        ("torchrun --nproc-per-node 4 train.py", "torchrun"),
        ("/opt/conda/bin/torchrun train.py", "torchrun"),
        ("python /opt/conda/bin/torchrun train.py", "torchrun"),
        ("env X=1 torchrun train.py", "torchrun"),
        ("/usr/bin/env -u A -i X=1 Y= torchrun train.py", "torchrun"),
        ("timeout 300 torchrun train.py", "torchrun"),
        ("timeout -s KILL --foreground 300 torchrun train.py", "torchrun"),
        ("timeout --signal=KILL -- 300 torchrun train.py", "torchrun"),
        ("nice -n 5 nohup stdbuf -oL -eL torchrun train.py", "torchrun"),
        ("setsid -w ionice -c 2 -n 0 mpirun -np 4 train", "mpirun"),
        ("taskset -c 0-3 numactl --cpunodebind=0 -m 0 mpiexec train", "mpirun"),
        ("chrt -f 10 /usr/bin/time -v horovodrun -np 4 python train.py", "mpirun"),
        ("xvfb-run -a -s '-screen 0' accelerate launch train.py", "accelerate"),
        ("python -m torch.distributed.run train.py", "torchrun"),
        ("python3.11 -u -X dev -m torch.distributed.launch train.py", "torchrun"),
        ("python -m horovod.runner.launch -np 4 python train.py", "mpirun"),
        ("python3 -umtorch.distributed.run train.py", "torchrun"),
        ("conda run -n env --no-capture-output torchrun train.py", "torchrun"),
        ("uv run --with torch torchrun train.py", "torchrun"),
        ("python -m horovod.runner -np 4 python train.py", "mpirun"),
        ("python -m deepspeed.launcher.runner train.py", "deepspeed"),
        ("python -m accelerate.commands.launch train.py", "accelerate"),
        ("python -m mindspore.parallel.cluster.run train.py", "msrun"),
        ("python /usr/lib/python3/torch/distributed/run.py train.py", "torchrun"),
        ("mpiexec.hydra -n 4 train", "hydra"),
    ],
)
def test_a_launcher_is_seen(command: str, ours: str) -> None:
    said = refused(command)
    assert "EP118 the command is a launcher itself" in said, "it is taken"
    assert (
        f"set launcher: {ours} (ENTRYPOINT_LAUNCHER), with the program alone, such as: -- python train.py"
        in said
    )


@pytest.mark.control("a nested launcher is refused by name, in the command and in a rank's script")
@pytest.mark.parametrize(
    "command",
    [
        "train.py",
        "python train.py --launcher torchrun",
        "env X=1 python train.py torchrun",
        "timeout 300 ./train.sh torchrun",
        "bash train.sh torchrun",
        "bash -c 'python train.py' torchrun",
        # what a shell starts is seen when it starts
        "bash -lc 'torchrun train.py'",
        "env X=1 timeout 9 bash -c 'exec torchrun train.py'",
        # one training of all of them
        "bash -c 'torchrun --nnodes $WORLD_SIZE --node-rank $RANK train.py'",
        "conda run -n env python train.py",
        "python --module torch.distributed.run",
        "python -m torch.utils.bottleneck train.py",
        "python -m horovodtools train.py",
        "python -c 'import torch.distributed.run'",
        "env",
        "timeout",
        "bash -c",
    ],
)
def test_what_is_no_launcher_is_taken(command: str) -> None:
    assert refused(command) == ""


def test_what_is_behind_a_wrapper_is_shown() -> None:
    assert "| `torchrun` behind `timeout` |" in refused("timeout 300 torchrun train.py")
    assert "| `torchrun` |" in refused("/usr/bin/torchrun train.py")


@pytest.mark.parametrize(
    ("command", "own"),
    [
        ("torchrun --nproc-per-node 4 train.py --nnodes 2", True),
        ("torchrun --nproc-per-node 1 train.py", True),
        ("torchrun --nnodes 1 --node_rank 0 train.py", True),
        ("torchrun --nnodes=2 --node-rank 1 train.py", False),
        ("torchrun --nnodes 1:4 --rdzv-endpoint a:1 train.py", False),
        ("torchrun --help", False),
        ("torchrun", False),
        ("python /usr/bin/torchrun --version", False),
        ("python -m torch.distributed.run --nnodes 2 train.py", False),
        ("python -m torch.distributed.launch --nproc_per_node 2 train.py", True),
        ("python -u /usr/lib/torch/distributed/run.py --nproc_per_node 2 train.py", True),
        ("python -u /usr/lib/torch/distributed/run.py --nnodes 2 train.py", False),
        ("python /usr/bin/torchrun", False),
        ("accelerate launch train.py", True),
        ("accelerate launch --num_machines 2 --machine_rank 1 train.py", False),
        ("accelerate env", False),
        ("deepspeed train.py", True),
        ("deepspeed --no_ssh --node_rank 1 train.py", False),
        ("mpirun -np 4 train", True),
        ("mpirun -np 1 train", False),
        ("mpirun -np 1 a : -np 1 b", True),
        ("mpirun -V", False),
        ("python train.py", False),
    ],
)
def test_a_job_of_its_own(command: str, own: bool) -> None:
    words = shlex.split(command)
    assert (bool(launcher_of(words)[0]) and starts_own_job(words)) is own
