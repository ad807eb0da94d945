"""Records the image's own start while the toolkit is installed into an image.

A build cannot read the image's ENTRYPOINT: it is given, or found by the places of well-known ones.

    python3 -m entrypoint.system.image.record [ENTRYPOINT]

ENTRYPOINT is a JSON list, as `docker inspect` prints it, `none`, or empty. It prints lines for the
new image's Dockerfile.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
from collections.abc import Sequence

from entrypoint.base.errors import EntrypointError, UsageError
from entrypoint.system.image import start as image_start
from entrypoint.system.image.start import ImageStart
from entrypoint.system.process import which

_TINI = ("/usr/bin/tini", "-s", "--")
# Inits that only start a program; the toolkit has its own in front.
_INITS = {"tini", "tini-static", "dumb-init", "docker-init", "catatonit"}
_VALUED = ("-p", "-e", "-r", "--rewrite")  # their options with a value
_SHELLS = {"sh", "bash", "dash", "ash", "ksh", "zsh"}
# Programs whose first argument is a script, which gets the others.
_FIXED = re.compile(r"(python|perl|ruby|node|java)[\d.]*$")
_ARGUMENTS = re.compile(r"\$[@*]|\$\{[@*]")
_S6 = ("/command/s6-svscan", "/bin/s6-svscan", "/usr/bin/s6-svscan")
_WITH_ENVIRONMENT = ("/command/with-contenv", "/usr/bin/with-contenv")
# Path of a well-known start, and another one that shows that it is that.
_KNOWN = (
    ("/opt/nvidia/nvidia_entrypoint.sh", "/opt/nvidia/entrypoint.d"),
    ("/usr/local/bin/start.sh", "/usr/local/bin/start-notebook.d"),
    ("/usr/local/bin/start.sh", "/usr/local/bin/before-notebook.d"),
    *(("/init", program) for program in _S6),
)
# Names that many images use; they count if they run their arguments.
_USUAL = (
    "/entrypoint.sh",
    "/docker-entrypoint.sh",
    "/usr/local/bin/docker-entrypoint.sh",
    "/usr/local/bin/entrypoint.sh",
    "/usr/local/bin/_entrypoint.sh",
)


def main() -> int:
    """Record the start. Returns the exit status."""
    try:
        argv = given(sys.argv[1] if len(sys.argv) > 1 else "")
        if argv is None and os.path.exists(image_start.RECORD):
            start = image_start.read()
        else:
            start = find() if argv is None else checked(argv)
            _write(start)
    except EntrypointError as error:
        _say(str(error))
        return error.status
    if start:
        _say(f"the image's own start runs first: {json.dumps(list(start.argv))}")
    print(dockerfile(start))
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
    try:
        argv = json.loads(text)
    except ValueError:
        argv = None
    if not isinstance(argv, list) or not all(isinstance(word, str) for word in argv):
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


def find(root: str = "") -> ImageStart | None:
    """Return the start that this image has in a well-known place; None if there is none."""
    path = next((path for path, sign in _KNOWN if _exist(root, path, sign)), None)
    path = path or next(
        (path for path in _USUAL if _exist(root, path) and _runs_arguments(root + path)), None
    )
    return checked((path,), root) if path else None


def checked(entrypoint: Sequence[str], root: str = "") -> ImageStart | None:
    """Return the start that an ENTRYPOINT is; None if it has none, or does not run its arguments,
    which is reported."""
    argv = without_init(entrypoint)
    if not argv:
        return None
    if os.path.normpath(argv[0]) == "/init" and any(_exist(root, path) for path in _S6):
        # From version 3 on, its environment reaches programs only through with-contenv.
        with_environment = [path for path in _WITH_ENVIRONMENT if _exist(root, path)]
        return ImageStart((*argv, *with_environment[:1]), "s6-svscan")
    if problem := _problem(argv, root):
        _say(
            f"the image's own start is left out | {json.dumps(list(entrypoint))} {problem} | put"
            " what it prepares into start hooks, /etc/entrypoint/start.d"
        )
        return None
    return ImageStart(argv)


def _exist(root: str, *paths: str) -> bool:
    return all(os.path.exists(root + path) for path in paths)


def _problem(argv: tuple[str, ...], root: str) -> str:
    """Return why this command cannot start another program; "" if it can, or nobody can tell."""
    name = os.path.basename(argv[0])
    if name in _SHELLS and any(re.fullmatch(r"-\w*c", word) for word in argv[1:3]):
        return "" if _ARGUMENTS.search(argv[-1]) else "does not run its arguments"
    if _FIXED.match(name):
        return "runs a program of its own"
    script = argv[1] if name in _SHELLS and argv[1:] else argv[0]
    file = script if "/" in script else which(script, os.environ.get("PATH", ""))
    if file is None or not os.path.isfile(path := f"{root}/{file.lstrip('/')}"):
        return "is not in the image"
    return "" if _runs_arguments(path) is not False else "does not run its arguments"


def _runs_arguments(path: str) -> bool | None:
    """Return whether a shell script uses its arguments; None if it is not a shell script."""
    with open(path, errors="replace") as file:
        text = file.read(1 << 20)
    shell = re.match(r"#!\s*(\S+)(?:\s+(\S+))?", text)
    names = {os.path.basename(word or "") for word in shell.groups()} if shell else set()
    return bool(_ARGUMENTS.search(text)) if names & _SHELLS else None


def dockerfile(start: ImageStart | None) -> str:
    """Return the lines with the ENTRYPOINT for the image's Dockerfile."""
    if start and start.first:
        # Process 1 has nothing in front, so it calls the toolkit; and without this variable
        # s6-overlay does not pass signals on.
        init = "ENV S6_CMD_RECEIVE_SIGNALS=1\n"
        return f"{init}ENTRYPOINT {json.dumps([*start.argv, image_start.ENTRY])}"
    return f"ENTRYPOINT {json.dumps([*_TINI, image_start.ENTRY])}"


def _write(start: ImageStart | None) -> None:
    if start is None:  # a boot then looks no further
        with contextlib.suppress(FileNotFoundError):
            os.remove(image_start.RECORD)
        return
    data = {"start": list(start.argv), "first": start.first}
    os.makedirs(os.path.dirname(image_start.RECORD), exist_ok=True)
    with open(image_start.RECORD, "w", encoding="utf-8") as file:
        json.dump(data, file)
        file.write("\n")


if __name__ == "__main__":
    sys.exit(main())
