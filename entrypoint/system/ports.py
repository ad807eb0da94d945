"""TCP ports of this host: which ones are free, who holds one, and which ones this node claims.

A program binds its port long after the roll call has chosen it. Until then, nodes of several jobs
on one host network exclude each other by claims: names in the abstract namespace (unix(7)), which
belong to the network namespace, as ports do, and end with their process.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from collections.abc import Iterable, Iterator

from entrypoint.errors import OsError
from entrypoint.interfaces import ip
from entrypoint.model import LaunchPort, NodeReport
from entrypoint.plan.ports import candidates, is_fixed
from entrypoint.spec import JobSpec
from entrypoint.system import proc
from entrypoint.values import replace

_LISTENS = "0A"  # the state LISTEN in /proc/net/tcp (proc_pid_net(5))
_ANY = [(socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")]


def is_free(port: int, address: str | None = None) -> bool:
    """Return whether a program could listen on the port, at all addresses of this host, or at one.

    Other errors than a taken port, such as a port below 1024, are left to the program to report.
    """
    hosts = _ANY
    if address and ip(address):
        hosts = [(socket.AF_INET6 if ":" in address else socket.AF_INET, address)]
    return all(_can_bind(family, host, port) for family, host in hosts)


def _can_bind(family: int, host: str, port: int) -> bool:
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            # Programs set it, too. It lets them have a port whose connections are still in
            # TIME_WAIT, but none on which somebody listens (socket(7)).
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            probe.bind((host, port))
    except OSError as error:
        return error.errno != errno.EADDRINUSE
    return True


def holder(port: int) -> str:
    """Return who listens on a port: `python (pid 123)`, `a process of uid 0`, or "" if nobody is
    seen to."""
    inodes = dict(_listeners(port))
    for inode in inodes:
        for pid, name, _ in proc.processes():
            if inode in _sockets(pid):
                return f"{name} (pid {pid})"
    return next((f"a process of uid {uid}" for uid in inodes.values()), "")


def _listeners(port: int) -> Iterator[tuple[str, str]]:
    """Yield the inode and the uid of each socket that listens on the port."""
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError), open(f"/proc/net/{table}") as lines:
            for line in lines:
                fields = line.split()
                if fields[3] == _LISTENS and int(fields[1].rpartition(":")[2], 16) == port:
                    yield fields[9], fields[7]


def _sockets(pid: int) -> set[str]:
    """Return the inodes of a process's sockets; none of a process that we may not look into."""
    inodes = set()
    with contextlib.suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                kind, _, inode = os.readlink(f"/proc/{pid}/fd/{name}").partition(":")
                if kind == "socket":
                    inodes.add(inode.strip("[]"))
    return inodes


class PortClaims:
    """The ports that this node keeps for the programs of its job, until `close`."""

    def __init__(self) -> None:
        # first port of a block -> its claims
        self._claims: dict[int, list[socket.socket]] = {}

    def offer(
        self, spec: JobSpec, wanted: LaunchPort | None, report: NodeReport, job: str
    ) -> NodeReport:
        """Return the report with the ports that this node's programs can have, which are claimed
        from now on; or with why it is not ready, if the user has set a port that is taken.

        `job` is the name of this attempt of the job, which its nodes alone know.
        """
        self.close()
        if wanted is None or not (wanted.here or wanted.also):
            return report
        fixed = is_fixed(spec, wanted.path)
        free: list[int] = []
        by = ""
        for port in candidates(spec, wanted, job):
            ports = [port + offset for offset in wanted.here]
            ports += wanted.also if port == wanted.first else ()
            if taken := self._take(port, ports, job, fixed):
                by = by or _holder(port, *taken)
            else:
                free.append(port)
                if not wanted.everywhere:
                    break
        if not fixed:
            return replace(report, ports=tuple(free), holder=by)
        if free or not wanted.needed or report.not_ready:
            return report
        hint = f"end it, or set another port: {spec.setting(wanted.path)}"
        error = OsError(f"EP435 port {wanted.first} is taken ({wanted.path})", f"by {by}", hint)
        return replace(report, not_ready=error.outcome)

    def _take(
        self, first: int, ports: Iterable[int], job: str, fixed: bool
    ) -> tuple[int, str] | None:
        """Claim the ports of a block. Return None, or one that is taken, and "another job" if it is
        only claimed; a `fixed` port is taken only if somebody listens on it."""
        claims: list[socket.socket] = []
        self._claims[first] = claims
        for port in ports:
            listens = not is_free(port)
            if listens or not (claim(port, job, claims) or fixed):
                self._drop(first)
                return port, "" if listens else "another job"
        return None

    def keep(self, first: int) -> None:
        """Keep the claims of the block with this first port, and drop the others."""
        for other in [port for port in self._claims if port != first]:
            self._drop(other)

    def close(self) -> None:
        """Drop all claims."""
        self.keep(0)

    def _drop(self, first: int) -> None:
        for claim in self._claims.pop(first):
            claim.close()


def _holder(first: int, port: int, by: str) -> str:
    """Return who has a port of the block that begins with `first`, if `by` does not say it."""
    by = by or holder(port) or "another process"
    return by if port == first else f"{by}, which has port {port}"


def claim(port: int, job: str, claims: list[socket.socket]) -> bool:
    """Claim a port for the job. Return whether no other job has claimed it.

    Nodes of one job on one host share its ports: each has its own address, or they differ in their
    ports. The second name shows that the first one is held for this job.
    """
    mark = _bind(f"{port}/{job}")
    own = _bind(str(port))
    claims += [each for each in (own, mark) if each]
    return own is not None or mark is None


def _bind(name: str) -> socket.socket | None:
    """Return a socket with this name, or None if another one has it."""
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        claim.bind(f"\0entrypoint/port/{name}")
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            claim.close()
            return None
    return claim
