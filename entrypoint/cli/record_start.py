"""Records the image's own start while the toolkit is installed into an image.

A build cannot read the image's ENTRYPOINT, so it is given. It counts if it runs image-entry here,
once and with its words as they are, and exits with its status. Only s6-overlay's, which must be
process 1, cannot be tried in a build.

    python3 -m entrypoint.cli.record_start [ENTRYPOINT]

ENTRYPOINT is a JSON list, as `docker inspect` prints it, `none`, or empty. It prints lines for the
new image's Dockerfile.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Sequence

from entrypoint.base.errors import EntrypointError, UsageError
from entrypoint.base.text import words_from_json
from entrypoint.system import proc, process
from entrypoint.system.image import parent
from entrypoint.system.image import start as image_start
from entrypoint.system.image.start import ImageStart

_TINI = ("/usr/bin/tini", "-s", "--")
# Inits that only start a program; the toolkit has its own in front.
_INITS = {"tini", "tini-static", "dumb-init", "docker-init", "catatonit"}
_VALUED = ("-p", "-e", "-r", "--rewrite")  # their options with a value
_LIMIT = 60.0  # seconds for a start that is tried
_S6 = ("/command/s6-svscan", "/bin/s6-svscan", "/usr/bin/s6-svscan")
# From version 3 on, the environment of s6-overlay reaches programs only through this.
_WITH_ENVIRONMENT = ("/command/with-contenv", "/usr/bin/with-contenv")


def main() -> int:
    """Record the start. Returns the exit status."""
    lines = os.dup(1)
    with open(os.devnull) as null:
        os.dup2(null.fileno(), 0)
    os.dup2(2, 1)  # what a start prints that is tried
    try:
        entrypoint = given(sys.argv[1] if len(sys.argv) > 1 else "")
        if entrypoint is None:
            recorded = image_start.read()
            entrypoint = recorded.argv if recorded else ()
        start = checked(entrypoint)
        if start or os.path.exists(image_start.RECORD):
            _write(start or ImageStart(()))
    except EntrypointError as error:
        _say(str(error))
        return error.status
    if not any(sys.argv[1:]) and not start:
        _say(
            "an ENTRYPOINT that the image itself has does not run, since none is given | docker"
            " inspect --format '{{json .Config.Entrypoint}}' IMAGE prints it | give it by"
            " --entrypoint"
        )
    if start:
        _say(f"the image's own start runs first: {json.dumps(list(start.argv))}")
    os.write(lines, f"{dockerfile(start)}\n".encode())
    return 0


def _say(text: str) -> None:
    print(f"[entrypoint install] {text}", file=sys.stderr)


def given(text: str) -> tuple[str, ...] | None:
    """Return the given ENTRYPOINT, () for none; None if nothing was given or it is the toolkit's
    own."""
    if text in ("none", "null", "[]"):
        return ()
    if not text:
        return None
    argv = words_from_json(text)
    if argv is None:
        raise UsageError(
            "EP448 --entrypoint is a JSON list of texts, or none",
            text,
            "give what says: docker inspect --format '{{json .Config.Entrypoint}}' IMAGE",
        )
    return None if any(word.endswith("/image-entry") for word in argv) else tuple(argv)


def without_init(argv: Sequence[str]) -> tuple[str, ...]:
    """Return an ENTRYPOINT without an init in front that only starts a program."""
    rest = list(argv)
    while rest and os.path.basename(rest[0]) in _INITS:
        del rest[0]
        while rest and rest[0].startswith("-"):
            option = rest.pop(0)
            if option == "--":
                break
            if option in _VALUED:
                del rest[:1]
    return tuple(rest)


def checked(entrypoint: Sequence[str]) -> ImageStart | None:
    """Return the start that an ENTRYPOINT is; None if it has none.

    Raises UsageError if it does not run its arguments.
    """
    argv = without_init(entrypoint)
    if not argv:
        return None
    if os.path.normpath(argv[0]) == "/init" and any(map(os.path.exists, _S6)):
        _say(
            "the image's own start cannot be tried, since it must be process 1 | /init | in the"
            " finished image `docker run IMAGE sh -c 'exit 7'` must exit with 7"
        )
        through = [path for path in _WITH_ENVIRONMENT if os.path.exists(path)][:1]
        return ImageStart((*argv, *(word for word in through if word not in argv)), "s6-svscan")
    cwd = os.getcwd()
    elsewhere = os.path.dirname(image_start.RECORD)
    problem = _problem(argv, cwd, 30 + os.urandom(1)[0] % 90)
    if not problem:
        if not _problem(argv, elsewhere, 0):
            return ImageStart(argv)
        problem = _problem(argv, cwd, 0)
    if not problem:
        return ImageStart(argv, "", cwd)
    raise UsageError(
        "EP448 the image's own start does not start programs",
        f"{json.dumps(list(argv))} {problem}, see above",
        "give the image's ENTRYPOINT, with what it needs: RUN NAME=VALUE /opt/entrypoint/install"
        " --entrypoint '[\"/run.sh\"]'; or do without, and put what it prepares into start hooks:"
        " --entrypoint none",
    )


def _problem(argv: Sequence[str], cwd: str, status: int) -> str:
    """Try the start with an image-entry that exits with this status. Returns what is wrong; "" if
    nothing is."""
    env = {**process.environment(), image_start.VARIABLE: "no"}
    if outcome := process.check(argv, env, cwd):
        return f"cannot be started: {outcome.reason}"
    process.adopt_orphans()
    mark = os.urandom(16).hex()
    tried = (image_start.HAS_RUN, mark, cwd, cwd, image_start.TRIED, str(status))
    words = (*argv, image_start.ENTRY, *tried, *image_start.WORDS)
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    end = parent.run(words, env, cwd, mark, _LIMIT)
    proc.sweep()
    signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    if end.status is None:
        return f"has not ended after {_LIMIT:.0f} s"
    if end.reached != 1:
        ran = f"has run its arguments {end.reached} times" if end.reached else "has not run them"
        return f"{ran}, and exited with {end.status}"
    if end.is_left:
        return "has not waited for them"
    return "" if end.status == status else f"exited with {end.status} after their status {status}"


def dockerfile(start: ImageStart | None) -> str:
    """Return the lines with the ENTRYPOINT for the image's Dockerfile."""
    if start and start.first:
        # Process 1 has nothing in front, so it calls the toolkit; and without this variable
        # s6-overlay does not pass signals on.
        init = "ENV S6_CMD_RECEIVE_SIGNALS=1\n"
        return f"{init}ENTRYPOINT {json.dumps([*start.argv, image_start.INSTALLED])}"
    return f"ENTRYPOINT {json.dumps([*_TINI, image_start.INSTALLED])}"


def _write(start: ImageStart) -> None:
    """Record the start; an empty one replaces that of an earlier install."""
    text = json.dumps({"start": start.argv, "first": start.first, "folder": start.folder}) + "\n"
    path = image_start.RECORD
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if os.path.exists(path):
        with open(path, encoding="utf-8", errors="replace") as file:
            if file.read() == text:
                return
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


if __name__ == "__main__":
    sys.exit(main())
