"""What `entrypoint deploy compose` renders, by `docker compose` v2 and by docker-compose 1.29: what
each reads in every case, and a job of two nodes under the real mpirun.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import TREE
from tests.composed import Compose
from tests.containers import IMAGE as GPU
from tests.containers import MPI4, engine, skip_without
from tests.golden_deploy import cases, made
from tests.rows import agrees, expected, places, said
from tests.waits import until

IMAGE = MPI4
SPEC = TREE / "examples/mpi/containers.yaml"
TOOLKIT = "entrypoint-toolkit:dev"
UNPREPARED = ["entrypoint-base:bookworm", "entrypoint-bake-base:musl"]
PLAIN = "hosts: [worker-0, worker-1]\nslots: 1\nlauncher: plain\ncommand: [sh, -c, '{program}']\n"
START = '["sh", "-c", "export PREPARED=yes; exec \\"$@\\"", "start"]'
TOOLS = {"v2": (("docker", "compose"), "2."), "v1.29": (("docker-compose",), "1.29.")}
CASES = [case for case in cases() if case.parent.name == "compose"]


@pytest.fixture(params=TOOLS)
def tool(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """The words that start this compose."""
    words, number = TOOLS[request.param]
    try:
        done = subprocess.run(
            [*words, "version", "--short"], capture_output=True, text=True, check=False
        )
        version = done.stdout.strip().removeprefix("v")
    except FileNotFoundError:
        version = "none"
    if not version.startswith(number):
        pytest.skip(
            f"{' '.join(words)} is {version or 'none'}, not {number}*; Debian 12's package"
            " docker-compose is 1.29"
        )
    return words


@pytest.fixture
def project(folder: Path, tool: tuple[str, ...]) -> Iterator[Compose]:
    made = Compose(folder, f"ep{os.getpid()}", tool)
    yield made
    made.down()


def left(project: Compose) -> list[str]:
    """What of the project there still is."""
    mine, of = {"label": f"com.docker.compose.project={project.project}"}, engine()
    containers = of.containers.list(all=True, filters=mine)
    found = (*containers, *of.networks.list(filters=mine), *of.volumes.list(filters=mine))
    return [str(each.id) for each in found]


@pytest.mark.promise(
    "a deployed compose file runs on compose v2 and v1.29, and `down` leaves nothing"
)
@pytest.mark.deployed("compose", "{case.name}", "config of compose {tool}")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_file_says_the_same_to_each_compose(case: Path, project: Compose) -> None:
    text = made(case)
    project.file.write_text(text)
    done = project.call("config")
    assert (done.returncode, done.stderr) == (0, "")
    seen, given = (yaml.safe_load(each)["services"] for each in (done.stdout, text))
    assert {*seen} == {*given}
    for name, service in given.items():
        if name == "entrypoint-toolkit":
            continue
        assert {key: seen[name][key] for key in ("environment", "image", "hostname")} == {
            key: service[key] for key in ("environment", "image", "hostname")
        }
        assert (seen[name]["entrypoint"], seen[name].get("command")) == (
            service["entrypoint"],
            None,
        )
        assert cards(seen[name]) == cards(service)


def cards(service: dict[str, Any]) -> Any:
    """What a service is given of this machine's cards; compose has two ways to write a device."""
    reserved = (
        service.get("deploy", {}).get("resources", {}).get("reservations", {}).get("devices", [])
    )
    files = [
        each["source"] if isinstance(each, dict) else each.split(":")[0]
        for each in service.get("devices", [])
    ]
    return [
        (each["driver"], each["capabilities"], each.get("device_ids")) for each in reserved
    ], files


@pytest.mark.control(
    "a deployed compose file runs on compose v2 and v1.29, and `down` leaves nothing"
)
@pytest.mark.deployed("compose", "a file with a mistake", "refused by compose {tool}")
def test_a_mistake_is_refused(project: Compose) -> None:
    """The control."""
    project.file.write_text(made(CASES[0]).replace("hostname:", "hostnam:", 1))
    done = project.call("config")
    assert done.returncode != 0
    assert "hostnam" in done.stderr


