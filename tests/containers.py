"""Real containers of the real images: starting them, reading what they say and how they ended."""

from __future__ import annotations

import functools
import gc
import os
import re
import secrets
import subprocess
import time
import warnings
from contextlib import suppress
from datetime import datetime
from io import BytesIO
from typing import Any

import pytest
from docker import DockerClient
from docker.errors import APIError, DockerException, ImageNotFound
from docker.models.containers import Container
from requests.exceptions import ConnectionError, ReadTimeout

IMAGE, ASCEND = IMAGES = ("entrypoint-gpu:dev", "entrypoint-ascend:dev")
MPI4, MPI5, MPICH = "entrypoint-mpi:dev", "entrypoint-mpi:trixie", "entrypoint-hydra:trixie"
TENSORFLOW, MINDSPORE = "entrypoint-tensorflow:dev", "entrypoint-mindspore:dev"
JAX, ACCELERATE = "entrypoint-jax:dev", "entrypoint-accelerate:dev"
DEEPSPEED, LIGHTNING = "entrypoint-deepspeed:dev", "entrypoint-lightning:dev"
RAY = "entrypoint-ray:dev"


@functools.cache
def engine() -> DockerClient:
    """The container engine. Raises DockerException where none answers."""
    return DockerClient.from_env(timeout=120)


def docker(*words: str, check: bool = True, timeout: float = 120) -> str:
    """stdout of one docker command, as a user types it; fails with its stderr."""
    done = subprocess.run(
        ["docker", *words], capture_output=True, text=True, timeout=timeout, check=False
    )
    assert not check or done.returncode == 0, f"docker {' '.join(words)}: {done.stderr}"
    return done.stdout


@functools.cache
def missing(image: str = IMAGE) -> str | None:
    """Why container tests can't run here, or None."""
    try:
        engine().images.get(image)
    except ImageNotFound:
        return f"no image {image}; run scripts/build-image"
    except DockerException:
        pass
    else:
        return None
    # The client has left its socket open, and the warning would come in another test.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
    return "no container engine answers; run scripts/dev/setup-engine"


def skip_without(image: str) -> None:
    """Skip the test where containers of this image cannot run."""
    if reason := missing(image):
        pytest.skip(reason)


def container(name: str) -> Container:
    """A container as it is now, by its id or name."""
    return engine().containers.get(name)


def kill(name: str) -> None:
    """End a container by SIGKILL, unless it has ended already."""
    try:
        container(name).kill()
    except APIError as error:
        if error.status_code != 409:  # not running
            raise


def stop(name: str) -> None:
    """End a container as `docker stop` does: SIGTERM, and 10 s."""
    container(name).stop()


def inspect(name: str) -> dict[str, Any]:
    answer: dict[str, Any] = container(name).attrs
    return answer


def exit_code(container: str) -> int:
    return int(inspect(container)["State"]["ExitCode"])


def stamp(text: str) -> float:
    # Nanoseconds, of which Python takes six digits.
    whole, _, fraction = text.rstrip("Z").partition(".")
    return datetime.fromisoformat(f"{whole}+00:00").timestamp() + float(f"0.{fraction or 0}")


def started_at(container: str) -> float:
    return stamp(inspect(container)["State"]["StartedAt"])


def finished_at(container: str) -> float:
    return stamp(inspect(container)["State"]["FinishedAt"])


def logs(name: str, stderr: bool = True) -> str:
    """stdout of a container, then its stderr, with one kind of line ends."""
    of = container(name)
    data = of.logs(stderr=False) + (of.logs(stdout=False) if stderr else b"")
    return re.sub("\r\n?", "\n", data.decode())


def wait(*names: str, timeout: float = 120) -> None:
    """Return when all these containers have ended. Raises TimeoutError if some run on."""
    ends = time.monotonic() + timeout
    try:
        for name in names:
            container(name).wait(timeout=max(0.1, ends - time.monotonic()))
    except (ConnectionError, ReadTimeout):
        raise TimeoutError(f"not all of {names} ended within {timeout} s") from None


def remove(*names: str) -> None:
    """Remove containers with their volumes, if they are still there."""
    for name in names:
        with suppress(APIError):
            container(name).remove(v=True, force=True)


def build(tag: str, dockerfile: str) -> None:
    engine().images.build(fileobj=BytesIO(dockerfile.encode()), tag=tag)


def new_network(**options: Any) -> str:
    name = f"ep{os.getpid()}-{secrets.token_hex(2)}"
    engine().networks.create(name, **options)
    return name
