"""What each rendered file starts in an image that starts something else by itself, or that has no
toolkit: the toolkit, or an error. Pods are run as a kubelet would: `command` replaces the image's
ENTRYPOINT and CMD."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from entrypoint.spec import load
from entrypoint.tools.deploy import kubernetes
from entrypoint.tools.deploy._kinds import KINDS
from entrypoint.tools.deploy._options import Options
from tests.composed import Compose
from tests.containers import IMAGE, build, container, docker, engine, exit_code, remove, wait
from tests.unit.test_deploy_start import of_kubernetes

SPEC = "name: demo\nslots: 1\nlauncher: plain\ncommand: [sh, -c, 'echo trained; exit 7']\n"
IMAGES = {
    "an ENTRYPOINT of its own": 'ENTRYPOINT ["/bin/true"]',
    "CMD bash": 'ENTRYPOINT []\nCMD ["/bin/bash"]',
    "no toolkit": "USER 0\nRUN rm -r /opt/entrypoint /usr/local/bin/entrypoint\n"
    'USER 1000\nENTRYPOINT []\nCMD ["/bin/bash"]',
}
MISSING = 'exec: "entrypoint": executable file not found in $PATH'


@pytest.fixture(params=IMAGES)
def odd(request: pytest.FixtureRequest) -> Iterator[tuple[str, int]]:
    """An image and the status that a job has in it; 127 and docker's own words without a start."""
    name = f"entrypoint-test-start:{os.getpid()}"
    build(name, f"FROM {IMAGE}\n{IMAGES[request.param]}\n")
    yield name, 127 if request.param == "no toolkit" else 7
    engine().images.remove(name, force=True)


def pod(folder: Path, kind: str, image: str) -> subprocess.CompletedProcess[str]:
    """Run the only Pod of a job of this kind."""
    (folder / "job.yaml").write_text(SPEC)
    options = Options(image=image, nodes=1, kind=kind, spec_text=SPEC)
    text = kubernetes.render(load(SPEC, "job.yaml", {}, {}), options)
    ((program, *args),) = of_kubernetes(text)
    words = ["-v", f"{folder}:/spec:ro", "-e", "ENTRYPOINT_SPEC=/spec/job.yaml"]
    return subprocess.run(
        ["docker", "run", "--rm", *words, "--entrypoint", program, image, *args],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip


@pytest.mark.promise("a rendered file starts the toolkit, whatever the image starts by itself")
@pytest.mark.parametrize("kind", KINDS)
def test_a_pod_trains_or_fails(folder: Path, kind: str, odd: tuple[str, int]) -> None:
    name, status = odd
    done = pod(folder, kind, name)
    assert done.returncode == status, done.stdout + done.stderr
    assert ("trained\n" in done.stdout) == (status == 7)
    assert (MISSING in done.stderr) == (status == 127)


@pytest.mark.promise("a rendered file starts the toolkit, whatever the image starts by itself")
def test_a_composed_job_trains_or_fails(folder: Path, odd: tuple[str, int]) -> None:
    name, status = odd
    (folder / "job.yaml").write_text(f"{SPEC}hosts: [alone]\n")
    project = Compose(folder, f"ep{os.getpid()}")
    project.render(folder / "job.yaml", image=name)
    try:
        done = project.call("up", "--exit-code-from", "alone")
        said = done.stdout + done.stderr
        assert done.returncode != 0, said
        assert ("trained" in said) == (status == 7), said
        assert (MISSING in said) == (status == 127), said
        assert status == 127 or done.returncode == status
    finally:
        project.down()


@pytest.mark.parametrize("stop", ["TERM", "INT"])
def test_a_program_that_handles_no_signal_is_stopped(folder: Path, stop: str) -> None:
    """It would be process 1, and the kernel would keep the signal from it."""
    words: Any = ["-d", "--entrypoint", "entrypoint", IMAGE, "run", "--", "sleep", "600"]
    box = docker("run", *words).strip()
    try:
        docker("exec", box, "sh", "-c", "until pidof sleep; do sleep .1; done")
        container(box).kill(stop)
        wait(box, timeout=10)
        assert exit_code(box) == {"TERM": 143, "INT": 130}[stop]
    finally:
        remove(box)


@pytest.mark.control("a rendered file starts the toolkit, whatever the image starts by itself")
def test_arguments_alone_leave_the_start_to_the_image() -> None:
    words = ["docker", "run", "--rm", "--entrypoint", "/bin/true", IMAGE, "entrypoint", "run"]
    assert subprocess.run(words, check=False, timeout=60).returncode == 0
