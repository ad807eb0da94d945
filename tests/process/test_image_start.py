"""The image's own start runs first: what becomes of this process, its words and its variables."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import select
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from entrypoint.system.image.start import ENTRY, HAS_RUN, VARIABLE
from entrypoint.system.proc import children, has_ended
from tests import TREE, table

# image-entry of this tree, and a record and an image-entry at places of their own.
RUN = """
import os, sys
from entrypoint.base.errors import EntrypointError
from entrypoint.cli import record_start as record
from entrypoint.system.image import start
start.ENTRY = start.INSTALLED = sys.argv[1]
start.RECORD = sys.argv[2]
try:
    if sys.argv[3:4] == ["--install"]:
        record._LIMIT = float(os.environ.pop("LIMIT", 60))
        sys.argv[1:] = sys.argv[4:]
        sys.exit(record.main())
    print("ended", start.run_first(sys.argv[3:], print))
except EntrypointError as error:
    print(error)
    sys.exit(error.status)
"""


@pytest.fixture
def entry(tmp_path: Path) -> Path:
    """image-entry, at a place of its own."""
    file = tmp_path / "image-entry"
    file.write_text(f'#!/bin/sh\nexec {sys.executable} -I {TREE}/scripts/image-entry "$@"\n')
    file.chmod(0o755)
    return file


def call(
    record: Path | str,
    *words: str,
    entry: Path | str = ENTRY,
    env: Mapping[str, str] | None = None,
    cwd: Path | str = "/",
) -> subprocess.CompletedProcess[str]:
    """Run the image's own start with this record and image-entry."""
    argv = [sys.executable, "-I", "-c", RUN, str(entry), str(record), *words]
    given = {"PATH": "/usr/bin:/bin", **(env or {})}
    return subprocess.run(argv, env=given, capture_output=True, text=True, check=False, cwd=cwd)


def recorded(folder: Path, *argv: str, first: str = "", place: str = "") -> Path:
    file = folder / "image.json"
    file.write_text(json.dumps({"start": argv, "first": first, "folder": place}))
    return file


def script(folder: Path, *lines: str, name: str = "start.sh") -> Path:
    file = folder / name
    file.write_text("\n".join(("#!/bin/bash", *lines, "")))
    file.chmod(0o755)
    return file


@pytest.mark.promise("an image's own start runs first, and its MPI starts the ranks")
@pytest.mark.parametrize("last", ['exec "$@"', '"$@"', '"$@" & wait $!'])
def test_it_runs_the_program(last: str, entry: Path, tmp_path: Path) -> None:
    """it prepares variables and folder; each word and the status arrive"""
    start = script(tmp_path, 'test "$1" = -q && shift || exit 9', "export C=3", "cd /usr", last)
    show = ["sh", "-c", 'echo "$1,$B,$C,$PWD"; exit 7', "x", "a  b"]
    done = call(recorded(tmp_path, str(start), "-q"), *show, entry=entry, env={"B": "1"})
    assert (done.returncode, done.stdout, done.stderr) == (0, "a  b,1,3,/usr\nended 7\n", "")


APART = table("tests/tables/image_start.yaml")["apart"]


@pytest.mark.promise("a start that has not run the program never ends with 0")
@pytest.mark.parametrize("line", APART)
def test_a_start_that_ends_without_the_program(line: str, entry: Path, tmp_path: Path) -> None:
    ran, status = APART[line]
    record = recorded(tmp_path, str(script(tmp_path, line)))
    program = ["sh", "-c", "echo PROGRAM; sleep 1"]
    done = call(record, *program, entry=entry, env={"ALONE": "1"})
    assert done.stdout.splitlines()[-1] == f"ended {status}", done
    assert "EP445 the image's own start" in done.stdout + done.stderr
    if ran is not None:
        assert done.stdout.splitlines().count("PROGRAM") == ran


@pytest.mark.control("a start that has not run the program never ends with 0")
def test_a_program_that_ends_with_0_does(entry: Path, tmp_path: Path) -> None:
    done = call(recorded(tmp_path, str(script(tmp_path, 'exec "$@"'))), "true", entry=entry)
    assert done.stdout == "ended 0\n"


@pytest.mark.parametrize("last", ['exec "$@"', '"$@"', '"$@" & wait $!'])
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT])
def test_a_signal_reaches_the_program(
    last: str, signum: signal.Signals, entry: Path, tmp_path: Path
) -> None:
    """also where a shell waits for it, which would end and leave it"""
    record = recorded(tmp_path, str(script(tmp_path, last)))
    program = f"import signal, sys; signal.signal({signum:d}, lambda *_: sys.exit(3)); "
    program += "print('ready', flush=True); signal.pause()"
    argv = [sys.executable, "-I", "-c", RUN, str(entry), str(record), sys.executable, "-c", program]
    env = {"PATH": "/usr/bin:/bin"}
    with subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signum)
        assert process.communicate()[0] == "ended 3\n"


