"""The image's own start: the ENTRYPOINT that an image had before the toolkit was installed into it.

It exports variables, runs hooks and may change the user, so it runs first, with `image-entry` as
its argument, which so inherits what it prepared. This process stays as its parent (parent.py).
scripts/image/install tries and records it (cli/record_start.py); where the toolkit is mounted into
an image, a variable names it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence

from entrypoint.base.errors import ConfigError
from entrypoint.base.secret import masked_words
from entrypoint.base.text import Log
from entrypoint.base.values import frozen
from entrypoint.system import process
from entrypoint.system.folder import own

RECORD = "/etc/entrypoint/image.json"  # also in cli/__init__.py, which imports nothing
INSTALLED = "/usr/local/bin/image-entry"
ENTRY = own("bin/image-entry") or INSTALLED
# Before it has run, the start itself: a JSON list. Then the names of the variables that were there.
VARIABLE = "ENTRYPOINT_IMAGE_START"
_RAN = "ran:"
# First argument of image-entry when the image's own start runs it. Then follow the parent's mark,
# the folder in which the start was begun, and the container's.
HAS_RUN = "--image-started"
# Then, in a build, the status to exit with, and words that a start must leave as they are.
TRIED = "--image-tried"
WORDS = ["two  words", "*", "$HOME", "", "'\""]
_UNWATCHED = ("-", "-", "-")  # process 1 has no parent; execline reads empty words as its own
_OFF = ("no", "done")
# Shells and sudo set or remove these on their own.
_OF_SHELLS = {"_", "PS1", "PWD", "OLDPWD", "SHLVL", "MAIL", "LS_COLORS", VARIABLE}


@frozen
class ImageStart:
    """The image's own way to start programs."""

    argv: tuple[str, ...]  # a program follows it
    # name of process 1 once it has run, if it must be process 1 itself; otherwise ""
    first: str = ""
    folder: str = ""  # where it must begin; "" for anywhere


def read() -> ImageStart | None:
    """Return the start that the variable names, or the record of this image; None if there is none.

    Raises ConfigError if what they say is not one.
    """
    given = os.environ.get(VARIABLE, "")
    place = RECORD if not given or _has_run(given) else VARIABLE
    if place == RECORD and not os.path.exists(RECORD):
        return None
    import json

    try:
        if place == VARIABLE:
            data = {"start": json.loads(given)}
        else:
            with open(RECORD, encoding="utf-8") as file:
                data = json.load(file)
        argv = tuple(data["start"])
        first = data.get("first", "")
        folder = data.get("folder", "")
        are_texts = all(isinstance(word, str) for word in (*argv, first, folder))
        if not isinstance(data["start"], list) or not are_texts:
            raise TypeError("not a list of texts")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            "EP447 the image's own start cannot be used",
            f"{place}: {type(error).__name__}: {error}",
            f"{VARIABLE} is a JSON list, and {RECORD} is written by /opt/entrypoint/install",
        ) from None
    return ImageStart(argv, first, folder) if argv else None


def _has_run(given: str) -> bool:
    return given in _OFF or given.startswith(_RAN)


def run_first(words: Sequence[str], log: Log) -> int | None:
    """Run the image's own start, which then runs image-entry with these words.

    Returns the status with which it ended; None if the image has none or it has run already. Raises
    ConfigError if it must be process 1 and this process is another.
    """
    if _has_run(os.environ.get(VARIABLE, "")):
        return None
    start = read()
    if start is None or (start.first and _name_of_first() == start.first):
        return None
    if start.first and os.getpid() != 1:
        import json

        entrypoint = json.dumps([*start.argv, INSTALLED])
        hint = f"write ENTRYPOINT {entrypoint} into the Dockerfile, or do without it: {VARIABLE}=no"
        raise ConfigError(
            "EP446 the image's own start must be process 1",
            f"{start.argv[0]}; process 1 is {_name_of_first() or 'another'}",
            hint,
        )
    env = process.environment()
    env[VARIABLE] = _RAN + ",".join(sorted({*env} - _OF_SHELLS))
    failed = process.check(start.argv, env, start.folder or process.cwd())
    if start.first and not failed:
        # s6-overlay: otherwise it ends programs 3 s after SIGTERM
        env.setdefault("S6_CMD_RECEIVE_SIGNALS", "1")
        argv = (*start.argv, ENTRY, HAS_RUN, *_UNWATCHED, *words)
        failed = process.replace(argv, env, process.cwd())
    if failed:
        log(f"{failed.reason}; exit {failed.status}")
        return failed.status
    return _run_below(start, words, env, log)


def _run_below(start: ImageStart, words: Sequence[str], env: Mapping[str, str], log: Log) -> int:
    """Run the start below this process. Returns its status, but never 0 if it did not do its
    part."""
    from entrypoint.system.image import parent

    process.show(process.WAITING)
    cwd = process.cwd()
    folder = start.folder or cwd
    mark = os.urandom(16).hex()
    argv = (*start.argv, ENTRY, HAS_RUN, mark, folder, cwd, *words)
    end = parent.run(argv, env, folder, mark)
    assert end.status is not None  # no time limit
    is_waited_for = end.reached and not end.is_left and end.told is not None
    if is_waited_for and (end.status or not end.told):
        return end.status
    status = end.status or end.told or ConfigError.status
    summary = "EP445 the image's own start ended without the program"
    did = "did not wait for it" if end.reached else "did not run it"
    hint = "see what it printed"
    if is_waited_for:
        summary = "EP445 the image's own start has lost the program's status"
        did = f"got {end.told}"
        hint = "let it exit with what the program exits with, as exec does"
    shown = " ".join(masked_words(start.argv))
    log(
        f"{summary} | {shown} {did}, and exited with {end.status} | {hint}, or do without it:"
        f" {VARIABLE}=no; exit {status}"
    )
    return status


def arrive(arguments: Sequence[str], log: Log) -> list[str]:
    """Return the arguments of image-entry that follow HAS_RUN, in the container's folder unless the
    start has chosen another, and report the variables that the start has removed.

    Raises ConfigError if no parent waits for this image-entry, or those variables describe the job:
    each node would then run the program on its own.
    """
    mark, folder, cwd = (*arguments[:3], *_UNWATCHED)[:3]
    words = list(arguments[3:])
    if mark != "-":
        from entrypoint.system.image import parent

        if words[:1] == [TRIED]:
            if words[2:] != WORDS:
                changed = repr(words[2:])
                raise ConfigError("EP445 the image's own start changes its arguments", changed)
            _note_removed(log)
        connection = parent.reach(mark)
        if not connection:
            raise ConfigError(
                "EP445 the image's own start has run its arguments apart from itself",
                "twice, or in the background",
                f"let it run them once, as exec does, or do without it: {VARIABLE}=no",
            )
        if words[:1] == [TRIED]:
            os._exit(int(words[1]))
        parent.stand_by(connection)
    if folder != cwd and process.cwd() == folder:
        os.chdir(cwd)
        os.environ["PWD"] = cwd
    _note_removed(log)
    return words


def _note_removed(log: Log) -> None:
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
    names = names.removeprefix(_RAN)
    return [name for name in names.split(",") if name not in env] if names not in _OFF else []


def _name_of_first() -> str:
    with contextlib.suppress(OSError), open("/proc/1/comm") as file:
        return file.read().strip()
    return ""
