"""What this container is: read once, before anything is decided."""

from __future__ import annotations

import array
import contextlib
import fcntl
import glob
import ipaddress
import os
import pwd
import re
import socket
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

from entrypoint.host.proc import python_set_locale
from entrypoint.host.process import which
from entrypoint.model import Facts, Interface
from entrypoint.plan.topology import NAMES
from entrypoint.values import replace

# sshd and its friends live where an ordinary user's PATH does not look.
_SYSTEM_PATH = "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin"
_PROGRAMS = ("sshd", "ssh", "mpirun")
_CONF, _FLAGS, _MASK = 0x8912, 0x8913, 0x891B  # SIOCGIFCONF, SIOCGIFFLAGS, SIOCGIFNETMASK of netdevice(7)
_ENTRY, _MOST = 40, 256  # bytes of a struct ifreq, and how many are asked for
_UP, _LOOPBACK = 0x1, 0x8


def read() -> Facts:
    """The facts, from the environment, the passwd file, /dev and the files on PATH. Writes and starts nothing."""
    uid = os.getuid()
    try:
        entry = pwd.getpwuid(uid)
        user, home = entry.pw_name, entry.pw_dir
    except KeyError:
        user, home = "", os.environ.get("HOME", "/")
    path = f"{os.environ.get('PATH', '')}:{_SYSTEM_PATH}"
    programs = {name: found for name in _PROGRAMS if (found := which(name, path))}
    if not user and (library := glob.glob(f"/usr/lib/*/{NAMES}")):
        programs[NAMES] = library[0]
    return Facts(
        env=environment(),
        hostname=socket.gethostname(),
        cwd=cwd(),
        uid=uid,
        user=user,
        home=home,
        device_files=tuple(sorted(os.listdir("/dev"))),
        programs=programs,
        python=sys.executable,
        interfaces=interfaces(),
    )


def with_mpi(facts: Facts) -> Facts:
    """The facts, and what mpirun says of itself, which takes 10 ms: a program alone does without."""
    if not (mpirun := facts.programs.get("mpirun")):
        return facts
    return replace(facts, mpi=_mpi_version(mpirun), mpi_params=_mpi_params(mpirun, facts.home))


def environment() -> dict[str, str]:
    """The environment as the container got it."""
    env = dict(os.environ)
    if python_set_locale():
        del env["LC_CTYPE"]
    return env


def cwd() -> str:
    """The working directory; / where it is gone."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return "/"


def _mpi_params(mpirun: str, home: str) -> tuple[str, ...]:
    """Parameters that files set: for some, Open MPI accepts no second value on the command line."""
    prefix = Path(os.environ.get("OPAL_PREFIX") or Path(mpirun).resolve().parent.parent)
    folders = (prefix / "etc", Path("/etc/openmpi"))
    names: list[str] = []
    for path in (Path(home) / ".openmpi/mca-params.conf", *(each / "openmpi-mca-params.conf" for each in folders)):
        with contextlib.suppress(OSError):
            names += re.findall(r"^[ \t]*(\w+)[ \t]*=", path.read_text(errors="replace"), re.M)
    return tuple(names)


def _mpi_version(mpirun: str) -> str:
    """Such as "4.1.4"; "" where mpirun is not Open MPI's, or does not answer."""
    import subprocess

    try:
        answer = subprocess.run(
            [mpirun, "--version"], capture_output=True, text=True, timeout=20, check=False, stdin=subprocess.DEVNULL
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""
    found = re.search(r"\(Open MPI\) (\d+\.\d+\.\d+)", answer)
    return found.group(1) if found else ""


def interfaces() -> tuple[Interface, ...]:
    """The network interfaces that are up and have an address for others to call; never the loopback one."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
            return (*_of_ipv4(asked), *_of_ipv6(asked))
    except OSError:
        return ()


def _of_ipv4(asked: socket.socket) -> Iterator[Interface]:
    buffer = array.array("B", bytes(_ENTRY * _MOST))
    at, _ = buffer.buffer_info()
    size, _ = struct.unpack("iP", fcntl.ioctl(asked.fileno(), _CONF, struct.pack("iP", len(buffer), at)))
    for start in range(0, size, _ENTRY):
        entry = buffer[start : start + _ENTRY].tobytes()
        label = entry[:16].split(b"\0")[0].decode(errors="replace")
        if _is_up(asked, label):
            mask = socket.inet_ntoa(fcntl.ioctl(asked.fileno(), _MASK, entry)[20:24])
            yield _interface(label, socket.inet_ntoa(entry[20:24]), mask)


def _of_ipv6(asked: socket.socket) -> Iterator[Interface]:
    text = ""
    with contextlib.suppress(OSError):
        text = Path("/proc/net/if_inet6").read_text()
    for line in text.splitlines():
        address, _, prefix, scope, _, name = line.split()
        if scope == "00" and _is_up(asked, name):  # 20 is of the link alone
            yield _interface(name, socket.inet_ntop(socket.AF_INET6, bytes.fromhex(address)), str(int(prefix, 16)))


def _is_up(asked: socket.socket, name: str) -> bool:
    request = struct.pack("40s", name.encode()[:15])
    flags = struct.unpack_from("H", fcntl.ioctl(asked.fileno(), _FLAGS, request), 16)[0]
    return bool(flags & _UP) and not flags & _LOOPBACK


def _interface(label: str, address: str, mask: str) -> Interface:
    network = ipaddress.ip_network(f"{address}/{mask}", strict=False)
    return Interface(label.partition(":")[0], address, str(network))  # eth0:1 is a second address of eth0
