"""Reads the facts about this container, once, before anything is decided."""

from __future__ import annotations

import contextlib
import os
import pwd
import sys
from collections.abc import Callable, Iterator, Mapping

from entrypoint.base.model import Facts
from entrypoint.base.values import replace
from entrypoint.plan import with_installed
from entrypoint.plan.topology import NAMES
from entrypoint.platforms import FILES, SCRIPTS
from entrypoint.system.folder import own
from entrypoint.system.image import mpi
from entrypoint.system.process import TEMPS, cwd, environment, which

# sshd is in folders that an ordinary user's PATH does not have.
_SYSTEM_PATH = "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin"
_LONGEST = 16 << 20  # characters of a platform's file
END_HOOKS = "/etc/entrypoint/end.d"
_OPENSSH = ("sshd", "ssh")  # the toolkit's own, if it has a folder
_PROGRAMS = ("mpirun", "python", "python3")


def read() -> Facts:
    """Return the facts, from the environment, passwd, /dev and the files on PATH. Writes and starts
    nothing."""
    uid = os.getuid()
    try:
        entry = pwd.getpwuid(uid)
        user = entry.pw_name
        home = entry.pw_dir
    except KeyError:
        user = ""
        home = os.environ.get("HOME", "/")
    env = environment()
    path = f"{env.get('PATH', '')}:{_SYSTEM_PATH}"
    found = {name: own(f"bin/{name}") or which(name, path) for name in _OPENSSH}
    found |= {name: which(name, path) for name in _PROGRAMS}
    found["sh"] = own("bin/sh")
    programs = {name: file for name, file in found.items() if file}
    installed = mpi.find(path, env)
    programs = {name: f"{place.folder}/{name}" for name, place in installed.items()} | programs
    if not user and (library := names_library()):
        programs[NAMES] = library
    return Facts(
        env=env,
        hostname=os.uname().nodename,
        cwd=cwd(),
        uid=uid,
        user=user,
        home=home,
        device_files=tuple(sorted(os.listdir("/dev"))),
        programs=programs,
        installed=installed,
        python=sys.executable,
        files=dict(_files()),
        scripts=tuple(_scripts(env)),
        end_hooks=_has_entries(END_HOOKS),
        temp=next((temp for temp in TEMPS if os.access(temp, os.W_OK | os.X_OK)), TEMPS[0]),
    )


def _has_entries(folder: str) -> bool:
    try:
        return any(not name.startswith(".") for name in os.listdir(folder))
    except OSError:
        return False


def names_library() -> str | None:
    """Return the path of libnss_wrapper; None if there is none."""
    if library := own(f"lib/{NAMES}"):
        return library
    import glob

    # Folders for libraries of Debian, Fedora and Alpine.
    places = ("lib/*", "lib64", "lib")
    return next((file for place in places for file in glob.glob(f"/usr/{place}/{NAMES}")), None)


def _files() -> Iterator[tuple[str, str]]:
    """Yield path and content of each file that a platform has created in this container."""
    for path in FILES:
        with contextlib.suppress(OSError):
            for name in sorted(os.listdir(path)) if path.endswith("/") else ("",):
                with contextlib.suppress(OSError), open(path + name, errors="replace") as file:
                    yield path + name, file.read(_LONGEST)


def _scripts(env: Mapping[str, str]) -> Iterator[str]:
    """Yield the paths of the scripts that a platform's own boot would run first."""
    for variable, script in SCRIPTS.items():
        if folder := env.get(variable, "").rstrip("/"):
            with contextlib.suppress(OSError):
                paths = (f"{folder}/{name}/{script}" for name in sorted(os.listdir(folder)))
                yield from filter(os.path.isfile, paths)


def of_job(facts: Facts) -> Callable[[], Facts]:
    """Begin to read the facts that a single program does not need: the network, and mpirun's
    version and parameters.

    It takes 15 ms. Returns a function that waits for mpirun's answer and returns the complete
    facts.
    """
    from entrypoint.system import cgroups, network

    mpirun = facts.programs.get("mpirun")
    env = with_installed(facts, "mpirun")
    version = mpi.version(mpirun, env) if mpirun else lambda: ""
    params = mpi.params(mpirun, facts.home, env) if mpirun else ()
    interfaces = network.interfaces()
    cpus, pool = cgroups.cpus()
    facts = replace(facts, interfaces=interfaces, mpi_params=params, cpus=cpus, cpu_pool=pool)
    return lambda: replace(facts, mpi=version())
