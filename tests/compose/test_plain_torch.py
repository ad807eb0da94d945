"""The rendered torchrun.sh and torchlaunch.sh, unmodified, in a plain Debian + torch image that has
no toolkit."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from shlex import split
from typing import Any

import pytest

from tests.cluster import clean_environment
from tests.containers import IMAGE, build, docker, exit_code, logs, remove, wait

PLAIN = "entrypoint-test-plain:dev"
AWKWARD = (
    *("", "a b", "it's", '"q"', *split("$HOME $$ ${local_rank} $(id) `id`"), "a\nb", "*", "ü\\"),
    *("--", "--nnodes=9", "-m"),
)
TRAIN = """\
import json, os, sys
import torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.tensor([float(dist.get_rank() + 1)])
dist.all_reduce(total)
names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "HOSTNAME")
result = {**{name: os.environ[name] for name in names}, "total": total.item(), "argv": sys.argv[1:]}
# One write: unbuffered, print would write the end of the line by itself, and another rank's line may come between.
sys.stdout.write("result " + json.dumps(result) + "\\n")
dist.destroy_process_group()
sys.exit(int(os.environ.get("FAIL", "0")))
"""


@pytest.fixture(scope="module")
def plain() -> str:
    """The image without the toolkit: what any user of Debian and torch has."""
    text = (
        f"FROM {IMAGE}\nUSER root\nRUN rm -rf /opt/entrypoint /usr/local/bin/entrypoint"
        " /usr/local/bin/image-entry /home/ma-user/*.sh\nUSER 1000:100\nENTRYPOINT []\n"
    )
    build(PLAIN, text)
    return PLAIN


@pytest.fixture
def scripts(folder: Path) -> Path:
    """The scripts as `entrypoint render` writes them on another machine, and a program beside
    them."""
    render = [sys.executable, "-m", "entrypoint", "render", "--out", str(folder)]
    subprocess.run(render, env=clean_environment(), check=True, capture_output=True)
    (folder / "train.py").write_text(TRAIN)
    return folder


@pytest.fixture
def names(network: str) -> Iterator[list[str]]:
    hosts = [f"{network}-worker-{rank}" for rank in range(2)]
    yield hosts
    remove(*hosts)


def start(
    image: str, scripts: Path, names: Sequence[str], network: str, script: str, **env: str
) -> None:
    for rank, name in enumerate(names):
        variables = {
            "MA_NUM_HOSTS": str(len(names)),
            "MA_NUM_GPUS": "2",
            "VC_WORKER_HOSTS": ",".join(names),
            "VC_TASK_INDEX": str(rank),
            "OMP_NUM_THREADS": "1",
            **env,
        }
        words = [word for key, value in variables.items() for word in ("-e", f"{key}={value}")]
        docker(
            "run", "-d", "--name", name, "--hostname", name, "--network", network, "-v", f"{scripts}:/job:ro",
            "-w", "/job", *words, image, "bash", script, "train.py", *AWKWARD,
        )  # fmt: skip
    wait(*names)


def results(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in re.findall(r"result (\{.*\})$", logs(name), re.M)]


@pytest.mark.promise("`torchrun.sh` and `run_mpi.sh` work without the toolkit")
@pytest.mark.parametrize("way", ["torchrun c10d", "torchrun static", "torchlaunch"])
def test_two_containers_reduce(
    plain: str, scripts: Path, names: list[str], network: str, way: str
) -> None:
    script, _, backend = way.partition(" ")
    start(
        plain,
        scripts,
        names,
        network,
        f"{script}.sh",
        **({"RDZV_BACKEND": backend} if backend else {}),
    )
    assert [exit_code(name) for name in names] == [0, 0], logs(names[0]) + logs(names[1])
    for node, name in enumerate(names):
        found = sorted(results(name), key=lambda result: int(result["RANK"]))
        assert [int(result["RANK"]) for result in found] == [2 * node, 2 * node + 1]
        assert [result["LOCAL_RANK"] for result in found] == ["0", "1"]
        assert {result["WORLD_SIZE"] for result in found} == {"4"}
        assert {result["HOSTNAME"] for result in found} == {name}
        assert {result["total"] for result in found} == {10.0}
        assert [result["argv"] for result in found] == [list(AWKWARD)] * 2
        assert "torch alone, node " in logs(name)


@pytest.mark.control("`torchrun.sh` and `run_mpi.sh` work without the toolkit")
def test_there_is_no_toolkit_in_that_image(plain: str) -> None:
    assert (
        docker("run", "--rm", plain, "sh", "-c", "command -v entrypoint || echo none") == "none\n"
    )
