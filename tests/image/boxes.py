"""`docker run` as its users type it, and what came of it; two containers of one job."""

from __future__ import annotations

import functools
import secrets
import subprocess
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.containers import docker, engine, exit_code, logs, remove, wait

# What a cluster that trusts nobody starts a container with.
HARDENED = (
    "--read-only", "--tmpfs", "/tmp", "--tmpfs", "/run", "--cap-drop", "ALL", "--security-opt", "no-new-privileges",
)  # fmt: skip
# What an sshd run by root gives its rights up with.
ROOT_NEEDS = ("--cap-add", "SETUID", "--cap-add", "SETGID", "--cap-add", "SYS_CHROOT")


@dataclass(frozen=True)
class Done:
    """How a container ended, and what it said."""

    status: int
    out: str
    err: str
    seconds: float


def run(image: str, *words: str, options: Sequence[str] = (), timeout: float = 60) -> Done:
    """`docker run --rm OPTIONS IMAGE WORDS`, to its end."""
    begun = time.monotonic()
    argv = ["docker", "run", "--rm", *options, image, *words]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=timeout, check=False)
    return Done(done.returncode, done.stdout, done.stderr, time.monotonic() - begun)


def said(image: str, *words: str, options: Sequence[str] = ()) -> str:
    """stdout of a container that ended well."""
    done = run(image, *words, options=options)
    assert done.status == 0, done
    return done.out


def sh(image: str, script: str, *options: str) -> str:
    """stdout of a shell in the image, without anything of ours."""
    return said(image, "-c", script, options=("--entrypoint", "sh", *options)).strip()


@functools.cache
def python(image: str) -> tuple[str, ...]:
    """The image's Python, as a command begins with it; the toolkit's own, isolated, where the image
    has none."""
    return (
        ("python",)
        if sh(image, "command -v python || true")
        else ("/opt/entrypoint/bin/python3", "-I")
    )


@contextmanager
def started(image: str, *words: str, options: Sequence[str] = ()) -> Iterator[str]:
    """A container in the background; removed at the end, whatever it does."""
    box = docker("run", "--detach", *options, image, *words).strip()
    try:
        yield box
    finally:
        remove(box)


class Pair:
    """Two nodes of one job on a network of their own, started by environment alone."""

    def __init__(self, image: str, options: Sequence[str] = (), slots: int = 2) -> None:
        self.image, self.options, self.slots = image, tuple(options), slots
        self.name = f"im{uuid.uuid4().hex[:8]}"
        self.secret = secrets.token_hex(32)
        self.boxes: dict[int, str] = {}

    def start(self, rank: int, *words: str, options: Sequence[str] = ()) -> str:
        """Start one node with this program."""
        words = (*self.options_of(rank), *options, self.image, *words)
        self.boxes[rank] = docker(
            "run", "--detach", "--network-alias", f"worker-{rank}", *words
        ).strip()
        return self.boxes[rank]

    def options_of(self, rank: int) -> tuple[str, ...]:
        """What docker is given of this node."""
        given = {
            "ENTRYPOINT_HOSTS": "worker-0,worker-1",
            "ENTRYPOINT_SLOTS": str(self.slots),
            "ENTRYPOINT_SECRET": self.secret,
            "ENTRYPOINT_TIMEOUTS_PEERS": "20",
        }
        variables = (word for name, value in given.items() for word in ("--env", f"{name}={value}"))
        return ("--network", self.name, "--hostname", f"worker-{rank}", *variables, *self.options)

    def start_both(self, *words: str) -> None:
        for rank in (1, 0):
            self.start(rank, *words)

    def ends(self) -> list[int]:
        """Exit status of both, worker-0 first."""
        wait(*self.boxes.values())
        return [exit_code(self.boxes[rank]) for rank in sorted(self.boxes)]

    def logs(self) -> str:
        return "\n".join(f"--- worker-{rank}\n{logs(box)}" for rank, box in self.boxes.items())

    def __enter__(self) -> Pair:
        engine().networks.create(self.name)
        return self

    def __exit__(self, *_: object) -> None:
        remove(*self.boxes.values())
        engine().networks.get(self.name).remove()


def write(path: Path, text: str, mode: int = 0o644) -> Path:
    """A file with this text and mode."""
    path.write_text(text)
    path.chmod(mode)
    return path
