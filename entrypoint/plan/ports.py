"""The ports from which the nodes choose if a default port is taken, and the port of sshd. Every
node computes the same ones."""

from __future__ import annotations

from binascii import crc32

from entrypoint.model import LaunchPort, Node, Source, of_task
from entrypoint.spec import DEFAULT, JobSpec
from entrypoint.spec.rules import port_range
from entrypoint.values import replace

EVERYWHERE = 8  # ports that every node of a job offers
_ALONE = 64  # that worker-0 looks at where it is the only one to decide


def is_fixed(spec: JobSpec, path: str) -> bool:
    """Return whether the user or the platform has set this port, which is then kept."""
    return spec.source(path) != DEFAULT


def candidates(
    spec: JobSpec, wanted: LaunchPort, job: str, shared: bool = False
) -> tuple[int, ...]:
    """Return the planned port, and first ports of blocks of the range that can replace it.

    They begin at another block for each `job`, a text that all its nodes know, so that jobs that
    start together seldom want the same ones. If a scheduler may start several jobs on one host
    (`shared`), the planned port comes last.
    """
    if is_fixed(spec, wanted.path):
        return (wanted.first,)
    number = EVERYWHERE if wanted.everywhere else _ALONE
    blocks = _blocks(spec, wanted.span, job, number - 1)
    return (*blocks, wanted.first) if shared else (wanted.first, *blocks)


def ssh_port(spec: JobSpec, node: Node, seed: str) -> int:
    """Return the port of a node's sshd.

    `seed`: a text that all nodes of the job know, and that differs from job to job.
    """
    if node.ssh_port:
        return node.ssh_port
    (port,) = _blocks(spec, 2, seed, 1)
    return of_task(port, node.task)


def _blocks(spec: JobSpec, span: int, seed: str, number: int) -> tuple[int, ...]:
    """Return the first ports of `number` blocks of `span` ports, or of all if there are fewer."""
    first, last = port_range(spec.network.ports)
    blocks = (last - first + 1) // span
    start = crc32(seed.encode())
    return tuple(first + (start + i) % blocks * span for i in range(min(number, blocks)))


def with_port(spec: JobSpec, path: str, port: int) -> JobSpec:
    """Return the spec with the port that the roll call has chosen for this setting."""
    section, _, name = path.partition(".")
    changed = replace(getattr(spec, section), **{name: port})
    sources = {**spec._sources, path: Source("the roll call")}
    return replace(spec, **{section: changed, "_sources": sources})
