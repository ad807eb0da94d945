"""Images as vendors lay them out, and two lines in a Dockerfile: the image's own start goes on to
run first, and its MPI starts the ranks.

`scripts/dev/layout-images` makes both, from tests/bake/layouts: entrypoint-layout:NAME, and
entrypoint-layout-installed:NAME with the ENTRYPOINT that `install` prints.
"""

from __future__ import annotations

import base64
import re
import time
from shlex import split

import pytest

from tests.containers import container, exit_code, logs, missing
from tests.image.boxes import Pair, run, said, started

# Layout -> how its plain start runs a program, and the folder of its MPI.
LAYOUTS = {
    "ngc": ((), "/opt/hpcx/ompi"),
    "hpcx": (("bash", "-c", '. /opt/hpcx/hpcx-init.sh; hpcx_load; exec "$@"', "-"), "/opt/hpcx/ompi"),
    "stacks": ((), "/usr/local"),
    "s6": (("/command/with-contenv",), "/usr/local"),
    "tini": ((), "/usr/local"),
    "vendor": ((), "/usr/local"),
}  # fmt: skip
BASES = tuple(f"entrypoint-layout-installed:{name}" for name in LAYOUTS)
GIVEN = split("-e GIVEN='two words' -e VENDOR_LICENSE_KEY=k")
# What a rank has in addition: the toolkit's own, numbers of ranks, and what mpirun itself sets.
OURS = (
    r"ENTRYPOINT_\w+|S6_CMD_RECEIVE_SIGNALS|RANK|WORLD_SIZE|LOCAL_RANK|LOCAL_WORLD_SIZE|OMP_NUM_THREADS"
    r"|(OMPI|OPENMPI|OPAL|PMIX|PRTE|HOROVOD|NCCL|GLOO)_\w+|(DY)?LD_LIBRARY_PATH|NODE_RANK|MKL_\w+|OPENBLAS_\w+|NUMEXPR_\w+"
    r"|MASTER_(ADDR|PORT)|TMPDIR|PWD|OLDPWD|SHLVL|_"
)
SHOW = (
    'echo "rank $OMPI_COMM_WORLD_RANK $(env -0 | base64 -w0)'
    " $(readlink /proc/[0-9]*/exe | grep -E '/(mpirun|prterun|prte|prted|orted)$' | sort -u | tr '\\n' ',')\""
)


def layout(image: str) -> str:
    return image.partition(":")[2]


def built(name: str) -> str:
    """The image of this layout with the toolkit; skips the test if it was not made."""
    image = f"entrypoint-layout-installed:{name}"
    if missing(image):
        pytest.skip(f"no image {image}; run scripts/dev/layout-images")
    return image


def original(image: str) -> str:
    """The image that the two lines were added to."""
    return image.replace("layout-installed", "layout")


def environment(text: bytes) -> dict[str, str]:
    """What `env -0` has written, without our own settings, and what a shell or sudo says of the
    command."""
    entries = (entry.partition("=") for entry in text.decode().split("\0") if entry)
    others = {name: value for name, _, value in entries if not name.startswith("ENTRYPOINT_")}
    return {
        name: others[name]
        for name in others.keys() - {"PWD", "OLDPWD", "SHLVL", "_", "SUDO_COMMAND"}
    }


def ordered(env: dict[str, str]) -> dict[str, str]:
    """The variables, with the folders of PATH in order: where an MPI of none is added does not
    matter."""
    return {**env, "PATH": ":".join(sorted(env["PATH"].split(":")))}


@pytest.mark.promise("an image's own start runs first, and its MPI starts the ranks")
def test_each_rank_has_the_environment_of_a_plain_start(image: str) -> None:
    """on two nodes, all variables of each rank are those of a plain start of the original image,
    but for a list of ours, and the image's own MPI has started it"""
    before, mpi = LAYOUTS[layout(image)]
    with Pair(image, GIVEN) as pair:
        pair.start_both("sh", "-c", SHOW)
        assert pair.ends() == [0, 0], pair.logs()
        lines = re.findall(r"^rank (\d) (\S+) (\S+)$", logs(pair.boxes[0]), re.M)
        assert sorted(rank for rank, _, _ in lines) == list("0123"), pair.logs()
        for rank, text, daemons in lines:
            node = int(rank) // 2
            shown = ("sh", "-c", "env -0 | base64 -w0; echo")
            plain = said(original(image), *before, *shown, options=pair.options_of(node))
            wanted = ordered(environment(base64.b64decode(plain.splitlines()[-1])))
            found = ordered(environment(base64.b64decode(text)))
            assert {name: found.get(name) for name in wanted} == wanted
            extra = found.keys() - wanted.keys()
            assert [name for name in sorted(extra) if not re.fullmatch(OURS, name)] == []
            folders = {daemon.rpartition("/bin/")[0] for daemon in daemons.split(",") if daemon}
            assert folders == {mpi}


