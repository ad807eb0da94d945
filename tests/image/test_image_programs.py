"""Points 1 and 2: what `docker run IMAGE ...` makes of its arguments, and who else may start it."""

from __future__ import annotations

import json
from pathlib import Path
from shlex import split

from tests.containers import engine
from tests.image.boxes import python, run, said, sh, write

ODD = [
    "", " ", "two words", "it's", 'a "quote"', "$HOME", "*", "a\nb", "\\",
    *split("-- -x --help --version --spec é"),
]  # fmt: skip
VERBS = ("run", "plan", "render", "deploy", "health", "ranktable", "schema")
# Two graphics cards, as far as anybody can tell without using them.
CARDS = ("--device", "/dev/null:/dev/nvidia0", "--device", "/dev/null:/dev/nvidia1")


def test_a_programs_words_arrive_as_they_are(image: str) -> None:
    """1.1 any program runs with its arguments as they are, and nothing of ours is printed"""
    look = "import json, sys; print(json.dumps(sys.argv[1:]))"
    done = run(image, *python(image), "-c", look, *ODD)
    assert (done.status, json.loads(done.out), done.err) == (0, ODD, "")


def test_a_program_alone_is_run_once(image: str) -> None:
    """1.2 a program is run as it is and once, no process of ours beside it; a job is what a setting
    describes"""
    look = "cat /proc/$PPID/comm; echo ${OMPI_COMM_WORLD_SIZE-no} rank"
    assert said(image, "sh", "-c", look, options=CARDS).split("\n")[:2] == ["tini", "no rank"]
    # The control: the same machine, with one setting of ours.
    assert (
        said(image, "sh", "-c", "echo hello", options=(*CARDS, "-e", "ENTRYPOINT_NAME=job"))
        == "hello\nhello\n"
    )


def test_no_verb_shadows_a_program(image: str) -> None:
    """1.3 no verb of ours shadows a program; only the word `entrypoint` is ours"""
    script = f"for v in {' '.join(VERBS)}; do image-entry $v 2>&1; echo $?; done"
    shown = sh(image, script).split("\n")
    assert shown == [
        line
        for verb in VERBS
        for line in (
            (
                f"[entrypoint] EP440 cannot start {verb}: No such file or directory"
                f" | did you mean: entrypoint {verb}?; exit 127"
            ),
            "127",
        )
    ]
    words = " ".join(VERBS)
    make = (
        f"mkdir /tmp/b; for v in {words}; do printf '#!/bin/sh\necho mine %s\n' $v >/tmp/b/$v;"
        " done; chmod +x /tmp/b/*"
    )
    script = f"{make}; PATH=$PATH:/tmp/b; for v in {words}; do image-entry $v; done"
    assert sh(image, script).split("\n") == [f"mine {verb}" for verb in VERBS]
    assert '"$schema"' in said(image, "entrypoint", "schema")


def test_alone_it_runs_the_job(image: str, folder: Path) -> None:
    """1.4 IMAGE alone, and IMAGE --spec FILE, run the job; with none described it says so"""
    spec = write(folder / "job.yaml", "command: [sh, -c, 'echo \"job $0 $*\"', one, two  words]\n")
    mount = ("-v", f"{folder}:/job:ro")
    assert said(image, "--spec", "/job/job.yaml", options=mount) == "job one two  words\n"
    assert (
        said(image, options=(*mount, "-e", f"ENTRYPOINT_SPEC=/job/{spec.name}"))
        == "job one two  words\n"
    )
    done = run(image)
    assert (done.status, done.out) == (78, "")
    assert "EP115 there is no program to run" in done.err


def test_help_and_version_need_nothing(image: str) -> None:
    """2.1 --help and --version: 0 on stdout with no spec, network, root, capability or writable
    file"""
    nothing = split("--network none --read-only --user 54321:54321 --cap-drop ALL -w /")
    for words in (["--version"], ["--help"]):
        done = run(image, *words, options=nothing)
        assert (done.status, done.err) == (0, "")
        assert done.out.startswith("entrypoint " if "--version" in words else "usage: entrypoint")


def test_entrypoint_and_command_are_lists(image: str) -> None:
    """2.2 ENTRYPOINT and CMD are in exec form, so that no shell stands between a signal and tini"""
    config = engine().images.get(image).attrs["Config"]
    assert config["Entrypoint"] == ["/usr/bin/tini", "-s", "--", "/usr/local/bin/image-entry"]
    assert config["Cmd"] in ([], None)


def test_other_inits_and_entrypoints_work(image: str) -> None:
    """2.3 --entrypoint and --init work as with any image"""
    assert run(image, "-c", "echo $((6*7))", options=("--entrypoint", "sh")).out == "42\n"
    ranks = ("sh", "-c", "echo $OMPI_COMM_WORLD_RANK; exit 7")
    done = run(image, *ranks, options=("--init", "-e", "ENTRYPOINT_SLOTS=2"))
    assert (done.status, set(done.out.split()) <= {"0", "1"}) == (7, True)
    assert "tini" not in done.err.lower()


def test_it_is_a_platforms_boot_command(image: str) -> None:
    """2.4 a platform that replaces ENTRYPOINT may start it as its boot command, and is PID 1
    itself"""
    script = (
        "bash run_mpi.sh sh -c 'echo rank $OMPI_COMM_WORLD_RANK'; echo $?; "
        "entrypoint run -- sh -c 'echo rank $OMPI_COMM_WORLD_RANK; exit 5'; echo $?; "
        # What is left: this shell, which looks itself.
        "set -- /proc/[0-9]*; echo $#"
    )
    # On a slow machine a health check would be one process more.
    options = ("--entrypoint", "bash", "--no-healthcheck", "-e", "MY_MPI_SLOTS=2")
    done = run(image, "-c", script, options=options)
    shown = done.out.split("\n")
    assert (sorted(shown[:2]), shown[2]) == (["rank 0", "rank 1"], "0")
    assert shown[-3:-1] == ["5", "1"]
