"""What this container is: read once, before anything is decided."""

from __future__ import annotations

import contextlib
import os
import pwd
import sys
from collections.abc import Callable, Iterator, Mapping

from entrypoint.model import Facts
from entrypoint.plan.topology import NAMES
from entrypoint.platforms import FILES, SCRIPTS
from entrypoint.system.proc import python_set_locale
from entrypoint.system.process import which
from entrypoint.values import replace

# sshd and its friends live where an ordinary user's PATH does not look.
_SYSTEM_PATH = "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin"
_LONGEST = 16 << 20  # characters of a platform's file
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
    if not user and (library := names_library()):
        programs[NAMES] = library
    env = environment()
    return Facts(
        env=env,
        hostname=os.uname().nodename,
        cwd=cwd(),
        uid=uid,
        user=user,
        home=home,
        device_files=tuple(sorted(os.listdir("/dev"))),
        programs=programs,
        python=sys.executable,
        files=dict(_files()),
        scripts=tuple(_scripts(env)),
    )


def names_library() -> str | None:
    """Where libnss_wrapper is; None where it is not installed."""
    import glob

    # Where Debian, Fedora and Alpine have libraries.
    places = ("lib/*", "lib64", "lib")
    return next((found for place in places for found in glob.glob(f"/usr/{place}/{NAMES}")), None)


def _files() -> Iterator[tuple[str, str]]:
    """Path and content of each file that a platform has put into this container."""
    for path in FILES:
        with contextlib.suppress(OSError):
            for name in sorted(os.listdir(path)) if path.endswith("/") else ("",):
                with contextlib.suppress(OSError), open(path + name, errors="replace") as file:
                    yield path + name, file.read(_LONGEST)


def _scripts(env: Mapping[str, str]) -> Iterator[str]:
    """Paths of the scripts that a platform's own boot would run first."""
    for variable, script in SCRIPTS.items():
        if folder := env.get(variable, "").rstrip("/"):
            with contextlib.suppress(OSError):
                paths = (f"{folder}/{name}/{script}" for name in sorted(os.listdir(folder)))
                yield from filter(os.path.isfile, paths)


def of_job(facts: Facts) -> Callable[[], Facts]:
    """Look at what a program alone does without, since it takes 15 ms: the network, and what mpirun says of itself.

    Returns a function that gives the facts with it, once mpirun has answered: there is time for something else.
    """
    from entrypoint.system import network, openmpi

    mpirun = facts.programs.get("mpirun")
    version = openmpi.version(mpirun) if mpirun else lambda: ""
    params = openmpi.params(mpirun, facts.home) if mpirun else ()
    interfaces = network.interfaces()
    return lambda: replace(facts, interfaces=interfaces, mpi=version(), mpi_params=params)


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
