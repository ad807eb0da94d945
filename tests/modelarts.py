"""Containers as ModelArts starts them."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path

from tests import TREE
from tests.containers import docker, remove, skip_without


class ModelArts:
    """Containers with ModelArts' variables and no spec: the program is where they start, the rest
    they find out."""

    CODE = "/home/ma-user/modelarts/user-job-dir/code"

    def __init__(self, network: str) -> None:
        self.network = network
        self.job = f"ma-job-{network}"
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
        skip_without(image)
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