@pytest.mark.promise(
    "a deployed compose file runs on compose v2 and v1.29, and `down` leaves nothing"
)
@pytest.mark.deployed(
    "compose", "two nodes, mpirun: 0, all ranks", "up --exit-code-from and down, compose {tool}"
)
def test_a_job_of_two_nodes_runs_and_leaves_nothing(project: Compose) -> None:
    project.render(SPEC, image=IMAGE)
    up = project.call("up", "--exit-code-from", "worker-0")
    assert up.returncode == 0, up.stdout + up.stderr
    containers = project.containers()
    log = said(containers)
    assert places(log) == expected(["worker-0", "worker-1"])
    assert "the token is 600 after 100 laps of 4 ranks, by Open MPI" in log
    assert left(project)
    down = project.call("down")
    assert down.returncode == 0, down.stderr
    assert left(project) == []


@pytest.mark.control(
    "a deployed compose file runs on compose v2 and v1.29, and `down` leaves nothing"
)
@pytest.mark.deployed(
    "compose", "two nodes, mpirun: a rank ends with 7", "up --exit-code-from, compose {tool}"
)
def test_a_failing_program_gives_its_status(project: Compose) -> None:
    project.render(
        SPEC, "sh", "-c", 'ring 10; exit "$((OMPI_COMM_WORLD_RANK == 3 ? 7 : 0))"', image=IMAGE
    )
    up = project.call("up", "--exit-code-from", "worker-0")
    assert up.returncode == 7, up.stdout + up.stderr


@pytest.mark.promise("an image that nobody prepared runs by `deploy compose --inject`", control="status 7, and what the start prepared, in the same test")  # fmt: skip
@pytest.mark.deployed(
    "compose", "--inject, --start: {status}", "up --exit-code-from, down --volumes, compose {tool}"
)
@pytest.mark.parametrize("status", [0, 7])
@pytest.mark.parametrize("unprepared", UNPREPARED)
def test_an_unprepared_image_runs_and_leaves_nothing(
    status: int, unprepared: str, project: Compose
) -> None:
    """a bare Debian, and busybox with musl; by the lines of the file's own head"""
    skip_without(TOOLKIT)
    program = f'echo "rank $RANK: $PREPARED"; [ "$RANK" = 0 ] || exit {status}'
    spec = project.folder / "job.yaml"
    spec.write_text(PLAIN.format(program=program))
    spec.chmod(0o644)
    project.render(spec, image=unprepared, options=["--inject", TOOLKIT, "--start", START])
    (up,) = re.findall(r"(?m)^#   docker compose -f THIS_FILE (up .*)$", project.file.read_text())
    done = project.call(*up.split())
    assert done.returncode == status, done.stdout + done.stderr
    log = said({name: of for name, of in project.containers().items() if "worker" in name})
    assert [f"rank {rank}: yes" in log for rank in (0, 1)] == [True, True], log
    assert project.call("down", "--volumes").returncode == 0
    assert left(project) == []


@pytest.mark.promise("a program saves where --mount says, and the next run goes on from there")
@pytest.mark.deployed("compose", "--mount: killed, and run again", "it goes on from its checkpoint")
def test_a_job_goes_on_from_its_checkpoint(compose: Compose) -> None:
    out = compose.folder / "out"
    out.mkdir()
    out.chmod(0o777)  # the container's user is not this one
    program = ["train.py", "--steps", "40", "--pause", "0.1", "--checkpoint", "/out/checkpoint.pt"]
    spec = TREE / "examples/pytorch/torchrun.yaml"
    compose.render(spec, *program, image=GPU, options=["--mount", f"{out}:/out"])
    compose.run("up", "--detach")
    until(lambda: "step 10 loss" in said(compose.containers()), "ten steps")
    assert "from step 0" in said(compose.containers())  # the control
    compose.run("kill")
    compose.run("down")
    assert [file.name for file in out.iterdir()] == ["checkpoint.pt"]
    up = compose.call("up", "--exit-code-from", "worker-0")
    assert up.returncode == 0, up.stdout + up.stderr
    log = said(compose.containers())
    steps = {int(step) for step in re.findall(r", from step (\d+)", log)}
    assert (len(steps), 10 <= min(steps) < 40) == (1, True), log
    agrees(log, "1e-10")
