"""Real containers of the real images: starting them, reading what they say and how they ended."""

from __future__ import annotations

import functools
import os
import re
import secrets
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from io import BytesIO
from pathlib import Path
from typing import Any

from docker import DockerClient
from docker.errors import APIError, DockerException, ImageNotFound
from docker.models.containers import Container
from requests.exceptions import ConnectionError, ReadTimeout

TREE = Path(__file__).resolve().parent.parent
IMAGE, ASCEND = IMAGES = ("entrypoint-gpu:dev", "entrypoint-ascend:dev")


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
        return "no container engine answers; run scripts/dev/setup-engine"
    return None


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


class Compose:
    """A compose project, from a file that `entrypoint deploy compose` rendered, by this `tool` or
    the one there is."""

    def __init__(
        self, folder: Path, project: str, tool: Sequence[str] = (f"{TREE}/scripts/dev/compose",)
    ) -> None:
        self.folder, self.project, self.tool = folder, project, tool
        self.file = folder / "compose.yaml"

    def render(self, spec: Path, *command: str, image: str = IMAGE) -> None:
        secret = self.folder / "secret"
        secret.write_text(secrets.token_hex(32))
        secret.chmod(0o444)  # the container's user is not this one
        words = [
            "deploy",
            "compose",
            "--spec",
            str(spec),
            "--image",
            image,
            "--out",
            str(self.file),
        ]
        words += ["--", *command] if command else []
        subprocess.run([sys.executable, "-m", "entrypoint", *words], check=True)

    def run(self, *words: str, timeout: float = 150) -> str:
        done = self.call(*words, timeout=timeout)
        return done.stdout + done.stderr

    def call(self, *words: str, timeout: float = 150) -> subprocess.CompletedProcess[str]:
        argv = [*self.tool, "-p", self.project, "-f", str(self.file), *words]
        return subprocess.run(argv, capture_output=True, text=True, timeout=timeout, check=False)

    def containers(self) -> dict[str, str]:
        """Service -> container id."""
        mine = {"label": f"com.docker.compose.project={self.project}"}
        found = engine().containers.list(all=True, filters=mine)
        return dict(sorted((of.labels["com.docker.compose.service"], str(of.id)) for of in found))

    def down(self) -> None:
        if self.file.exists():
            self.run("down", "--timeout", "0", "--volumes")


class ModelArts:
    """Containers with ModelArts' variables and no spec: the program is where they start, the rest
    they find out."""

    CODE = "/home/ma-user/modelarts/user-job-dir/code"

    def __init__(self, network: str) -> None:
        self.network, self.job = network, f"ma-job-{network}"
        self.names: list[str] = []

    def hosts(self, task: str, count: int) -> list[str]:
        """Names as ModelArts gives them: host, then the job's domain."""
        return [f"{self.job}-{task}-{index}.{self.job}" for index in range(count)]

    def start(
        self,
        image: str,
        example: str,
        *command: str,
        tasks: Mapping[str, int] | None = None,
        env: Mapping[str, str] | None = None,
        gpus: int = 2,
        mounts: tuple[str, ...] = (),
    ) -> dict[str, str]:
        """The containers of every task, two workers where not given: host -> id. A variable that is
        "" is not set."""
        tasks, started = tasks or {"worker": 2}, {}
        shared = {
            "MA_JOB_DIR": str(Path(self.CODE).parent),
            "MA_NUM_HOSTS": str(sum(tasks.values())),
            "MA_NUM_GPUS": str(gpus),
            "MA_VJ_NAME": self.job,
            "OMP_NUM_THREADS": "1",
            "ENTRYPOINT_SECRET": secrets.token_hex(32),
            **{
                f"VC_{task.upper()}_HOSTS": ",".join(self.hosts(task, count))
                for task, count in tasks.items()
            },
            **(env or {}),
        }
        for task, count in tasks.items():
            for index, host in enumerate(self.hosts(task, count)):
                short = host.split(".")[0]
                own = {
                    "MA_TASK_NAME": task,
                    "VC_TASK_INDEX": str(index),
                    "MA_CURRENT_INSTANCE_NAME": short,
                }
                started[short] = self.container(
                    image, host, example, *command, env={**shared, **own}, mounts=mounts
                )
        return started

    def container(
        self,
        image: str,
        host: str,
        example: str,
        *command: str,
        env: Mapping[str, str],
        mounts: tuple[str, ...] = (),
        options: tuple[str, ...] = (),
    ) -> str:
        """One of them, with the example's folder as its code."""
        short = host.split(".")[0]
        words = [word for name, value in env.items() if value for word in ("-e", f"{name}={value}")]
        for mount in (f"{TREE}/examples/{example}:{self.CODE}:ro", *mounts):
            words += ["-v", mount]
        self.names.append(f"{self.network}-{short.removeprefix(f'{self.job}-')}")
        return docker(
            "run", "-d", "--name", self.names[-1], "--hostname", short, "--network", self.network,
            "--network-alias", host, "-w", self.CODE, *words, *options, image, *command,
        ).strip()  # fmt: skip

    def remove(self) -> None:
        remove(*self.names)
