"""Point 4: whoever runs it, with whatever taken away, writing nowhere but in the run directory."""

from __future__ import annotations

from pathlib import Path
from shlex import split

import pytest

from tests.containers import build, container, engine, exit_code, logs, wait
from tests.image.boxes import HARDENED, ROOT_NEEDS, Pair, run, said, started, write

# Name -> the options, and what `id -u`:`id -g` then says.
USERS = {
    "ma-user": ((), "1000:100"),
    "root": (("--user", "0"), "0:0"),
    "any uid, no passwd entry": (("--user", "12345:0"), "12345:0"),
    "any uid, with one": (("--user", "12345:0"), "12345:0"),
}
WHO = ("sh", "-c", 'echo "$(id -u):$(id -g) $(hostname) ${LD_PRELOAD-clean}"')


@pytest.fixture(params=USERS)
def user(request: pytest.FixtureRequest, image: str, folder: Path) -> tuple[tuple[str, ...], str]:
    """Options that start a container as this user, and who it then is."""
    options, who = USERS[request.param]
    if request.param == "any uid, with one":
        known = said(image, "/etc/passwd", options=("--entrypoint", "cat"))
        passwd = write(folder / "passwd", known + "trainer:x:12345:0::/home/ma-user:/bin/bash\n")
        options = (*options, "-v", f"{passwd}:/etc/passwd:ro")
    return options, who


def test_one_node_runs_as_anybody(image: str, user: tuple[tuple[str, ...], str]) -> None:
    """4.1 ma-user, root, any uid with gid 0: two ranks of one node, with nothing to write but /tmp
    and no right left"""
    options, who = user
    job = ("-e", "ENTRYPOINT_SLOTS=2", "--hostname", "here")
    done = run(image, *WHO, options=(*options, *HARDENED, *job))
    assert (done.status, done.out) == (0, f"{who} here clean\n" * 2), done


@pytest.mark.parametrize("hardened", [False, True], ids=["plain", "hardened"])
def test_two_nodes_run_as_anybody(
    image: str, user: tuple[tuple[str, ...], str], hardened: bool
) -> None:
    """4.2 the same on two nodes, over ssh; the name that ssh needs reaches no rank"""
    options, who = user
    if hardened:
        options = (*options, *HARDENED, *(ROOT_NEEDS if who == "0:0" else ()))
    with Pair(image, options) as pair:
        pair.start_both(*WHO)
        assert pair.ends() == [0, 0], pair.logs()
        ranks = [line for line in logs(pair.boxes[0]).splitlines() if line.startswith(who)]
        assert sorted(ranks) == [f"{who} worker-{rank // 2} clean" for rank in range(4)]
        assert "WARN" not in pair.logs()


def test_two_nodes_where_ssh_cannot_work(image: str) -> None:
    """4.3 where ssh cannot work, the message names what is missing: root's capabilities, a name for
    the uid"""
    with Pair(image, ("--user", "0", *HARDENED)) as pair:
        pair.start_both(*WHO)
        assert pair.ends() == [78, 78]
        assert "no SETGID, SETUID, SYS_CHROOT | run as another user" in pair.logs()
    nameless = f"{image.split(':')[0]}-nameless"
    build(nameless, f"FROM {image}\nUSER 0\nRUN rm /usr/lib/*/libnss_wrapper.so*\n")
    try:
        with Pair(nameless, ("--user", "12345:0")) as pair:
            pair.start_both(*WHO)
            assert pair.ends() == [78, 78]
            assert "no libnss_wrapper.so | install libnss-wrapper" in pair.logs()
    finally:
        engine().images.remove(nameless)


def test_it_writes_into_the_run_directory_alone(image: str) -> None:
    """4.4 all that we write is in the run directory, and gone at the end; no file changes its
    owner"""
    with started(
        image, "sh", "-c", "ls -A $ENTRYPOINT_RUN_DIR | wc -l", options=("-e", "ENTRYPOINT_SLOTS=2")
    ) as box:
        wait(box)
        assert exit_code(box) == 0
        assert int(logs(box).split("\n")[0]) > 3  # the control: there were some
        # The node's record lies next to the run directory, for whoever wants to know the result
        # later, and how its ranks were started.
        left = {each["Path"] for each in container(box).diff()}
        run_dir = "/tmp/entrypoint-1000-36666"
        ranks = {f"{run_dir}-ranks{name}" for name in ("", "/0", "/1")}
        assert left <= {"/tmp", f"{run_dir}-state.json", *ranks}
    elsewhere = ("-e", "ENTRYPOINT_RUN_DIR=/opt/run", "-e", "ENTRYPOINT_SLOTS=2")
    done = run(image, "true", options=("--read-only", *elsewhere))
    assert done.status == 73
    assert "set ENTRYPOINT_RUN_DIR to a writable place" in done.err


@pytest.mark.parametrize("run_dir", ["/dev/shm/run", "/scratch/run"])
def test_the_run_directory_can_be_elsewhere(image: str, run_dir: str) -> None:
    """4.5 the run directory may lie on any place that is writable, executable or not"""
    given = ("-e", f"ENTRYPOINT_RUN_DIR={run_dir}", *HARDENED, "--tmpfs", "/scratch:mode=1777")
    with Pair(image, given) as pair:
        pair.start_both("sh", "-c", "echo $ENTRYPOINT_RUN_DIR")
        assert pair.ends() == [0, 0], pair.logs()
        assert logs(pair.boxes[0]).count(f"{run_dir}\n") == 4


@pytest.mark.parametrize(
    ("mode", "owner", "works"),
    [
        (0o644, "0:0", True),
        (0o440, "0:4321", True),
        (0o600, "1000:100", True),
        (0o400, "0:0", False),
    ],
)
def test_mounted_keys(image: str, folder: Path, mode: int, owner: str, works: bool) -> None:
    """4.6 keys mounted 0644, or 0440 for an injected fsGroup, work; unreadable ones name the fixing
    step"""
    write(folder / "make", "", 0o644)
    make = "for key in client host; do ssh-keygen -q -t ed25519 -N '' -f /keys/$key; done; "
    make += f"chmod {mode:o} /keys/*; chown {owner} /keys/*"
    said(image, "-c", make, options=("--user", "0", "--entrypoint", "sh", "-v", f"{folder}:/keys"))
    given = ("-v", f"{folder}:/keys:ro", "--group-add", "4321")
    given += (
        *split("-e ENTRYPOINT_SSH_CLIENT_KEY=/keys/client -e ENTRYPOINT_SSH_HOST_KEY=/keys/host"),
    )
    with Pair(image, given) as pair:
        pair.secret = ""
        pair.start_both("true")
        assert pair.ends() == ([0, 0] if works else [66, 66]), pair.logs()
        assert works or "fsGroup" in pair.logs()


def test_a_user_who_may_not_enter_the_working_directory_is_told_how(image: str) -> None:
    """4.9 the image's folders are for group 0; any other folder is fine"""
    done = run(image, "echo", "there", options=("--user", "4321:4321"))
    assert done.status == 126
    said_ = (
        "it is the working directory, and user 4321, group 4321 may not enter it | choose another"
    )
    assert "EP440 cannot start echo: /home/ma-user: Permission denied" in done.err
    assert f"{said_} (docker run -w, workdir), or group 0" in done.err
    assert "docker run --user 4321:0; exit 126" in done.err
    for options in (("--user", "4321:0"), ("--user", "4321:4321", "-w", "/tmp")):
        assert said(image, "echo", "there", options=options) == "there\n"
