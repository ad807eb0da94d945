"""The image's own start: the ENTRYPOINT that an image had before the toolkit was installed into it.

It exports variables, runs hooks and may change the user, so it runs first: this process becomes it,
with `image-entry` as its argument, and so inherits what it prepared. scripts/image/install records
it (record.py).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence

from entrypoint.base.errors import ConfigError
from entrypoint.base.text import Log
from entrypoint.base.values import dataclass
from entrypoint.system import process

RECORD = "/etc/entrypoint/image.json"  # also in cli/__init__.py, which imports nothing
ENTRY = "/usr/local/bin/image-entry"
VARIABLE = "ENTRYPOINT_IMAGE_START"
HAS_RUN = "--image-started"  # first argument of image-entry when the image's own start runs it
_OFF = ("no", "done")
# Shells and sudo set or remove these on their own.
_OF_SHELLS = {"_", "PS1", "PWD", "OLDPWD", "SHLVL", "MAIL", "LS_COLORS", VARIABLE}


@dataclass(frozen=True)
class ImageStart:
    """How an image starts programs on its own."""

    argv: tuple[str, ...]  # a program follows it
    # name of process 1 once it has run, if it must be process 1 itself; otherwise ""
    first: str = ""


def read(path: str = RECORD) -> ImageStart | None:
    """Return the recorded start of this image; None if it has none.

    Raises ConfigError if the record is not one.
    """
    if not os.path.exists(path):
        return None
    import json

    try:
        with open(path, encoding="utf-8") as file:
            data = json.load(file)
        argv = tuple(data["start"])
        if not all(isinstance(word, str) for word in (*argv, data["first"])):
            raise TypeError("not a list of texts")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            "EP447 the record of the image's own start cannot be used",
            f"{path}: {type(error).__name__}: {error}",
            "remove it, and run /opt/entrypoint/install again in the Dockerfile",
        ) from None
    return ImageStart(argv, data["first"]) if argv else None


def run_first(words: Sequence[str], log: Log, path: str = RECORD) -> int:
    """Become the image's own start, which then runs image-entry with these words.

    Returns 0 if the image has none or it has run already, otherwise the status with which it could
    not be started. Raises ConfigError if it must be process 1 and this process is another.
    """
    if os.environ.get(VARIABLE):
        return 0
    start = read(path)
    if start is None or (start.first and _name_of_first() == start.first):
        return 0
    if start.first and os.getpid() != 1:
        import json

        entrypoint = json.dumps([*start.argv, ENTRY])
        hint = f"write ENTRYPOINT {entrypoint} into the Dockerfile, or do without it: {VARIABLE}=no"
        raise ConfigError(
            "EP446 the image's own start must be process 1",
            f"{start.argv[0]}; process 1 is {_name_of_first() or 'another'}",
            hint,
        )
    env = process.environment()
    env[VARIABLE] = ",".join(sorted({*env} - _OF_SHELLS))
    if start.first:  # s6-overlay: otherwise it ends programs 3 s after SIGTERM
        env.setdefault("S6_CMD_RECEIVE_SIGNALS", "1")
    outcome = process.replace((*start.argv, ENTRY, HAS_RUN, *words), env, process.cwd())
    log(f"{outcome.reason}; exit {outcome.status}")
    return outcome.status


def note_run(log: Log) -> None:
    """Note that the image's own start has run, and report the variables that it has removed.

    Raises ConfigError if it has removed those that describe the job: each node would then run the
    program on its own.
    """
    lost = removed(os.environ)
    if lost is None or any(name.startswith("ENTRYPOINT_") for name in lost):
        raise ConfigError(
            "EP445 the image's own start has removed variables of the job",
            "all of the container's" if lost is None else ", ".join(lost),
            f"let it keep them (sudo --preserve-env), or do without it: {VARIABLE}=no",
        )
    if lost:
        log(
            f"EP444 the image's own start has removed variables | {', '.join(lost)} | set them in a"
            " start hook if the job needs them"
        )
    os.environ[VARIABLE] = "done"


def removed(env: Mapping[str, str]) -> list[str] | None:
    """Return the names of variables that were there before the image's own start; None if even
    their list is missing."""
    names = env.get(VARIABLE)
    if names is None:
        return None
    return [name for name in names.split(",") if name not in env] if names not in _OFF else []


def _name_of_first() -> str:
    with contextlib.suppress(OSError), open("/proc/1/comm") as file:
        return file.read().strip()
    return ""
