"""MPI programs on both majors of Open MPI: every rank on its node, by the major that the image has,
and never mixed."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from tests import TREE
from tests.composed import Compose
from tests.containers import MPI4, MPI5, docker, logs, skip_without
from tests.rows import agrees, ended, expected, places, said

HOSTS = ["worker-0", "worker-1"]
Run = Callable[..., tuple[dict[str, str], str]]
MAJORS = pytest.mark.parametrize(("major", "image"), [("4", MPI4), ("5", MPI5)], ids=["4", "5"])


@MAJORS
def test_c(job_yaml: Run, major: str, image: str) -> None:
    containers, log = job_yaml(image, "mpi/containers.yaml")
    assert places(log) == expected(list(containers)), log
    assert f"of 4 ranks, by Open MPI v{major}." in log
    agrees(log, "1e-12", falling=False)


@MAJORS
def test_mpi4py(variables: Run, major: str, image: str) -> None:
    containers, log = variables(image, "mpi", "python", "train.py")
    assert places(log) == expected(list(containers)), log
    agrees(log, "1e-10")


@MAJORS
def test_more_ranks_than_cpus(major: str, image: str) -> None:
    """The slots of a lone node are the hostfile's, not its CPUs."""
    skip_without(image)
    slots = (os.cpu_count() or 1) + 2
    run = f"run --rm {image} entrypoint run --launcher mpirun --slots {slots} -- echo hi"
    assert docker(*run.split()).count("hi\n") == slots


def test_a_node_with_the_other_major_is_named_and_nothing_starts(compose: Compose) -> None:
    skip_without(MPI5)
    compose.render(TREE / "examples/mpi/containers.yaml", image=MPI4)
    before, mark, worker_1 = compose.file.read_text().partition('"worker-1":')
    compose.file.write_text(before + mark + worker_1.replace(MPI4, MPI5, 1))
    compose.run("up", "-d")
    containers = compose.containers()
    assert ended(containers) == dict.fromkeys(HOSTS, 78), said(containers)
    for each in containers.values():
        log = logs(each)
        assert "EP450 the nodes have different major versions of Open MPI | worker-0 has 4." in log
        assert "worker-1 has 5." in log
        assert "rank 0" not in log
