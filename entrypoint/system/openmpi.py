"""What the Open MPI of this image says of itself."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from collections.abc import Callable
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


def version(mpirun: str) -> Callable[[], str]:
    """Ask mpirun, which takes 10 ms for its answer. The function that is returned waits for it.

    It is such as "4.1.4"; "" where mpirun is not Open MPI's, or does not answer.
    """
    nothing = subprocess.DEVNULL
    try:
        asked = subprocess.Popen(
            [mpirun, "--version"], stdin=nothing, stdout=subprocess.PIPE, stderr=nothing, text=True
        )
    except OSError:
        return lambda: ""

    def answer() -> str:
        with asked:
            try:
                text, _ = asked.communicate(timeout=20)
            except subprocess.TimeoutExpired:
                return ""
            finally:
                asked.kill()  # where it has not ended; a signal may have stopped our wait
        found = re.search(r"\(Open MPI\) (\d+\.\d+\.\d+)", text)
        return found.group(1) if found else ""

    return answer
