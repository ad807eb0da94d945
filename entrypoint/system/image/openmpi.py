"""Version and configured parameters of this image's Open MPI."""

from __future__ import annotations

import contextlib
import re
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from entrypoint.system.files import read


def params(mpirun: str, home: str, env: Mapping[str, str]) -> tuple[str, ...]:
    """Return the parameters that files set: for some, Open MPI accepts no second value on the
    command line."""
    prefix = Path(env.get("OPAL_PREFIX") or Path(mpirun).resolve().parent.parent)
    folders = (prefix / "etc", Path("/etc/openmpi"))
    names: list[str] = []
    for path in (
        Path(home) / ".openmpi/mca-params.conf",
        *(folder / "openmpi-mca-params.conf" for folder in folders),
    ):
        with contextlib.suppress(OSError):
            text = read(str(path), 1.0).decode("utf-8", "replace")
            names += re.findall(r"^[ \t]*(\w+)[ \t]*=", text, re.M)
    return tuple(names)


def version(mpirun: str, env: Mapping[str, str]) -> Callable[[], str]:
    """Ask mpirun for its version, in its environment, which takes 10 ms, and return a function that
    waits for the answer.

    The version is, for example, "4.1.4"; "" if mpirun is not Open MPI's, or does not answer.
    """
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
        return match.group(1) if match else ""

    return answer
