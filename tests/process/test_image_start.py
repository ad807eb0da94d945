"""The image's own start runs first: what becomes of this process, its words and its variables."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from entrypoint.system.image.start import ENTRY, HAS_RUN, VARIABLE

RUN = """
import sys
from entrypoint.base.errors import EntrypointError
from entrypoint.system.image import start as image_start
try:
    if sys.argv[1]:
        status = image_start.run_first(sys.argv[2:], print, sys.argv[1])
    else:
        status = image_start.note_run(print)
    print("not replaced", status)
except EntrypointError as error:
    print(error)
    sys.exit(error.status)
"""
SHOW = f'#!/bin/sh\nfor word; do echo "$word"; done\necho "${VARIABLE}"\nexit 9\n'


def call(
    record: Path | str, *words: str, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the image's own start with this record; "" notes that it has run."""
    argv = [sys.executable, "-I", "-c", RUN, str(record), *words]
    given = {"PATH": "/usr/bin:/bin", **(env or {})}
    return subprocess.run(argv, env=given, capture_output=True, text=True, check=False)


def recorded(folder: Path, *argv: str, first: str = "") -> Path:
    file = folder / "image.json"
    file.write_text(json.dumps({"start": argv, "first": first}))
    return file


@pytest.mark.promise("an image's own start runs first, and its MPI starts the ranks")
def test_this_process_becomes_it(tmp_path: Path) -> None:
    """it gets its own words, then image-entry with ours, and the names of all variables; its status
    is this process's"""
    script = tmp_path / "start"
    script.write_text(SHOW)
    script.chmod(0o755)
    done = call(recorded(tmp_path, str(script), "-q"), "a b", "", env={"B": "1", "a.c": "2"})
    words = ["-q", ENTRY, HAS_RUN, "a b", "", "B,PATH,a.c"]
    assert (done.returncode, done.stdout.splitlines()) == (9, words)


@pytest.mark.control("an image's own start runs first, and its MPI starts the ranks")
@pytest.mark.parametrize("value", ["no", "done"])
def test_it_does_not_run_twice(value: str, tmp_path: Path) -> None:
    """the control: not where it has run, or is not wanted, or nothing is recorded"""
    record = recorded(tmp_path, "/bin/false")
    assert call(record, env={VARIABLE: value}).stdout == "not replaced 0\n"
    assert call(tmp_path / "none").stdout == "not replaced 0\n"


def test_one_that_cannot_start(tmp_path: Path) -> None:
    done = call(recorded(tmp_path, "/none/start.sh"))
    said = "EP440 cannot start /none/start.sh: No such file or directory; exit 127\n"
    assert done.stdout == f"{said}not replaced 127\n"


def test_one_that_must_be_process_1(tmp_path: Path) -> None:
    record = recorded(tmp_path, "/init", "/command/with-contenv", first="s6-svscan")
    done = call(record)
    assert done.returncode == 78
    assert "EP446 the image's own start must be process 1 | /init; process 1 is " in done.stdout
    entrypoint = f'ENTRYPOINT ["/init", "/command/with-contenv", "{ENTRY}"]'
    assert f"write {entrypoint} into the Dockerfile, or do without it: {VARIABLE}=no" in done.stdout


@pytest.mark.parametrize(
    ("env", "status", "says"),
    [
        ({VARIABLE: "PATH,A", "A": "1"}, 0, ""),
        ({VARIABLE: "PATH,A,B"}, 0, "EP444 the image's own start has removed variables | A, B | "),
        ({VARIABLE: "PATH,ENTRYPOINT_HOSTS"}, 78, "EP445 the image's own start has removed"),
        ({}, 78, "variables of the job | all of the container's | "),
    ],
)
def test_what_it_removed(env: dict[str, str], status: int, says: str) -> None:
    done = call("", env=env)
    assert done.returncode == status
    assert says in done.stdout
    assert ("EP44" in done.stdout) == bool(says)
