"""Where images keep an MPI that is not on PATH, or that was moved after it was built."""

from __future__ import annotations

import os
from collections.abc import Mapping

from entrypoint.model import Installation
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
    beside = [f"{hpcx}/{name}" for name in _OF_HPCX] if "hpcx" in os.path.basename(hpcx) else []
    libraries = tuple(filter(os.path.isdir, (*beside, f"{prefix}/lib")))
    return Installation(folder, libraries, prefix if was_moved else "")