@pytest.mark.parametrize("last", ['exec "$@"', '"$@"'])
def test_ctrl_c_reaches_the_program_once(last: str, entry: Path, tmp_path: Path) -> None:
    """the terminal signals the whole group, and nobody repeats it"""
    record = recorded(tmp_path, str(script(tmp_path, "trap : INT", last)))
    program = "import signal, sys; seen = []; signal.signal(2, lambda *_: seen.append(1))\n"
    program += "print('ready', flush=True)\n"
    program += "while not seen: signal.sigtimedwait([signal.SIGUSR1], 0.01)\n"
    program += "signal.sigtimedwait([signal.SIGUSR1], 1); print(f'seen {len(seen)}'); sys.exit(3)"
    argv = [sys.executable, "-I", "-c", RUN, str(entry), str(record), sys.executable, "-c", program]
    pid, terminal = pty.fork()
    if not pid:
        os.execve(argv[0], argv, {"PATH": "/usr/bin:/bin"})
    said = b""
    with contextlib.suppress(OSError):  # its end, on Linux
        while chunk := os.read(terminal, 4096):
            said += chunk
            if chunk.endswith(b"ready\r\n"):
                os.write(terminal, b"\x03")
    os.close(terminal)
    os.waitpid(pid, 0)
    assert b"seen 1\r\nended 3\r\n" in said


