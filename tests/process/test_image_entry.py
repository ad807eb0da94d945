"""What `docker run IMAGE ...` runs: which command of the toolkit, or a program with its environment
as it is."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from entrypoint.cli import of_image
from tests import TREE, table

COMMAND = [sys.executable, "-I", str(TREE / "scripts/image-entry")]
DOCUMENTED = TREE / "tests/samples/modelarts/run_mpi.sh"
# Names that are no shell's, one that shells read at their start, and values of any byte.
ODD = {
    b"a.b": b"1", b"X-Y": b"two words", b"BASH_FUNC_f%%": b"() { echo hi; }", b"IFS": b"x", b"SHELLOPTS": b"xtrace",
    b"OPTIND": b"3", b"PWD": b"/nowhere", b"SHLVL": b"7", b"_": b"/bin/q", b"LINES_": b"a\nb",
    b"BYTES": b"\xff\x80'$(id)", b"PATH": os.environb[b"PATH"], b"LC_ALL": b"C.UTF-8",
}  # fmt: skip


@pytest.mark.parametrize(
    ("given", "wanted"),
    table("tests/tables/image_entry.yaml"),
)  # fmt: skip
def test_what_the_words_of_an_image_mean(given: list[str], wanted: list[str] | None) -> None:
    assert of_image(given) == wanted


def start(words: list[str], **how: Any) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(words, capture_output=True, check=False, **how)


def environment(words: list[str]) -> dict[bytes, bytes]:
    """The environment of what these words start, which prints it."""
    done = start(words, env=ODD)
    assert (done.returncode, done.stderr) == (0, b"")
    return dict(entry.split(b"=", 1) for entry in done.stdout.split(b"\0") if entry)


@pytest.mark.promise("what an image runs has the container's environment, byte for byte")
@pytest.mark.parametrize("script", ["show", "run_mpi.sh"])
def test_every_byte_of_the_environment_reaches_the_program(script: str, tmp_path: Path) -> None:
    program = tmp_path / script
    program.symlink_to("/usr/bin/env")
    assert environment([*COMMAND, str(program), "-0"]) == ODD


@pytest.mark.control("what an image runs has the container's environment, byte for byte")
@pytest.mark.skipif(shutil.which("dash") is None, reason="there is no dash here")
def test_a_posix_shell_would_drop_some_of_it() -> None:
    """The control."""
    found = environment(["dash", "-c", 'exec "$@"', "dash", "env", "-0"])
    assert b"PATH" in found
    assert not {b"a.b", b"X-Y"} & found.keys()


def test_a_script_that_is_not_there() -> None:
    done = start([*COMMAND, "/none/run_mpi.sh"])
    said = (
        b"[entrypoint] EP440 cannot start /none/run_mpi.sh: No such file or directory; exit 127\n"
    )
    assert (done.returncode, done.stdout, done.stderr) == (127, b"", said)


@pytest.mark.promise("the documents' own run_mpi.sh is no job that never ends")
@pytest.mark.parametrize(
    "words",
    [["bash", "run_mpi.sh"], ["./run_mpi.sh"], ["bash", "-x", "boot.sh"], ["./boot.sh"]],
    ids=" ".join,
)
def test_the_documents_own_script_is_refused_where_it_would_wait_forever(
    words: list[str], tmp_path: Path
) -> None:
    """It pings the other nodes until they answer, and an image need not have ping."""
    for name in ("run_mpi.sh", "boot.sh"):
        shutil.copy(DOCUMENTED, tmp_path / name)
    path = {"PATH": str(tmp_path)}
    done = start([*COMMAND, *words, "python", "train.py"], cwd=tmp_path, env=path)
    assert (done.returncode, done.stdout) == (78, b"")
    said = b"EP118 the command is a launcher itself, which cannot work in this image | "
    assert done.stderr.startswith(b"[entrypoint] " + said), done.stderr
    assert b"bash /home/ma-user/run_mpi.sh python train.py; exit 78\n" in done.stderr


@pytest.mark.control("the documents' own run_mpi.sh is no job that never ends")
def test_other_scripts_of_that_name_run(tmp_path: Path) -> None:
    """Ours, a user's own, and the documents' one in an image that was prepared for it."""
    for name, text, programs in (
        ("run_mpi.sh", "#!/bin/sh\necho ran $MY_SSHD_PORT\n", []),
        ("boot.sh", "#!/bin/sh\necho ran $MY_SSHD_PORT\n", []),
        ("run_mpi.sh", f"#!/bin/sh\necho ran; exit\n{DOCUMENTED.read_text()}", ["ping"]),
        ("boot.sh", f"#!/bin/sh\necho ran; exit\n{DOCUMENTED.read_text()}", []),
    ):
        script = tmp_path / name
        script.write_text(text)
        script.chmod(0o755)
        for program in programs:
            (tmp_path / program).symlink_to("/bin/true")
        done = start([*COMMAND, f"./{name}"], cwd=tmp_path, env={"PATH": str(tmp_path)})
        assert (done.returncode, done.stdout.strip()) == (0, b"ran"), done.stderr


def test_a_broken_pipe_ends_what_it_becomes() -> None:
    """Python ignores SIGPIPE; a program that it becomes must not."""
    done = start([*COMMAND, "bash", "-c", "kill -PIPE $$; echo survived"])
    assert (done.returncode, done.stdout) == (-13, b"")
