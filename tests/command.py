"""The `entrypoint` command for tests of what it answers: a process that has imported it, and forks
for each call.

A call takes 10 ms of CPU instead of 150, and is a process all the same: it has its own environment,
folder, streams and exit status, and may become a program. Two things differ from a start by a user:
Python has read its own settings before (locale, PYTHON*), and /proc/PID/environ is not what was
given. tests/process/test_cli.py shows that both answer alike.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import pkgutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Done = subprocess.CompletedProcess[str]
PATH = {"PATH": "/usr/local/bin:/usr/bin:/bin"}


def run(cwd: Path, *words: str, env: Mapping[str, str], limit: float = 300) -> Done:
    """Run `entrypoint WORDS` in that folder with that environment, for at most `limit` seconds.

    A call that takes longer is killed: its status is -14.
    """
    with tempfile.TemporaryDirectory() as folder:
        streams = [f"{folder}/out", f"{folder}/err"]
        server = _server()
        try:
            print(
                json.dumps([limit, str(cwd), words, {**env}, streams]),
                file=server.stdin,
                flush=True,
            )
            status = int(server.stdout.readline())
        except BaseException:  # whose answer is still to come would be taken for the next one's
            server.kill()
            _server.cache_clear()
            raise
        out, err = (Path(path).read_bytes().decode(errors="replace") for path in streams)
    return Done(["entrypoint", *words], status, out, err)


def captured(argv: Sequence[str | Path], **how: Any) -> Done:
    """Run any program, and return its status and output; `how` goes to subprocess.run."""
    return subprocess.run(argv, **{"capture_output": True, "text": True, "check": False, **how})


@functools.cache
def _server() -> subprocess.Popen[str]:
    """Return this test run's server, which ends with it."""
    return subprocess.Popen(
        [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def serve() -> None:
    """Answer requests until there are none: fork for each, and print its status."""
    sys.path.pop(0)  # this folder, where others' modules may have the names of ours
    import entrypoint

    for module in pkgutil.walk_packages(entrypoint.__path__, "entrypoint."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    for line in iter(sys.stdin.readline, ""):
        pid = os.fork()
        if not pid:
            _become(*json.loads(line))
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


def _become(limit: float, cwd: str, words: list[str], env: dict[str, str], to: list[str]) -> None:
    import signal

    from entrypoint.cli import script

    signal.setitimer(signal.ITIMER_REAL, limit)
    null = os.open(os.devnull, os.O_RDONLY)
    files = [null, *(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600) for path in to)]
    for number, file in enumerate(files):
        os.dup2(file, number)
    os.closerange(3, 100)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    sys.argv[1:] = words
    script()


if __name__ == "__main__":
    serve()
