"""Networks for nodes on this machine: a namespace for each, so that two may listen on one port. And
`local`."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.local import Local


def ip(words: str, check: bool = True) -> bool:
    done = subprocess.run(["ip", *words.split()], capture_output=True, text=True, check=False)
    assert not check or done.returncode == 0, f"ip {words}: {done.stderr}"
    return done.returncode == 0


@pytest.fixture
def spaces() -> Iterator[Callable[..., list[str]]]:
    """Two namespaces that reach each other over eth1, or by another name in the second; so many
    have eth0, too."""
    made = [f"ep{os.getpid()}-{number}" for number in range(3)]
    if not ip(f"netns add {made[2]}", check=False):
        pytest.skip("may not make network namespaces here")

    def make(
        second: int, name_there: str = "eth1", third: str = "", ipv6: bool = False
    ) -> list[str]:
        a, b, nowhere = made
        for number, name in enumerate((a, b)):
            ip(f"netns add {name}")
            ip(f"-n {name} link set lo up")
            if number < second:
                ip(f"-n {name} link add eth0 type veth peer name x{number} netns {nowhere}")
                ip(f"-n {nowhere} link set x{number} up")
                ip(f"-n {name} address add 10.78.0.{number + 1}/24 dev eth0")
                ip(f"-n {name} link set eth0 up")
                ip(f"-n {name} neigh add 10.78.0.{2 - number} lladdr 02:00:00:00:00:99 dev eth0")
        lead = [
            ("eth1", name_there, "10.77.0.{}/24"),
            *([("ib0", third, "10.79.0.{}/24")] if third else []),
        ]
        for here, there, addresses in lead:
            ip(f"-n {a} link add {here} type veth peer name {there} netns {b}")
            for number, (name, link) in enumerate(((a, here), (b, there))):
                address = f"fd77::{number + 1}/64" if ipv6 else addresses.format(number + 1)
                ip(f"-n {name} address add {address} dev {link}{' nodad' * ipv6}")
                ip(f"-n {name} link set {link} up")
        return [a, b]

    yield make
    for name in made:
        ip(f"netns delete {name}", check=False)


@pytest.fixture
def local() -> Iterator[Callable[..., Local]]:
    """Starts `entrypoint local` with these words and variables; what it leaves is ended with the
    test."""
    made: list[Local] = []
    # Short, since a run directory's path is.
    with tempfile.TemporaryDirectory(prefix="ep-", dir="/tmp") as folder:

        def start(*words: str, cwd: Path | None = None, **env: str) -> Local:
            made.append(Local(Path(folder) / str(len(made)), words, env, cwd))
            return made[-1]

        yield start
        for each in made:
            for pid in each.pids():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            each.process.wait()
            print(each.out, each.err)  # pytest shows it where the test failed
