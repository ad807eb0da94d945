"""What this container is: read once, before anything is decided."""

from __future__ import annotations

import os
import pwd
import sys

from entrypoint.host.proc import python_set_locale
from entrypoint.host.process import which
from entrypoint.model import Facts
from entrypoint.plan.topology import NAMES
from entrypoint.values import replace

# sshd and its friends live where an ordinary user's PATH does not look.
_SYSTEM_PATH = "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin"
_PROGRAMS = ("sshd", "ssh", "mpirun")


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
    if not user:
        import glob

        if library := glob.glob(f"/usr/lib/*/{NAMES}"):
            programs[NAMES] = library[0]
    return Facts(
        env=environment(),
        hostname=os.uname().nodename,
        cwd=cwd(),
        uid=uid,
        user=user,
        home=home,
        device_files=tuple(sorted(os.listdir("/dev"))),
        programs=programs,
        python=sys.executable,
    )


def of_job(facts: Facts) -> Facts:
    """The facts, and what a program alone does without, since it takes 15 ms: the network, and what mpirun says."""
    from entrypoint.host import network, openmpi

    facts = replace(facts, interfaces=network.interfaces())
    if not (mpirun := facts.programs.get("mpirun")):
        return facts
    return replace(facts, mpi=openmpi.version(mpirun), mpi_params=openmpi.params(mpirun, facts.home))


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
