"""What run_mpi.sh and mpirun's agent leave in the run directory about the start of mpirun."""

from __future__ import annotations

import shlex
from pathlib import Path

from entrypoint.secret import masked_words

_ESCAPES = {"\n": "\\n", "\t": "\\t", "'": "\\'", "\\": "\\\\"}  # in bash's $'...'
_NO_LOGIN = 255  # ssh's own status; any other is that of what it started
_CANNOT_START = (126, 127)  # the image lacks the daemon


def line(run_dir: Path) -> str:
    """The words that mpirun was started with, without secrets; "" where run_mpi.sh has not written them yet."""
    file = run_dir / "line"
    if not file.is_file():
        return ""
    return " ".join(map(_quoted, masked_words(file.read_bytes().decode(errors="replace").split("\0")[:-1])))


def _quoted(word: str) -> str:
    """A word as bash reads it, in one line: a program given by `python -c` has many."""
    if word.isprintable():
        return shlex.quote(word)
    escaped = (_ESCAPES.get(each, each if each.isprintable() else f"\\U{ord(each):08x}") for each in word)
    return f"$'{''.join(escaped)}'"


def failed_login(run_dir: Path) -> str:
    """The login of mpirun's that failed, from the file that its agent (mpirun/agent.sh.j2) wrote."""
    for file in sorted(run_dir.glob("login.*")):
        host, status = file.name.removeprefix("login."), file.read_text().strip()
        if status.isdigit() and int(status) not in _CANNOT_START:
            what = "mpirun's login" if int(status) == _NO_LOGIN else "the start of mpirun's daemon"
            return f"{what} failed on {host} | ssh exited with {status} | see that node's log, and the network"
    return ""
