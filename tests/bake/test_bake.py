"""Images as others have them, and two lines in a Dockerfile: jobs boot, and what was there is as it
was.

`scripts/dev/bake-images` makes both: entrypoint-bake-base:NAME, and entrypoint-two-lines:NAME from it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from tests import TREE
from tests.containers import docker, engine, logs, missing
from tests.image.boxes import Pair, run, said, sh, write

BASES = tuple(
    f"entrypoint-two-lines:{name}"
    for name in ("bookworm", "trixie", "conda", "nopython", "openmpi")
)
TWO_LINES = (
    "COPY --from=entrypoint-toolkit:dev /opt/entrypoint /opt/entrypoint\nRUN"
    " {before}/opt/entrypoint/install {words}"
)
# What a user finds in an image, and should find afterwards.
WHAT_IS_THERE = (
    "for each in python python3 mpirun; do command -v $each; done; python --version; mpirun"
    " --version | head -n 1; id; echo $PATH; pwd; find /etc/ssh /root/.ssh -name '*key*' -type f"
)


def before(image: str) -> str:
    """The image that the two lines were added to."""
    return image.replace("two-lines", "bake-base")


def lines(said: str) -> list[str]:
    """What ranks said, without our own words."""
    return sorted(line for line in said.splitlines() if line.startswith("rank "))


@pytest.mark.promise("the toolkit boots jobs in any image and changes nothing of it")
def test_mpirun_on_two_nodes(image: str) -> None:
    """mpirun starts two ranks on each of two nodes, and both end with the program's status"""
    program = (
        'echo "rank $OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE on $(hostname)"; exit $STATUS'
    )
    for status in (0, 7):
        with Pair(image, ("-e", f"STATUS={status}")) as pair:
            pair.start_both("image-entry", "sh", "-c", program)
            assert pair.ends() == [status, status], pair.logs()
            if status == 0:
                ranks = [f"rank {rank} of 4 on worker-{rank // 2}" for rank in range(4)]
                assert lines(logs(pair.boxes[0])) == ranks, pair.logs()


@pytest.mark.promise("the toolkit boots jobs in any image and changes nothing of it")
def test_what_was_there_is_as_it_was(image: str) -> None:
    """the image's Python, Open MPI, users, PATH and folder are those it had, and no key was
    added"""
    was, now = (
        sh(each, f"{WHAT_IS_THERE} || true").splitlines() for each in (before(image), image)
    )
    if not any("mpirun" in line for line in was):  # then one was added
        now = [line for line in now if "mpirun" not in line]
    assert was == now


def test_a_second_install_changes_nothing(image: str) -> None:
    """install may run again, also without a network, and then changes no file"""
    look = "find / -xdev -newer /tmp/mark -not -path '/tmp*' -not -type d"
    again = f"touch /tmp/mark; /opt/entrypoint/install && {look}"
    done = run(
        image, "-c", again, options=("--entrypoint", "sh", "--network", "none", "--user", "0")
    )
    assert (done.status, done.out) == (0, ""), done
    assert "is ready | mpirun: /" in done.err


@pytest.mark.promise("the SBOM of an image has every package, each with its licenses")
def test_the_sbom_has_what_the_toolkit_brings_along(image: str) -> None:
    """the list of an image's packages has the toolkit's own Python, its libraries and tini, each
    with a license"""
    subprocess.run(
        [sys.executable, TREE / "scripts/sbom.py", image], check=True, capture_output=True
    )
    parts = json.loads((TREE / f"build/sbom/{image.replace(':', '-')}.cdx.json").read_text())[
        "components"
    ]
    ours = {"name": "entrypoint:within", "value": "/opt/entrypoint/share"}
    brought = {part["name"]: part for part in parts if ours in part.get("properties", ())}
    wanted = {"tini", "python3.11-minimal", "libpython3.11-stdlib", "libc6", "libssl3"}
    wanted |= {"openssh-server", "openssh-client", "libnss-wrapper", "busybox-static"}
    assert wanted - brought.keys() == set()
    assert all(part["purl"].endswith("&distro=debian-12") for part in brought.values())
    assert [part["bom-ref"] for part in parts if not part["licenses"]] == []
    assert len({part["bom-ref"] for part in parts}) == len(parts)
    assert "training-entrypoint" in {part["name"] for part in parts}


def test_a_program_gets_the_images_python(image: str) -> None:
    """a program alone, and a job's, finds the image's own Python and its variables, and none of
    ours"""
    look = (
        "command -v python || echo none; env | grep -E '^(PYTHON|LD_|lD_|GCONV|LOCPATH)' | sort;"
        " python -V 2>&1"
    )
    wanted = sh(before(image), look + "; true")
    assert said(image, "image-entry", "sh", "-c", look + "; true").strip() == wanted
    job = said(
        image, "image-entry", "sh", "-c", look + "; true", options=("-e", "ENTRYPOINT_NAME=job")
    ).strip()
    assert job == wanted


