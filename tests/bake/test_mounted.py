"""Images that nobody has prepared: the toolkit's folder is mounted into them, and jobs boot.

`scripts/dev/bake-base` makes the images; `scripts/build-image toolkit` the folder's.
"""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest

from tests.containers import docker, logs, skip_without
from tests.image.boxes import HARDENED, ROOT_NEEDS, Done, Pair, run, sh

TOOLKIT = "entrypoint-toolkit:dev"
FOLDER = "/opt/entrypoint"
# Rank 1 fails in the first attempt.
SCRIPT = """
echo "rank $RANK of $WORLD_SIZE $FROM_START"
[ "$RANK" = 0 ] || [ "$ENTRYPOINT_ATTEMPT" = 2 ] || exit 7
"""
SHELL = ("sh", "-c", SCRIPT)
OWN = ("rank", "1")


@dataclass(frozen=True)
class Foreign:
    """An image, how its containers are started, and a program that it has."""

    image: str
    options: Sequence[str] = ()
    program: Sequence[str] = SHELL
    folder: str = FOLDER
    start: Sequence[str] = ()  # the image's own ENTRYPOINT

    def started(self) -> tuple[str, ...]:
        given = ("--env", f"ENTRYPOINT_IMAGE_START={json.dumps(self.start)}") if self.start else ()
        entry = ("--entrypoint", f"{self.folder}/bin/image-entry")
        return (*self.options, *given, *PLAIN, *entry)


BASE = "entrypoint-bake-base:"
PLAIN = ("--env", "ENTRYPOINT_LAUNCHER=plain", "--env", "ENTRYPOINT_RESTARTS_ON=any")
READ_ONLY = ("--read-only", "--user", "1000740000:0")
FOREIGN = {
    "Debian 12": Foreign(f"{BASE}nopython"),
    "Debian 11": Foreign(f"{BASE}bullseye"),
    "busybox and musl": Foreign(f"{BASE}musl", program=OWN),
    "one program alone": Foreign(f"{BASE}static", program=OWN),
    "one program, uid and read-only": Foreign(f"{BASE}static", READ_ONLY, OWN),
    "conda": Foreign(f"{BASE}conda", start=("env", "FROM_START=yes")),
    "uid and read-only": Foreign(f"{BASE}nopython", READ_ONLY),
    "hardened": Foreign(f"{BASE}nopython", (*HARDENED, *ROOT_NEEDS)),
    "no /tmp, an /opt of its own, a broken LD_PRELOAD": Foreign(
        f"{BASE}bare", start=("/start.sh",)
    ),
    "settings of its own": Foreign(f"{BASE}own"),
    "settings of its own, uid": Foreign(f"{BASE}own", ("--user", "4242")),
    "elsewhere": Foreign(f"{BASE}nopython", ("--user", "4242"), folder="/srv/tool"),
}


@pytest.fixture(scope="module")
def volume() -> Iterator[str]:
    """A volume with the folder, as a user fills one."""
    skip_without(TOOLKIT)
    name = f"toolkit{uuid.uuid4().hex[:8]}"
    try:
        docker("run", "--rm", "--volume", f"{name}:/v", TOOLKIT, "install", "--to", "/v")
        yield name
    finally:
        docker("volume", "rm", "--force", name, check=False)


def mount(volume: str, folder: str = FOLDER) -> tuple[str, ...]:
    return ("--mount", f"type=volume,source={volume},destination={folder},readonly")


@pytest.mark.promise("the toolkit's folder boots jobs in any image, unmodified")
@pytest.mark.parametrize("name", FOREIGN)
@pytest.mark.parametrize("restarts", [0, 1])
def test_a_job_of_two_nodes(volume: str, name: str, restarts: int) -> None:
    foreign = FOREIGN[name]
    skip_without(foreign.image)
    options = (*mount(volume, foreign.folder), *foreign.started())
    with Pair(foreign.image, (*options, "--env", f"ENTRYPOINT_RESTARTS={restarts}"), 1) as pair:
        pair.start_both(*foreign.program)
        assert pair.ends() == [0 if restarts else 7] * 2, pair.logs()
        said = logs(pair.boxes[0])
        assert f"{foreign.program[0]} on worker-1 exited with 7" in said, pair.logs()
        ranks = [line.strip() for line in said.splitlines() if line.startswith("rank ")]
        expected = {f"rank 0 of 2{' yes' * bool(foreign.start)}"}
        assert set(ranks) == expected or not (ranks or restarts), said  # or rank 1 was faster


@pytest.mark.control("the toolkit's folder boots jobs in any image, unmodified")
def test_the_images_have_no_sshd() -> None:
    """The control: the same start without the folder's programs finds nothing to log in to."""
    for image in {foreign.image for foreign in FOREIGN.values()}:
        skip_without(image)
        assert run(image, "-t", options=("--entrypoint", "/usr/sbin/sshd")).status == 127


def installed(*options: str) -> Done:
    return run(TOOLKIT, "install", "--to=/v", options=options)


@pytest.mark.control("the toolkit's folder boots jobs in any image, unmodified")
def test_an_image_s_own_settings_are_not_read() -> None:
    """The control: the image's own programs do read them."""
    skip_without(f"{BASE}own")
    done = run(f"{BASE}own", "id", "-un")
    assert "object '/lib/none.so' from /etc/ld.so.preload cannot be preloaded" in done.err
    assert done.out != "root\n"


@pytest.mark.parametrize("killed", [0.2, 0.4, 0.8])
def test_a_copy_that_was_interrupted_goes_on(killed: float) -> None:
    name = f"toolkit{uuid.uuid4().hex[:8]}"
    words = ("--volume", f"{name}:/v")
    try:
        for _ in range(2):  # at once: one waits for the other
            box = docker("run", "--detach", "--rm", *words, TOOLKIT, "install", "--to", "/v")
        time.sleep(killed)
        docker("kill", box.strip(), check=False)
        assert installed(*words).status == 0
        assert (
            run(
                f"{BASE}static", options=("--entrypoint", f"{FOLDER}/bin/entrypoint", *mount(name))
            ).status
            == 0
        )
        newer = sh(f"{BASE}nopython", "echo 9.9 x >/v/share/version; cat /v/share/version", *words)
        refused = installed(*words)
        assert (newer, refused.status) == ("9.9 x", 73)
        assert "another version is there | /v: 9.9" in refused.err
    finally:
        docker("volume", "rm", "--force", name, check=False)


def test_the_folder_is_copied_once_and_nothing_else_is_touched(volume: str) -> None:
    assert "is in /v" in installed("--volume", f"{volume}:/v").err
    assert installed("--tmpfs", "/v:uid=1234,mode=755", "--user", "1234").status == 0
    refused = installed("--tmpfs", "/v:mode=755", "--user", "1234")
    assert (refused.status, "let uid 1234 write there" in refused.err) == (73, True), refused
    other = run(TOOLKIT, "install", "--to", "/etc")
    assert (other.status, "other files are there | /etc" in other.err) == (73, True), other
    assert [run(TOOLKIT, "install", to).status for to in ("--to", f"--to={FOLDER}/x")] == [64, 73]


def test_the_folder_holds_nothing_that_gives_rights(volume: str) -> None:
    """No setuid, no file that others may write; it says what is in it."""
    look = f"find {FOLDER} -not -type l -perm /6022"
    assert sh(f"{BASE}nopython", look, *mount(volume)) == ""
    version = run(TOOLKIT, "--version").out
    assert re.fullmatch(r"entrypoint \S+\nPython 3\.\S+\nOpenSSH_.*\n", version), version
