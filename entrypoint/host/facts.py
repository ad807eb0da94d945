"""What this container is: read once, before anything is decided."""

from __future__ import annotations

import contextlib
import glob
import os
import pwd
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

from entrypoint.host import interfaces
from entrypoint.host.proc import python_set_locale
from entrypoint.model import Facts
from entrypoint.plan.topology import NAMES

# sshd and its friends live where an ordinary user's PATH does not look.
_SYSTEM_PATH = "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin"
_PROGRAMS = ("sshd", "ssh", "mpirun")


def read() -> Facts:
    """The facts, from the environment, the passwd file, /dev and the programs on PATH. Writes nothing."""
    uid = os.getuid()
    try:
        entry = pwd.getpwuid(uid)
        user, home = entry.pw_name, entry.pw_dir
    except KeyError:
        user, home = "", os.environ.get("HOME", "/")
    path = f"{os.environ.get('PATH', '')}:{_SYSTEM_PATH}"
    programs = {name: found for name in _PROGRAMS if (found := shutil.which(name, path=path))}
    if not user and (library := glob.glob(f"/usr/lib/*/{NAMES}")):
        programs[NAMES] = library[0]
    return Facts(
        env=_environment(),
        hostname=socket.gethostname(),
        cwd=_cwd(),
        uid=uid,
        user=user,
        home=home,
        device_files=tuple(sorted(os.listdir("/dev"))),
        programs=programs,
        python=sys.executable,
        mpi=_mpi_version(programs.get("mpirun")),
        interfaces=interfaces.read(),
        mpi_params=_mpi_params(programs.get("mpirun"), home),
    )


def _environment() -> dict[str, str]:
    """The environment as the container got it."""
    env = dict(os.environ)
    if python_set_locale():
        del env["LC_CTYPE"]
    return env


def _cwd() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        return "/"


def _mpi_params(mpirun: str | None, home: str) -> tuple[str, ...]:
    """Parameters that files set: for some, Open MPI accepts no second value on the command line."""
    if mpirun is None:
        return ()
    prefix = Path(os.environ.get("OPAL_PREFIX") or Path(mpirun).resolve().parent.parent)
    folders = (prefix / "etc", Path("/etc/openmpi"))
    names: list[str] = []
    for path in (Path(home) / ".openmpi/mca-params.conf", *(each / "openmpi-mca-params.conf" for each in folders)):
        with contextlib.suppress(OSError):
            names += re.findall(r"^[ \t]*(\w+)[ \t]*=", path.read_text(errors="replace"), re.M)
    return tuple(names)


def _mpi_version(mpirun: str | None) -> str:
    """Such as "4.1.4"; "" where mpirun is absent, not Open MPI's, or does not answer."""
    if mpirun is None:
        return ""
    try:
        answer = subprocess.run(
            [mpirun, "--version"], capture_output=True, text=True, timeout=20, check=False, stdin=subprocess.DEVNULL
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""
    found = re.search(r"\(Open MPI\) (\d+\.\d+\.\d+)", answer)
    return found.group(1) if found else ""
