"""The command line: reads argv, runs a command, prints errors, and returns the exit status.

Each command is a module of this folder: COMMAND is its command line, `act` runs it. It imports only
what it needs: tests/process/test_imports.py lists what none of them may import.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import gc
import importlib
import os
import sys
from collections.abc import Sequence

from entrypoint import __version__
from entrypoint.base.errors import ConfigError, EntrypointError, internal
from entrypoint.cli.inputs import TRACE
from entrypoint.output.log import Logger, answer
from entrypoint.system.folder import own
from entrypoint.system.proc import hold_standard_streams, undo_launcher

_IMAGE = "/etc/entrypoint/image.json"  # what `install` recorded of the image
_STARTED = "--image-started"  # also in system/image/start.py
_ABOUT = (["--help"], ["--version"], ["-V"])  # answered whatever the image is like
_READ = 1 << 16  # characters of a script that are read
_SCRIPTS = {"run_mpi.sh", "torchrun.sh", "torchlaunch.sh"}  # what `entrypoint render` writes


def main(argv: Sequence[str] | None = None) -> int:
    """The `entrypoint` command. Returns its exit status."""
    hold_standard_streams()
    log = Logger()
    try:
        arguments, program = _split(list(sys.argv[1:] if argv is None else argv))
        if arguments in (["--version"], ["-V"]):
            answer(f"entrypoint {__version__}\n{components()}")
            return 0
        if not arguments and not program:
            arguments = ["--help"]
        if arguments[:1] == ["help"]:
            arguments = [*arguments[1:], "--help"]
        from entrypoint.cli.parser import parser

        args = parser(os.environ.get("ENTRYPOINT_SPEC") or None, arguments).parse_args(arguments)
        args.command = program
        status: int = importlib.import_module(f"entrypoint.cli.{args.action}").act(args, log)
        return status
    except EntrypointError as error:
        for line in error.lines():
            log(line)
        return error.status
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        end = internal(error)
        log(f"{end.reason} with the output of {TRACE}=1")
        if os.environ.get(TRACE):
            import traceback

            for line in traceback.format_exc().splitlines():
                log(f"  | {line}")
        return end.status
    finally:
        log.flush()


def components() -> str:
    """Return the lines that name what the toolkit's own folder brings along; "" without one."""
    if not (file := own("share/components")):
        return ""
    with open(file) as lines:
        return lines.read()


def script() -> None:
    """Run `entrypoint` as a program, and exit at once: finalizing Python would cost each node 35 ms
    for nothing."""
    # asyncio and paramiko import these if they can, and work without them. Nothing here needs TLS,
    # which takes 4 MB of each node's memory, or commands from an ssh_config, which take the leader
    # 40 ms.
    for unused in ("ssl", "invoke"):
        sys.modules.setdefault(unused, None)  # type: ignore[arg-type]
    # A parent may ignore it: then nobody learns with which status a child has ended. `signal`,
    # which type checkers know, makes enums of all names as it is imported.
    _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)
    gc.disable()  # a start makes no garbage, and a collection takes 10 ms; a node's loop enables it
    undo_launcher()
    os._exit(main())


def has_own_start() -> bool:
    """Return whether this image has a start of its own, by `install` or a variable."""
    return bool(os.environ.get("ENTRYPOINT_IMAGE_START")) or os.path.exists(_IMAGE)


def of_image(arguments: Sequence[str]) -> list[str] | None:
    """Return the toolkit's arguments for those of `docker run IMAGE`; None for a program that boots
    on its own."""
    first = arguments[0] if arguments else ""
    if first == "entrypoint" or any(word.rpartition("/")[2] in _SCRIPTS for word in arguments[:2]):
        return None
    if [first] in _ABOUT:
        return [first]
    return (
        ["run", "--passthrough", "--", *arguments]
        if first and not first.startswith("-")
        else ["run", *arguments]
    )


def image() -> None:
    """Run `image-entry` as a program, which an image starts; scripts/image-entry explains its
    arguments."""
    hold_standard_streams()
    undo_launcher()
    log = Logger()
    argv = sys.argv[1:]
    if argv[:1] == [_STARTED] or (has_own_start() and argv[:1] not in _ABOUT):
        argv = _after_own_start(argv, log)
    foreign = _foreign_script(argv)
    arguments = of_image(argv)
    if arguments is not None and not foreign:
        sys.argv[1:] = arguments
        script()
        return
    from entrypoint.system import process

    if argv[0] == "entrypoint":  # no PATH leads to a folder that is mounted
        argv[0] = own("bin/entrypoint") or argv[0]
    outcome = (
        foreign.outcome if foreign else process.replace(argv, process.environment(), process.cwd())
    )
    log(f"{outcome.reason}; exit {outcome.status}")
    log.flush()
    os._exit(outcome.status)


def _foreign_script(argv: Sequence[str]) -> ConfigError | None:
    """Return the error if this starts run_mpi.sh of ModelArts' documents, whatever its file is
    called, where it waits forever: it pings the other nodes until they answer.

    An image that has ping may have the keys that it needs, too.
    """
    is_shell = "".join(argv[:1]).rpartition("/")[2] in ("sh", "bash", "dash")
    words = argv[1:] if is_shell else argv[:1]
    path = next((word for word in words if not word.startswith("-")), "")
    try:
        # a pipe can be read once, by what it is for
        with open(path if os.path.isfile(path) else os.devnull, errors="replace") as file:
            text = file.read(_READ) if file.read(2) == "#!" else ""
    except OSError:
        return None
    is_documented = "MY_SSHD_PORT" in text and "ping -c" in text
    if not is_documented:
        return None
    from entrypoint.system.process import which

    if which("ping", os.environ.get("PATH", os.defpath)):
        return None
    return ConfigError(
        "EP118 the command is a launcher itself, which cannot work in this image",
        f"{path} of ModelArts' documents waits for `ping`, which is not here, and has no keys",
        "start the program with this image's own: bash /home/ma-user/run_mpi.sh python train.py",
    )


def _after_own_start(argv: list[str], log: Logger) -> list[str]:
    """Return the arguments of image-entry after the image's own start, which runs first. Exits with
    its status if this process was its parent, or with an error's."""
    from entrypoint.system.image import start as image_start

    status = None
    try:
        if argv[:1] == [_STARTED]:
            argv = image_start.arrive(argv[1:], log)
        else:
            status = image_start.run_first(argv, log)
    except EntrypointError as error:
        log(f"{error}; exit {error.status}")
        status = error.status
    log.flush()
    if status is not None:
        os._exit(status)
    return argv


def _split(argv: list[str]) -> tuple[list[str], list[str]]:
    """Return our own arguments, and the program's after the first `--`, which argparse must not
    parse."""
    if "--" not in argv:
        return argv, []
    at = argv.index("--")
    return argv[:at], argv[at + 1 :]