@pytest.mark.promise("settings of the image's loader reach programs and not the toolkit's Python")
def test_what_is_meant_for_the_images_loader(image: str) -> None:
    """LD_PRELOAD and LD_LIBRARY_PATH reach programs and ranks, and not the toolkit's own Python"""
    libc = sh(image, "ls /lib/*/libc.so.6")
    given = ("-e", f"LD_PRELOAD={libc}", "-e", "LD_LIBRARY_PATH=/mine")
    show = ("sh", "-c", "echo $LD_PRELOAD $LD_LIBRARY_PATH")
    assert said(image, "image-entry", *show, options=given) == f"{libc} /mine\n"
    assert (
        said(image, "image-entry", *show, options=(*given, "-e", "ENTRYPOINT_SLOTS=2"))
        == f"{libc} /mine\n" * 2
    )


@pytest.mark.control("the toolkit boots jobs in any image and changes nothing of it")
def test_a_foreign_library_would_end_our_python() -> None:
    """the control: without its launcher, the toolkit's Python does not start with a library of a
    newer image"""
    image = "entrypoint-two-lines:trixie"
    if missing(image):
        pytest.skip(f"no image {image}; run scripts/dev/bake-images")
    libc = sh(image, "ls /lib/*/libc.so.6")
    words = ("/opt/entrypoint/libexec/python3", "-I", "-c", "print(1)")
    done = run(image, *words, options=("-e", f"LD_PRELOAD={libc}"))
    assert done.status != 0
    assert run(image, *words).out == "1\n"


def test_health(image: str) -> None:
    """entrypoint health answers where a program runs alone"""
    assert (
        said(image, "entrypoint", "health")
        == "no boot is going on here: the program runs on its own\n"
    )


def build(
    words: str = "", before: str = "", network: str = "default", user: str = "0"
) -> tuple[int, str]:
    """Status and words of a build with the two lines, on a Debian without anything; the image is
    removed."""
    tag = f"bake{uuid.uuid4().hex[:8]}"
    text = (
        "FROM entrypoint-base:bookworm\nUSER"
        f" {user}\n{TWO_LINES.format(before=before, words=words)}\n"
    )
    argv = ["docker", "build", "--progress=plain", "--network", network, "--tag", tag, "-"]
    done = subprocess.run(
        argv, input=text, capture_output=True, text=True, check=False,
        env={"DOCKER_BUILDKIT": "1", "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    docker("rmi", "--force", tag, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.promise("what an image lacks and cannot be installed fails its build, by name")
@pytest.mark.parametrize(
    ("words", "before", "user", "says"),
    [
        ("", "mv /usr/bin/apt-get /usr/bin/dnf; ", "0", "RUN dnf install -y openmpi before this line"),
        ("", "mv /usr/bin/apt-get /usr/bin/apk; ", "0", "RUN apk add openmpi before this line"),
        ("", "mv /usr/bin/apt-get /usr/bin/other; ", "0", "no package manager that we know"),
        ("", "", "0", "apt-get could not install"),
        ("", "", "1000", "only root can install | uid is 1000"),
        ("", "echo mine >/usr/local/bin/entrypoint; ", "0", "another program has this place | /usr/local/bin/entrypoint"),
        ("--witout mpirun", "", "0", "unknown argument | --witout"),
    ],
)  # fmt: skip
def test_what_cannot_be_installed_is_named(words: str, before: str, user: str, says: str) -> None:
    """what is missing and cannot be had fails the build, with what to do; --without does without"""
    status, text = build(words, before, network="none", user=user)
    assert status != 0
    assert says in text


@pytest.mark.control("what an image lacks and cannot be installed fails its build, by name")
def test_it_can_be_left_out() -> None:
    """the control: without what is missing, the same build is well"""
    status, text = build("--without mpirun", "rm /usr/bin/apt-get; ", network="none")
    assert status == 0, text
    assert "mpirun: left out" in text


def test_a_job_of_one_node_boots_without_packages(folder: Path) -> None:
    """with nothing of the system but its libc, one program boots: a spec, its environment, its
    status"""
    tag = f"bake{uuid.uuid4().hex[:8]}"
    text = (
        "FROM entrypoint-base:bookworm\nCOPY --from=entrypoint-toolkit:dev /opt/entrypoint"
        " /opt/entrypoint\nRUN rm /usr/bin/apt-get && /opt/entrypoint/install --without"
        " mpirun\n"
    )
    subprocess.run(
        ["docker", "build", "--quiet", "--network", "none", "--tag", tag, "-"], input=text, text=True, check=True,
        capture_output=True, env={"DOCKER_BUILDKIT": "1", "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    try:
        write(folder / "job.yaml", "env: {WHO: me}\ncommand: [sh, -c, 'echo hello $WHO; exit 5']\n")
        done = run(
            tag, "image-entry", "--spec", "/job/job.yaml", options=("-v", f"{folder}:/job:ro")
        )
        assert (done.status, done.out) == (5, "hello me\n"), done
    finally:
        engine().images.remove(tag, force=True)
