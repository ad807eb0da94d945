"""The plain form: containers of the image with ModelArts' own variables, the secret, and `bash
run_mpi.sh`."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.containers import IMAGE, docker, exit_code, logs, remove, wait

SECRET = secrets.token_hex(32)
JOB = "modelarts-job-0b1f6f3e-3d0c-4b7e-9a39-0d5c2f1f9a01"
HOSTS = [f"{JOB}-worker-{index}.{JOB}" for index in range(2)]

TRAIN = """
import json, os, sys
from mpi4py import MPI
import torch
world = MPI.COMM_WORLD
total = world.allreduce(world.rank)
names = ("MA_CURRENT_IP", "VC_TASK_INDEX", "MA_INPUTS", "S3_SECRET_ACCESS_KEY", "NOTE")
line = json.dumps({"rank": world.rank, "host": os.uname().nodename, "total": total, "argv": sys.argv[1:],
      "cwd": os.getcwd(), **{name: os.environ.get(name) for name in names}})
sys.stdout.write("seen " + line + "\\n")  # at once: unbuffered, print would write the line's end apart
"""
INPUTS = """[{"url": "obs://bucket/a b", "quote": "it's"}]"""


def variables(index: int) -> Mapping[str, str]:
    return {
        "MA_HOME": "/home/ma-user",
        "MA_JOB_DIR": "/home/ma-user/modelarts/user-job-dir",
        "MA_NUM_HOSTS": "2",
        "MA_NUM_GPUS": "2",
        "MA_TASK_NAME": "worker",
        "MA_VJ_NAME": JOB,
        "MA_CURRENT_IP": f"192.168.23.{38 + index}",
        "MA_INPUTS": INPUTS,
        "VC_TASK_INDEX": str(index),
        "VC_WORKER_NUM": "2",
        "S3_SECRET_ACCESS_KEY": "c2VjcmV0Cg==",
        "NOTE": f'line one\nof node {index}; $HOME "x"',
        "ENTRYPOINT_SECRET": SECRET,
    }


@pytest.fixture
def containers(network: str, folder: Path) -> Iterator[list[str]]:
    (folder / "train.py").write_text(TRAIN)
    # bash reads it for what sshd starts
    (folder / "bashrc").write_text("echo noise; echo noise >&2; sleep 100\n")
    names = [f"ma-{network}-{index}" for index in range(2)]
    yield names
    remove(*names)


@pytest.mark.parametrize("listed", [True, False], ids=["VC_WORKER_HOSTS", "MA_VJ_NAME"])
def test_run_mpi_sh_with_the_platforms_variables_alone(
    containers: list[str], network: str, folder: Path, listed: bool
) -> None:
    for index, name in enumerate(containers):
        env = {**variables(index), **({"VC_WORKER_HOSTS": ",".join(HOSTS)} if listed else {})}
        words = [word for key, value in env.items() for word in ("-e", f"{key}={value}")]
        docker(
            "run", "-d", "--name", name, "--hostname", f"{JOB}-worker-{index}", "--network", network,
            "--network-alias", HOSTS[index], "-v", f"{folder}/train.py:/home/ma-user/train.py:ro",
            "-v", f"{folder}/bashrc:/home/ma-user/.bashrc:ro", *words,
            IMAGE, "bash", "run_mpi.sh", "python", "train.py", "--data", "obs://b/it's a \"path\"",
        )  # fmt: skip
    wait(*containers)
    log = logs(containers[0])
    assert [exit_code(name) for name in containers] == [0, 0], log + logs(containers[1])
    seen = [json.loads(line) for line in re.findall(r"^seen (.*)$", log, re.M)]
    assert sorted((each["rank"], each["host"]) for each in seen) == [
        (rank, f"{JOB}-worker-{rank // 2}") for rank in range(4)
    ]
    for each in seen:
        node = each["rank"] // 2
        assert each["total"] == 6
        assert each["argv"] == ["--data", 'obs://b/it\'s a "path"']
        assert each["cwd"] == "/home/ma-user"
        assert each["MA_CURRENT_IP"] == f"192.168.23.{38 + node}"
        assert each["VC_TASK_INDEX"] == str(node)
        assert each["MA_INPUTS"] == INPUTS
        assert each["S3_SECRET_ACCESS_KEY"] == "c2VjcmV0Cg=="
        assert each["NOTE"] == f'line one\nof node {node}; $HOME "x"'
