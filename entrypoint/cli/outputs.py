"""A command's answer: on stdout, or in a file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from entrypoint.errors import CantCreateError
from entrypoint.host.speaker import answer
from entrypoint.model import File

if TYPE_CHECKING:
    from pathlib import Path

    from entrypoint.host.speaker import Logger


def give(text: str, out: str | None, log: Logger) -> int:
    """A command's answer, in the file that --out names or on stdout."""
    if out:
        from pathlib import Path

        path = Path(out)
        write(path.parent, [File(path.name, text, "")])
        log(f"wrote {out}")
    else:
        answer(text)
    return 0


def write(folder: Path, made: Sequence[File]) -> None:
    """Files of a command, each as a whole. Raises CantCreateError where they cannot be written."""
    from entrypoint.host import files

    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file in made:
            files.put(folder / file.name, file.text.encode("utf-8", "surrogateescape"), file.mode)
    except OSError as error:
        seen = error.strerror or str(error)
        raise CantCreateError(f"EP112 cannot write into {folder}", seen, "give --out a writable place") from None