@pytest.mark.control("an image's own start runs first, and its MPI starts the ranks")
def test_without_it_the_environment_differs() -> None:
    """the control: a program that does without the image's own start lacks its variables"""
    for name, variable in (("ngc", "NVIDIA_NOTE"), ("stacks", "CONDA_PREFIX"), ("vendor", "VENDOR_HOME")):  # fmt: skip
        image = built(name)
        show = ("sh", "-c", f'echo "have: ${variable}"')
        assert said(image, *show).splitlines()[-1] != "have: "
        without = said(image, *show, options=("-e", "ENTRYPOINT_IMAGE_START=no"))
        assert without == "have: \n"


def test_a_program_alone_has_it_too(image: str) -> None:
    """one program, in the environment of a plain start, with its own status"""
    before, _ = LAYOUTS[layout(image)]
    show = ("sh", "-c", "env -0 | base64 -w0; echo; exit 7")
    plain = run(original(image), *before, *show, options=("--hostname", "h", *GIVEN))
    done = run(image, *show, options=("--hostname", "h", *GIVEN))
    assert (plain.status, done.status) == (7, 7), done
    wanted, found = (
        environment(base64.b64decode(text.out.splitlines()[-1])) for text in (plain, done)
    )
    found.pop("S6_CMD_RECEIVE_SIGNALS", None)
    if layout(image) == "hpcx":  # a program alone is started as it is
        wanted = {name: value for name, value in wanted.items() if name in found}
        wanted["PATH"] = found["PATH"]
    assert found == wanted


def test_a_scheduler_that_starts_another_command(image: str) -> None:
    """`entrypoint run` in the place of the image's ENTRYPOINT also runs the image's own start; one
    that must be process 1 is refused where it is not"""
    show = split("run -- sh -c 'echo has:$VENDOR_HOME$CONDA_PREFIX$NVIDIA_NOTE'")
    done = run(image, *show, options=("--entrypoint", "entrypoint", "--init"))
    if layout(image) == "s6":
        assert done.status == 78
        assert "EP446 the image's own start must be process 1 | /init" in done.err
        return
    assert done.status == 0, done
    prepared = {"ngc": "two words, 0", "stacks": "/opt/conda", "vendor": "/opt/vendor"}
    assert done.out.splitlines()[-1] == f"has:{prepared.get(layout(image), '')}"


def test_a_stop_reaches_the_job(image: str) -> None:
    """SIGTERM to the container reaches the ranks, through whatever the image has in front"""
    script = "trap 'echo saved; exit 3' TERM; echo ready; while :; do sleep 0.05; done"
    with started(image, "sh", "-c", script, options=("-e", "ENTRYPOINT_SLOTS=2")) as box:
        for _ in range(200):
            if logs(box).count("ready") == 2:
                break
            time.sleep(0.05)
        container(box).stop(timeout=20)
        assert logs(box).splitlines().count("saved") == 2, logs(box)
        assert exit_code(box) == 143, logs(box)


def test_a_start_that_fails_is_never_0() -> None:
    """its own status is the container's, and no program starts"""
    image = built("ngc")
    for words in (("echo", "ran"), ("entrypoint", "run", "--", "echo", "ran")):
        done = run(image, *words, options=("-e", "NVIDIA_CHECK_FAILS=9"))
        assert done.status == 9, done
        assert "needs another driver" in done.out
        assert "ran" not in done.out.splitlines()


def test_facts_say_what_was_found(image: str) -> None:
    """`entrypoint facts` names the image's own start, its MPI and where it is"""
    text = said(image, "entrypoint", "facts")
    assert "version: Open MPI 5." in text
    places = {"ngc": "/usr/local/mpi/bin", "hpcx": "/opt/hpcx/ompi/bin"}
    assert f"path: {places.get(layout(image), '/usr/local/bin')}/mpirun" in text
    own = {
        "ngc": "- /opt/nvidia/nvidia_entrypoint.sh",
        "stacks": "- start.sh",
        "s6": "- /init",
        "vendor": "- /opt/vendor/bin/setup-run.sh",
    }
    assert own.get(layout(image), "matches:") in text
    assert ("image:" in text) == (layout(image) in own)
