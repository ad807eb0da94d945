"""A job in containers of the real image, to which a test makes a fault."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from shlex import split

from tests.containers import IMAGE, container, docker, exit_code, logs, remove, wait
from tests.waits import until

PAIR = ["worker-0", "worker-1"]
# Programs, as shell scripts: one process a container, which is known by the container's name.
UP = 'echo "$HOSTNAME is up"; '
TRAINS = f"{UP}exec sleep 1000"


class Job:
    """`start` its containers, give it a fault, then look at how all of them ended. `close` leaves
    nothing behind."""

    def __init__(self, network: str, launcher: str, hosts: Sequence[str]) -> None:
        self.network = network
        self.hosts = list(hosts)
        self.image = IMAGE
        self.boxes: dict[str, str] = {}
        self.env = {
            "ENTRYPOINT_HOSTS": ",".join(hosts),
            "ENTRYPOINT_SLOTS": "1",
            "ENTRYPOINT_SECRET": secrets.token_hex(32),
            "ENTRYPOINT_LAUNCHER": launcher,
            "ENTRYPOINT_TIMEOUTS_PEERS": "60",
            "OMP_NUM_THREADS": "1",
        }

    def start(
        self,
        *command: str,
        hosts: Sequence[str] | None = None,
        env: Mapping[str, str] | None = None,
        options: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        """Start the containers of these hosts, all where not given, at once.

        `options` are docker's, for one host each, or for all under "".
        """
        given, environment = options or {}, {**self.env, **(env or {})}
        variables = [
            word for name, value in environment.items() for word in ("-e", f"{name}={value}")
        ]

        def run(host: str) -> str:
            own = (*given.get("", ()), *given.get(host, ()))
            where = (
                () if "--network" in own else ("--network", self.network, "--network-alias", host)
            )
            return docker(
                *split("run -d --no-healthcheck --hostname"),
                host,
                *where,
                *variables,
                *own,
                self.image,
                *command,
            ).strip()

        hosts = self.hosts if hosts is None else hosts
        with ThreadPoolExecutor(len(hosts)) as pool:
            # The leader last or first must make no difference; the workers first is what a platform
            # usually does.
            self.boxes |= dict(zip(reversed(hosts), pool.map(run, reversed(hosts)), strict=True))

    def close(self) -> None:
        if self.boxes:
            boxes, self.boxes = list(self.boxes.values()), {}
            with ThreadPoolExecutor(len(boxes)) as pool:
                list(pool.map(remove, boxes))

    def log(self, host: str) -> str:
        return logs(self.boxes[host])

    def logs(self) -> str:
        return "".join(f"--- {host}\n{self.log(host)}" for host in sorted(self.boxes))

    def up(self) -> None:
        """Wait until every host's program is up."""

        def are_up() -> bool:
            gone = [host for host, box in self.boxes.items() if not running(box)]
            assert not gone, f"{gone} ended early:\n{self.logs()}"
            return set(re.findall(r"(worker-\d) is up", self.logs())) == set(self.hosts)

        until(are_up, "every program is up")

    def says(self, host: str, words: str) -> None:
        until(lambda: words in self.log(host), f"{host} says {words}")

    def ends(self, seconds: float = 60, hosts: Sequence[str] | None = None) -> dict[str, int]:
        """Each container's status, once all of them have ended."""
        boxes = {host: self.boxes[host] for host in sorted(hosts or self.boxes)}
        try:
            wait(*boxes.values(), timeout=seconds)
        except TimeoutError:
            running_still = [host for host, box in boxes.items() if running(box)]
            raise AssertionError(
                f"{running_still} not ended in {seconds} s:\n{self.logs()}"
            ) from None
        return {host: exit_code(box) for host, box in boxes.items()}

    def last_line(self, host: str) -> str:
        """The entrypoint's own last line, which says why."""
        lines = [line for line in self.log(host).splitlines() if line.startswith("[entrypoint ")]
        return lines[-1] if lines else ""


def running(box: str) -> bool:
    return bool(container(box).attrs["State"]["Running"])


Make = Callable[..., Job]  # the fixture's type
