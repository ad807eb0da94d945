"""The MPI of this image: where it is, if it is not on PATH or was moved after it was built, and
version and configured parameters of Open MPI."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Mapping

from entrypoint.base.model import Installation
from entrypoint.system.process import which

# NVIDIA's images and HPC-X; the packages of Fedora and Red Hat, which are used through modules.
_FOLDERS = {
    "mpirun": ("/usr/local/mpi/bin", "/opt/hpcx/ompi/bin", "/usr/lib64/openmpi/bin"),
    "mpiexec.hydra": ("/usr/lib64/mpich/bin",),
}
# HPC-X is unpacked wherever its user wants; hpcx-init.sh sets the library path from these.
_OF_HPCX = ("ucx/lib", "ucx/lib/ucx", "ucc/lib", "ucc/lib/ucc", "hcoll/lib", "sharp/lib")


def find(path: str, env: Mapping[str, str], root: str = "") -> dict[str, Installation]:
    """Return where the programs of an MPI are that do not run by this PATH and environment alone.

    `root` is put in front of the well-known folders.
    """
    places = {}
    for name, folders in _FOLDERS.items():
        file = which(name, path) or which(name, ":".join(root + folder for folder in folders))
        if file and (place := _installation(os.path.dirname(file), path, env)):
            places[name] = place
    return places


def _installation(folder: str, path: str, env: Mapping[str, str]) -> Installation | None:
    """Return what the programs of this folder need; None if PATH and environment are enough."""
    prefix = os.path.dirname(os.path.realpath(folder))
    hpcx = os.path.dirname(prefix)
    was_moved = "hpcx" in os.path.basename(hpcx) and not env.get("OPAL_PREFIX")
    if folder in path.split(":") and not was_moved:
        return None
    added = [f"{hpcx}/{name}" for name in _OF_HPCX] if "hpcx" in os.path.basename(hpcx) else []
    libraries = tuple(filter(os.path.isdir, (*added, f"{prefix}/lib")))
    return Installation(folder, libraries, prefix if was_moved else "")


def params(mpirun: str, home: str, env: Mapping[str, str]) -> tuple[str, ...]:
    """Return the parameters that files set: for some, Open MPI accepts no second value on the
    command line."""
    from entrypoint.system.files import read

    prefix = env.get("OPAL_PREFIX") or os.path.dirname(os.path.dirname(os.path.realpath(mpirun)))
    names: list[str] = []
    for path in (
        f"{home}/.openmpi/mca-params.conf",
        f"{prefix}/etc/openmpi-mca-params.conf",
        "/etc/openmpi/openmpi-mca-params.conf",
    ):
        with contextlib.suppress(OSError):
            text = read(path, 1.0).decode("utf-8", "replace")
            names += re.findall(r"^[ \t]*(\w+)[ \t]*=", text, re.M)
    return tuple(names)


def version(mpirun: str, env: Mapping[str, str]) -> Callable[[], str]:
    """Ask mpirun for its version, in its environment, which takes 10 ms, and return a function that
    waits for the answer.

    The version is, for example, "4.1.4"; "" if mpirun is not Open MPI's, or does not answer.
    """
    import subprocess  # slow to import, and a program alone asks no mpirun

    null = subprocess.DEVNULL
    try:
        process = subprocess.Popen(
            [mpirun, "--version"],
            stdin=null,
            stdout=subprocess.PIPE,
            stderr=null,
            text=True,
            env=env,
        )
    except OSError:
        return lambda: ""

    def answer() -> str:
        with process:
            try:
                text, _ = process.communicate(timeout=20)
            except subprocess.TimeoutExpired:
                return ""
            finally:
                process.kill()  # it may still run if a signal has interrupted the wait
        match = re.search(r"\(Open MPI\) (\d+\.\d+\.\d+)", text)
        return match[1] if match else ""

    return answer