def test_the_program_ends_with_a_parent_that_was_killed(entry: Path, tmp_path: Path) -> None:
    record = recorded(tmp_path, str(script(tmp_path, 'exec "$@"')))
    argv = [
        sys.executable, "-I", "-c", RUN, str(entry), str(record), "sh", "-c",
        "echo; exec sleep 600",
    ]  # fmt: skip
    with subprocess.Popen(argv, env={"PATH": "/usr/bin:/bin"}, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        program = children(process.pid)[0]
        process.kill()
        with contextlib.suppress(OSError):
            select.select([os.pidfd_open(program)], [], [], 30)
        is_left = not has_ended(program)
        with contextlib.suppress(ProcessLookupError):
            os.kill(program, signal.SIGKILL)
        assert not is_left


@pytest.mark.parametrize("program", ["pwd", "echo $PWD"])
def test_one_that_must_begin_in_its_folder(program: str, entry: Path, tmp_path: Path) -> None:
    """the program begins where the container does, unless the start has gone elsewhere"""
    (tmp_path / "app").mkdir()
    for lines, folder in (([], "/usr"), (["cd /var"], "/var")):
        script(tmp_path / "app", *lines, 'exec "$@"')
        record = recorded(tmp_path, "./start.sh", place=str(tmp_path / "app"))
        done = call(record, "sh", "-c", program, entry=entry, cwd="/usr")
        assert done.stdout == f"{folder}\nended 0\n"


RUNS = table("tests/tables/image_start.yaml")["runs"]
REFUSED = table("tests/tables/image_start.yaml")["refused"]


def install(
    entry: Path, folder: Path, argv: Sequence[str] | None, **env: str
) -> subprocess.CompletedProcess[str]:
    """Install with this ENTRYPOINT; None gives none."""
    record = folder / "etc/image.json"
    record.parent.mkdir(exist_ok=True)
    words = () if argv is None else (json.dumps(argv),)
    return call(record, "--install", *words, entry=entry, env=env, cwd=folder)


def test_an_entrypoint_that_is_not_given_is_asked_for(entry: Path, tmp_path: Path) -> None:
    """The one that an earlier install was given stays, until another one or none is given."""
    record, says = (
        tmp_path / "etc/image.json",
        "an ENTRYPOINT that the image itself has does not run",
    )
    start = str(script(tmp_path, 'exec "$@"'))
    done = install(entry, tmp_path, None)
    assert (done.returncode, says in done.stderr, record.exists()) == (0, True, False), done
    assert says not in install(entry, tmp_path, [start]).stderr
    assert says not in install(entry, tmp_path, None).stderr
    assert json.loads(record.read_text())["start"] == [start]
    assert says not in install(entry, tmp_path, []).stderr
    assert json.loads(record.read_text())["start"] == []


@pytest.mark.promise("an image's own start counts if a build has seen it run image-entry")
@pytest.mark.parametrize("kind", RUNS)
def test_a_start_that_runs_its_arguments_counts(kind: str, entry: Path, tmp_path: Path) -> None:
    start = str(script(tmp_path, *RUNS[kind]))
    done = install(entry, tmp_path, [start])
    assert done.returncode == 0, done
    assert json.loads((tmp_path / "etc/image.json").read_text()) == {
        "start": [start], "first": "", "folder": "",
    }  # fmt: skip
    assert done.stdout == f'ENTRYPOINT ["/usr/bin/tini", "-s", "--", "{entry}"]\n'


@pytest.mark.promise("an image's own start counts if a build has seen it run image-entry")
@pytest.mark.parametrize(
    "argv",
    [
        ["./start.sh"],
        ["bash", "start.sh"],
        ["bash", "--login", "./start.sh"],
        ["bash", "-m", "start.sh"],
        ["/usr/bin/env", "bash", "start.sh"],
        ["tini", "-g", "--", "sh", "start.sh"],
    ],
)
def test_usual_forms_of_entrypoint_count(argv: list[str], entry: Path, tmp_path: Path) -> None:
    """a relative path holds in the folder in which it was tried"""
    script(tmp_path, 'exec "$@"')
    done = install(entry, tmp_path, argv)
    assert done.returncode == 0, done
    rest = argv[3:] if argv[0] == "tini" else argv
    assert json.loads((tmp_path / "etc/image.json").read_text()) == {
        "start": rest, "first": "", "folder": str(tmp_path),
    }  # fmt: skip


def test_a_shells_own_command_counts(entry: Path, tmp_path: Path) -> None:
    for argv in (["/bin/bash", "-lc", 'exec "$@"', "--"], ["bash", "-c", 'exec "$0" "$@"']):
        assert install(entry, tmp_path, argv).returncode == 0
    assert install(entry, tmp_path, ["bash", "-lc", 'exec "$@"']).returncode == 64


@pytest.mark.control("an image's own start counts if a build has seen it run image-entry")
@pytest.mark.parametrize("lines", REFUSED)
def test_other_starts_are_refused(lines: str, entry: Path, tmp_path: Path) -> None:
    (tmp_path / "train.sh").write_text("echo own training")
    limit = {"LIMIT": "1"} if REFUSED[lines].startswith("has not ended") else {}
    done = install(entry, tmp_path, [str(script(tmp_path, lines))], **limit)
    assert (done.returncode, done.stdout) == (64, ""), done
    assert "EP448 the image's own start does not start programs | " in done.stderr
    assert REFUSED[lines] in done.stderr
    assert done.stderr.rstrip().endswith("--entrypoint none")
    assert not (tmp_path / "etc/image.json").exists()


def test_a_start_that_cannot_be_executed_is_refused(entry: Path, tmp_path: Path) -> None:
    script(tmp_path, 'exec "$@"').chmod(0o644)
    for argv in ([str(tmp_path / "start.sh")], ["/nowhere.sh"]):
        done = install(entry, tmp_path, argv)
        assert done.returncode == 64
        assert f"cannot be started: EP440 cannot start {argv[0]}: " in done.stderr


def test_what_a_start_needs_can_be_given(entry: Path, tmp_path: Path) -> None:
    start = str(script(tmp_path, ": ${LICENSE:?is not set}", 'exec "$@"'))
    refused = install(entry, tmp_path, [start])
    assert refused.returncode == 64
    assert "LICENSE: is not set" in refused.stderr
    assert install(entry, tmp_path, [start], LICENSE="x").returncode == 0


@pytest.mark.control("an image's own start runs first, and its MPI starts the ranks")
@pytest.mark.parametrize("value", ["no", "done"])
def test_it_does_not_run_twice(value: str, tmp_path: Path) -> None:
    """the control: not where it has run, or is not wanted, or nothing is recorded"""
    record = recorded(tmp_path, "/bin/false")
    assert call(record, env={VARIABLE: value}).stdout == "ended None\n"
    assert call(tmp_path / "none").stdout == "ended None\n"


def test_one_that_cannot_start(tmp_path: Path) -> None:
    done = call(recorded(tmp_path, "/none/start.sh"))
    said = "EP440 cannot start /none/start.sh: No such file or directory; exit 127\n"
    assert done.stdout == f"{said}ended 127\n"


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
    entry = str(TREE / "scripts/image-entry")
    argv = [sys.executable, "-I", entry, HAS_RUN, "-", "-", "-", "true"]
    given = {"PATH": "/usr/bin:/bin", **env}
    done = subprocess.run(argv, env=given, capture_output=True, text=True, check=False)
    assert done.returncode == status
    assert says in done.stderr
    assert ("EP44" in done.stderr) == bool(says)
