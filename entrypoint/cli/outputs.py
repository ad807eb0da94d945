"""Writes a command's answer, to stdout or into a file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from entrypoint.base.errors import CantCreateError
from entrypoint.base.model import File
from entrypoint.output.log import Logger, answer

# In the first lines of all that commands write: a comment, or a key of JSON.
_MARKS = (
    b"Rendered by entrypoint",
    b'"entrypoint run"',
    b'_list":',
    b'"traceEvents"',
    b'"urn:training-entrypoint:',
)


def give(text: str, out: str | None, log: Logger, hint: str = "", *beside: File) -> int:
    """Write a command's answer into the file that --out names, with other files next to it, or to
    stdout alone, as `-` does. Returns 0.

    `hint`: what to do with the file.
    """
    if out and out != "-":
        path = Path(out)
        write(path.parent, [File(path.name, text, "", mode=0o644), *beside])
        log(f"wrote {out}{f' | {hint}' if hint else ''}")
    else:
        answer(text)
    return 0


def note_left_out(
    names: Sequence[str],
    log: Logger,
    where: str = "the file",
    hint: str = "give them to the containers",
) -> None:
    """Log which secrets the answer does not have, if any."""
    if names:
        log(f"EP128 secrets are left out of {where} | {', '.join(names)} | {hint}")


def write(folder: Path, output: Sequence[File]) -> None:
    """Write the files of a command, each as a whole.

    Raises CantCreateError if they cannot be written, or if one would replace a file that no command
    has written: then none is.
    """
    from entrypoint.system import files

    try:
        folder.mkdir(parents=True, exist_ok=True)
        if kept := [name for file in output if not _is_ours(name := folder / file.name)]:
            summary = f"EP134 {', '.join(map(str, kept))} exists"
            hint = "give --out another name, or move it away"
            raise CantCreateError(summary, "it stays as it is", hint)
        for file in output:
            files.put(folder / file.name, file.text.encode("utf-8", "surrogateescape"), file.mode)
    except OSError as error:
        detail = error.strerror or str(error)
        raise CantCreateError(
            f"EP112 cannot write into {folder}", detail, "give --out a writable directory"
        ) from None


def _is_ours(path: Path) -> bool:
    """Return whether a command may write this file: there is none, or a regular one of its kind."""
    if not os.path.lexists(path):
        return True
    if path.is_symlink() or not path.is_file():
        return False
    with path.open("rb") as file:
        first = file.read(4096)
    return not first or any(mark in first for mark in _MARKS)
