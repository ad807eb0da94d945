"""The image under Apptainer, as HPC sites run it: an ordinary user, and an image that nobody can
write to.

`scripts/dev/apptainer-image` makes it, of a layout with a start and an MPI of its own: --with=sif=PATH.
"""

from __future__ import annotations

import os
import secrets
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests import TREE
from tests.cluster import free_port

BASES = ("train.sif",)  # none of the engine's images
SHOW = (
    'echo "rank $OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE: $(id -u), $(command -v mpirun),'
    ' $NVIDIA_NOTE"; touch /etc/mine; exit $STATUS'
)


@pytest.fixture
def sif(request: pytest.FixtureRequest) -> Path:
    """The image, in the folder that Apptainer sees."""
    given = dict(word.split("=", 1) for word in request.config.getoption("--with"))
    if "sif" not in given:
        pytest.skip("no image for Apptainer: run scripts/test release apptainer")
    return Path(given["sif"])


def start(sif: Path, *words: str, env: Mapping[str, str]) -> subprocess.Popen[str]:
    """`apptainer run` the image with these variables."""
    argv = [str(TREE / "scripts/dev/apptainer"), "--silent", "run", "--no-eval", sif.name, *words]
    variables = {**os.environ, **env, "APPTAINER_WORK": str(sif.parent)}
    return subprocess.Popen(
        argv, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    said, _ = process.communicate()
    return process.returncode, said


@pytest.mark.promise("jobs run under Apptainer, in an image that nobody can write to")
@pytest.mark.parametrize("status", [0, 7])
def test_one_node(status: int, sif: Path) -> None:
    """two ranks of an ordinary user, after the image's own start, by the image's MPI"""
    job = {"ENTRYPOINT_SLOTS": "2", "STATUS": str(status)}
    code, said = ended(start(sif, "sh", "-c", SHOW, env=job))
    assert code == status, said
    for rank in range(2):
        assert f"rank {rank} of 2: 1000, /usr/local/mpi/bin/mpirun, two words, 1000" in said
    assert "Read-only file system" in said


@pytest.mark.promise("jobs run under Apptainer, in an image that nobody can write to")
@pytest.mark.parametrize("status", [0, 7])
def test_two_nodes(status: int, sif: Path) -> None:
    """the same on two nodes at loopback addresses, over ssh, which share /tmp and the network"""
    shared = {
        "ENTRYPOINT_SECRET": secrets.token_hex(32),
        "ENTRYPOINT_HOSTS": "worker-0=127.0.0.2,worker-1=127.0.0.3",
        "ENTRYPOINT_SLOTS": "2",
        "ENTRYPOINT_SSH_PORT": str(free_port()),
        "STATUS": str(status),
    }
    nodes = [
        start(
            sif, "sh", "-c", SHOW,
            env={**shared, "ENTRYPOINT_NODE_RANK": str(node), "ENTRYPOINT_RUN_DIR": f"/tmp/run-{node}"},
        )
        for node in (0, 1)
    ]  # fmt: skip
    ends = [ended(node) for node in nodes]
    assert [code for code, _ in ends] == [status, status], ends
    for rank in range(4) if status == 0 else ():  # others may be stopped before they print
        assert f"rank {rank} of 4: 1000, /usr/local/mpi/bin/mpirun, two words" in ends[0][1]


@pytest.mark.control("jobs run under Apptainer, in an image that nobody can write to")
def test_a_run_directory_in_the_image_is_refused(sif: Path) -> None:
    """the control: what has to be written there is named"""
    job = {"ENTRYPOINT_SLOTS": "2", "STATUS": "0", "ENTRYPOINT_RUN_DIR": "/opt/entrypoint/run"}
    code, said = ended(start(sif, "sh", "-c", SHOW, env=job))
    assert code == 73, said
    assert "/opt/entrypoint/run" in said
