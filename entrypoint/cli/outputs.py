"""Writes a command's answer, to stdout or into a file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from entrypoint.errors import CantCreateError
from entrypoint.model import File
from entrypoint.output.log import answer

if TYPE_CHECKING:
    from pathlib import Path

    from entrypoint.output.log import Logger


def give(text: str, out: str | None, log: Logger) -> int:
    """Write a command's answer into the file that --out names, or to stdout. Returns 0."""
    if out:
        from pathlib import Path

        path = Path(out)
        write(path.parent, [File(path.name, text, "")])
        log(f"wrote {out}")
    else:
        answer(text)
    return 0


def write(folder: Path, output: Sequence[File]) -> None:
    """Write the files of a command, each as a whole. Raises CantCreateError if they cannot be
    written."""
    from entrypoint.system import files

    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file in output:
            files.put(folder / file.name, file.text.encode("utf-8", "surrogateescape"), file.mode)
    except OSError as error:
        detail = error.strerror or str(error)
        raise CantCreateError(
            f"EP112 cannot write into {folder}", detail, "give --out a writable place"
        ) from None
