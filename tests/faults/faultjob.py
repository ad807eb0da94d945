"""A job in containers of the real image, the faults that it is given, and how long it took all of
them to end."""

from __future__ import annotations

import os
import re
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from shlex import split

import pytest
from docker.models.containers import Container

from tests.cluster import until
from tests.containers import container, docker, engine, exit_code, finished_at, logs, remove, wait

BOTH = pytest.mark.parametrize("launcher", ["mpirun", "torchrun"])
HOSTS = [f"worker-{rank}" for rank in range(4)]

# Programs, as shell scripts: one process a container, which is known by the container's name.
UP = 'echo "$HOSTNAME is up"; '
TRAINS = f"{UP}exec sleep 1000"
NOW = "$(date +%s.%N)"  # every container has the engine's clock
_SAVE = f'echo "$HOSTNAME told at {NOW}"; sleep 3; echo "$HOSTNAME saved"; exit 0'
SAVES = f"trap '{_SAVE}' TERM INT; {UP}while :; do sleep 0.1; done"
STUBBORN = f"trap '' TERM INT; {UP}while :; do sleep 0.1; done"
# A container's memory, a program that takes all of it (far more than launcher and entrypoint, so
# that it is the one the kernel kills), and what is said then.
LITTLE = ("--memory", "512m", "--memory-swap", "512m")
EATS = "exec tail /dev/zero"
SPENT = "out of memory: limit 512 MiB, peak 512 MiB"
# Whose words hold what $1 says: its process group and id. A shell that looks is not among them.
_FIND = 'pgrep -f -o -- "$1"'


class Job:
    """`start` its containers, give it a fault, then look at how all of them ended. `close` leaves
    nothing behind."""

    def __init__(
        self,
        network: str,
        launcher: str,
        hosts: Sequence[str],
        image: str,
        note: Callable[..., None],
    ) -> None:
        self.network, self.launcher, self.hosts, self.image = network, launcher, list(hosts), image
        self._note = note
        self.secret = secrets.token_hex(32)
        self.boxes: dict[str, str] = {}
        self.env = {
            "ENTRYPOINT_HOSTS": ",".join(hosts),
            "ENTRYPOINT_SLOTS": "1",
            "ENTRYPOINT_SECRET": self.secret,
            "ENTRYPOINT_LAUNCHER": launcher,
            "ENTRYPOINT_TIMEOUTS_PEERS": "60",
            "OMP_NUM_THREADS": "1",
        }
        note("containers", f"{len(hosts)} x 1")

    # -- containers

    def start(
        self,
        *command: str,
        hosts: Sequence[str] | None = None,
        env: Mapping[str, str] | None = None,
        options: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        """Start the containers of these hosts, all where not given, at once. A variable that is ""
        is not set.

        `options` are docker's, for one host each, or for all under "".
        """
        given, environment = options or {}, {**self.env, **(env or {})}
        variables = [
            word
            for name, value in environment.items()
            if value
            for word in ("-e", f"{name}={value}")
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

    def times(self, words: str) -> dict[str, float]:
        """Host -> the time that it printed after these words."""
        return {
            host: float(at)
            for host, at in re.findall(rf"(worker-\d) {words} (\d+\.\d+)", self.logs())
        }

    def up(self, count: int | None = None, seconds: float = 90) -> None:
        """Wait until every host's program is up."""
        wanted = len(self.hosts) if count is None else count

        def are_up() -> bool:
            gone = [host for host, box in self.boxes.items() if not running(box)]
            assert not gone, f"{gone} ended early:\n{self.logs()}"
            return len(set(re.findall(r"(worker-\d) is up", self.logs()))) >= wanted

        until(are_up, seconds, "every program is up")

    def says(self, host: str, words: str, seconds: float = 30) -> None:
        until(lambda: words in self.log(host), seconds, f"{host} says {words}")

    # -- faults, each with its time by the engine's clock

    def kill(self, host: str, signal: str = "KILL") -> float:
        return self._event("kill", host, lambda box: box.kill(signal))

    def stop(self, host: str) -> float:
        return self._event("kill", host, lambda box: box.stop(timeout=60))

    def pause(self, host: str) -> float:
        return self._event("pause", host, Container.pause)

    def resume(self, host: str) -> float:
        return self._event("unpause", host, Container.unpause)

    def cut_off(self, host: str) -> float:
        network = engine().networks.get(self.network)
        return self._event("disconnect", host, lambda box: network.disconnect(box, force=True))

    def _event(self, action: str, host: str, do: Callable[[Container], object]) -> float:
        begun, box = time.time(), container(self.boxes[host])
        do(box)
        span = {"since": f"{begun:.6f}", "until": f"{time.time():.6f}"}
        for event in engine().events(**span, filters={"event": action}, decode=True):
            actor = event["Actor"]
            if box.id in (actor["ID"], actor["Attributes"].get("container")):
                return float(event["timeNano"]) / 1e9
        raise AssertionError(f"the engine tells of no {action} of {box.name}")

    def inside(self, host: str, script: str, *words: str) -> str:
        """stdout of a shell in a container."""
        return docker("exec", self.boxes[host], "sh", "-c", script, "sh", *words)

    def kill_inside(self, host: str, pattern: str, signal: str = "KILL") -> float:
        """Signal the oldest process in a container whose command line matches; returns when."""
        # Not by -f with the whole pattern in this shell's own line, which would match too.
        script = f'pid=$({_FIND}) && date +%s.%N && kill -{signal} "$pid"'
        return float(self.inside(host, script, f"[{pattern[0]}]{pattern[1:]}"))

    def processes(self, host: str) -> list[str]:
        """What runs in a container; of a program the name alone, but for sleep."""
        top = container(self.boxes[host]).top(ps_args="-eo pid,args")
        every = [args.split() for _, args in top["Processes"]]
        return [
            " ".join(words) if words[0] == "sleep" else os.path.basename(words[0])
            for words in every
        ]

    # -- ends

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

    def took(self, fault: float, hosts: Sequence[str] | None = None) -> float:
        """Seconds from the fault to the last of these containers' end."""
        return max(finished_at(self.boxes[host]) for host in (hosts or self.boxes)) - fault

    def within(self, bound: float, seconds: float) -> None:
        """Note what was measured, for the table, and hold it to its bound."""
        self._note("seconds", seconds)
        assert seconds <= bound, (
            f"{seconds:.1f} s, where {bound:.1f} s are the bound:\n{self.logs()}"
        )

    def last_line(self, host: str) -> str:
        """The entrypoint's own last line, which says why."""
        lines = [line for line in self.log(host).splitlines() if line.startswith("[entrypoint ")]
        return lines[-1] if lines else ""


def running(box: str) -> bool:
    return bool(container(box).attrs["State"]["Running"])


Make = Callable[..., Job]  # the fixture's type
