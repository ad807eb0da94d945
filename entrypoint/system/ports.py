"""TCP ports of this host: which ones are free, who holds one, and which ones this node offers."""

from __future__ import annotations

import contextlib
import errno
import socket
import sys

from entrypoint.base.errors import HostError
from entrypoint.base.interfaces import ip
from entrypoint.base.model import LaunchPort, NodeReport
from entrypoint.base.values import replace
from entrypoint.plan.ports import candidates, is_fixed
from entrypoint.spec import JobSpec
from entrypoint.system import proc

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


def holder(port: int, address: str | None = None) -> str:
    """Return who has a port that is not free, at any address or at one: `python (pid 123)`, `a
    process of uid 0`, or `another process` if /proc does not show it; `a connection of ...` if
    nobody listens there."""
    inodes, are_connections = _owners(port, address)
    of = "a connection of " if are_connections else ""
    for inode in inodes:
        for pid, name, _ in proc.processes():
            if any(target == f"socket:[{inode}]" for _, target in proc.open_files(pid)):
                return f"{of}{name} (pid {pid})"
    return of + next((f"a process of uid {uid}" for uid in inodes.values()), "another process")


def is_connection(port: int, address: str | None) -> bool:
    """Return whether only connections have the port, which nobody listens on. The default of
    `ssh.port` is one that Linux gives to outgoing ones, whose end makes it free."""
    return _owners(port, address)[1]


def _as_shown(address: str | None) -> tuple[str, ...]:
    """Return how /proc/net/tcp shows an address, and all addresses; nothing if it is none."""
    if not address or not (known := ip(address)):
        return ()
    words = [known.packed[at : at + 4] for at in range(0, len(known.packed), 4)]
    shown = "".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in words)
    return shown, "0" * 8, "0" * 32


def _owners(port: int, address: str | None) -> tuple[dict[str, str], bool]:
    """Return the inodes of the sockets that listen on the port, or else have it for a connection,
    with their uids; and whether they are connections."""
    found, addresses = [], _as_shown(address)
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError), open(f"/proc/net/{table}") as lines:
            next(lines)
            for row in map(str.split, lines):
                local, number = row[1].split(":")
                has_owner = row[9] != "0"  # TIME_WAIT has none
                is_here = local in addresses or not addresses
                if has_owner and is_here and int(number, 16) == port:
                    found.append(row)
    listeners = [row for row in found if row[3] == _LISTENS]
    owners = {row[9]: row[7] for row in listeners or found}
    return owners, bool(found) and not listeners


def offer(
    spec: JobSpec, wanted: LaunchPort | None, report: NodeReport, job: str, shared: bool
) -> NodeReport:
    """Return the report with the ports that this node's programs can have; or with why it is not
    ready, if the user has set a port that is taken.

    `job` and `shared`: as in `candidates`.
    """
    if wanted is None or not (wanted.here or wanted.also):
        return report
    free: list[int] = []
    by = ""
    for port in candidates(spec, wanted, job, shared):
        ports = [port + offset for offset in wanted.here]
        ports += wanted.also if port == wanted.first else ()
        taken = next((other for other in ports if not is_free(other)), None)
        if taken is None:
            free.append(port)
            if not wanted.everywhere:
                break
        elif port == wanted.first:
            by = holder(taken)
            if taken != port:
                by = f"{by}, which has port {taken}"
    if not is_fixed(spec):
        return replace(report, ports=tuple(free), holder=by)
    if free or not wanted.needed or report.not_ready:
        return report
    error = HostError(
        f"EP435 the launcher's port {wanted.first} is taken",
        f"by {by}",
        f"end it, or set another port: {spec.setting('port')}",
    )
    return replace(report, not_ready=error.outcome)
