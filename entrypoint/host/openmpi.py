"""What the Open MPI of this image says of itself."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from pathlib import Path


def params(mpirun: str, home: str) -> tuple[str, ...]:
    """Parameters that files set: for some, Open MPI accepts no second value on the command line."""
    prefix = Path(os.environ.get("OPAL_PREFIX") or Path(mpirun).resolve().parent.parent)
    folders = (prefix / "etc", Path("/etc/openmpi"))
    names: list[str] = []
    for path in (Path(home) / ".openmpi/mca-params.conf", *(each / "openmpi-mca-params.conf" for each in folders)):
        with contextlib.suppress(OSError):
            names += re.findall(r"^[ \t]*(\w+)[ \t]*=", path.read_text(errors="replace"), re.M)
    return tuple(names)


def version(mpirun: str) -> str:
    """Such as "4.1.4"; "" where mpirun is not Open MPI's, or does not answer."""
    try:
        answer = subprocess.run(
            [mpirun, "--version"], capture_output=True, text=True, timeout=20, check=False, stdin=subprocess.DEVNULL
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""
    found = re.search(r"\(Open MPI\) (\d+\.\d+\.\d+)", answer)
    return found.group(1) if found else ""
