"""Secrets planted wherever a user may put one, each command of ours driven with them, and all it
made searched."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import secrets
import shlex
import stat
import sys
from pathlib import Path
from shlex import split

import pytest

from entrypoint.base.secret import hides, masked, masked_words
from tests import command, table
from tests.cluster import SECRET, Make
from tests.command import captured
from tests.security.door import needs_ssh
from tests.security.planted import (
    BY_FLAG,
    BY_SPEC,
    BY_URL,
    BY_WORD,
    FLAG,
    NAMES,
    PLANTED,
    SPEC,
    environment,
    leaks,
)
from tests.waits import until

TABLE = table("tests/tables/redaction.yaml")

WORDS = [
    "python3", "train.py", "--password", BY_WORD, f"--api-key={BY_WORD}",
    f"http://me:{BY_URL}@host/", f"https://{BY_URL}@host/repository.git",
    f"https://{BY_URL}:x-oauth-basic@host/repository.git",
]  # fmt: skip


def entrypoint(folder: Path, *argv: str) -> command.Done:
    return command.run(folder, *argv, env=environment())


COMMANDS: dict[str, tuple[int, str]] = TABLE["commands"]


@pytest.mark.parametrize("name", COMMANDS)
def test_no_command_shows_a_secret(name: str, tmp_path: Path) -> None:
    """No command prints or writes a planted secret: plan, render, deploy, ranktable, schema,
    --help, run, errors."""
    (tmp_path / "job.yaml").write_text(SPEC)
    (tmp_path / "train.py").touch()
    (tmp_path / "broken.yaml").write_text(
        f"env:\n  HF_TOKEN: {BY_SPEC}\n  HF_TOKEN: {BY_SPEC}\nhosts: {{a: b}}\nslots: x\n"
    )
    status, words = COMMANDS[name]
    planted = {"FLAG": shlex.join(FLAG), "WORDS": shlex.join(WORDS)}
    line = words.format(**planted, BY_FLAG=BY_FLAG, BY_WORD=BY_WORD)
    done = entrypoint(tmp_path, *split(line))
    assert done.returncode == status, done.stderr
    given = ("job.yaml", "broken.yaml", "train.py")
    written = [path for path in tmp_path.rglob("*") if path.is_file() and path.name not in given]
    assert (
        leaks(done.stdout, done.stderr, *(path.read_text(errors="replace") for path in written))
        == []
    )
    assert "Traceback" not in done.stderr
    if name == "render":
        assert written
        assert (
            "EP128 secrets are left out of the scripts | FLAG_TOKEN, GIVEN_PASSWORD,"
            " HF_SPEC_TOKEN, launcher_args, mpi.x_args | set" in done.stderr
        )
        assert any("SHOWN" in path.read_text() for path in written)  # what is no secret is there
    if name.startswith("deploy"):
        assert (
            "EP128 secrets in the spec | launcher_args, HF_SPEC_TOKEN, mpi.x_args | everybody"
            in done.stderr
        )
    if name.startswith("plan"):
        assert "(not shown)" in done.stdout
        assert "FLAG_TOKEN" in done.stdout  # the name is no secret


CRASH = f"""
import sys
import entrypoint.plan
from entrypoint import cli
def crashes(*_):
    import os
    raise RuntimeError(f"with {{os.environ['HF_TOKEN']}} and {{os.environ['ENTRYPOINT_SECRET']}}")
sys.modules["entrypoint.plan"].settle = crashes
sys.exit(cli.main({["plan", "--spec", "job.yaml", *FLAG, "--", *WORDS]!r}))
"""


def test_a_crash_with_its_trace_shows_no_secret(tmp_path: Path) -> None:
    """An internal error, with ENTRYPOINT_TRACE and secrets in its very words, prints the trace and
    none of them."""
    (tmp_path / "job.yaml").write_text(SPEC)
    done = captured([sys.executable, "-c", CRASH], cwd=tmp_path, env=environment())
    assert done.returncode == 70
    assert "Traceback" in done.stderr
    assert done.stderr.count("with (not shown) and (not shown)") == 2  # our line, and the trace
    assert leaks(done.stdout, done.stderr) == []


@pytest.mark.control("no secret is printed or on a command line")
def test_the_search_finds_what_is_there(tmp_path: Path) -> None:
    """Control: the same search finds each of the planted secrets in a program that prints its
    environment."""
    (tmp_path / "job.yaml").write_text("env: {HF_SPEC_TOKEN: " + BY_SPEC + "}\n")
    argv = ("run", "--spec", "job.yaml", *FLAG, "--", "sh", "-c", 'env; echo "$@"', *WORDS)
    done = entrypoint(tmp_path, *argv)
    assert done.returncode == 0, done.stderr
    there = {*NAMES, "env of the spec", "--env", "ENTRYPOINT_ENV", "--password", "URL"} - {
        "ENTRYPOINT_SECRET"
    }
    assert set(leaks(done.stdout)) == there  # but for the job's own secret, which no program gets
    assert leaks(done.stderr) == []


PROGRAM = """
import hashlib, os, pathlib, sys
names = [*sys.argv[1:]]
sums = {name: hashlib.sha256(os.environ.get(name, "").encode()).hexdigest() for name in names}
print(" ".join(["RANK", *(f"{name}={sums[name]}" for name in names)]) + "\\n", end="", flush=True)  # in one write
pathlib.Path(os.environ["FOLDER"], "up-" + os.environ["OMPI_COMM_WORLD_RANK"]).touch()
while not pathlib.Path(os.environ["FOLDER"], "go").exists(): pass
"""


def processes() -> list[tuple[str, bytes, bytes]]:
    """Command line and environment of every process of this machine that we may read."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                found.append(
                    (entry.name, (entry / "cmdline").read_bytes(), (entry / "environ").read_bytes())
                )
            except OSError:
                continue
    return found


@pytest.mark.promise("no secret is printed or on a command line")
@needs_ssh
def test_a_running_job_shows_no_secret(cluster: Make) -> None:
    """While a job runs no secret is in an argv, a log, a file that others may read, or sshd's
    environment."""
    job = cluster(2, slots=1)
    wanted = {**PLANTED, "HF_SPEC_TOKEN": BY_SPEC}
    del wanted["ENTRYPOINT_SECRET"]
    (job.folder / "job.yaml").write_text(f"env: {{HF_SPEC_TOKEN: {BY_SPEC}}}\n")
    extra = {name: PLANTED[name] for name in PLANTED if name != "ENTRYPOINT_SECRET"}
    extra |= {"ENTRYPOINT_SPEC": str(job.folder / "job.yaml"), "FOLDER": str(job.folder)}
    job.start_all(sys.executable, "-c", PROGRAM, *wanted, env=extra)
    try:
        until(lambda: len(list(job.folder.glob("up-*"))) == 2, f"two ranks\n{job.both()}")
        ours = [entry for entry in processes() if os.fsencode(job.folder) in entry[1] + entry[2]]
        lines = [line for _, line, _ in ours]
        assert any(b"mpirun" in line or b"prterun" in line for line in lines)
        assert sum(b"sshd_config" in line for line in lines) == 2
        everyone = " ".join(line.decode(errors="replace") for _, line, _ in processes())
        assert leaks(everyone) == []
        assert SECRET not in everyone
        doors = [environ for _, line, environ in ours if b"sshd_config" in line]
        assert leaks(*(environ.decode(errors="replace") for environ in doors)) == []
        assert [environ for environ in doors if SECRET.encode() in environ] == []
        for rank in range(2):
            assert stat.S_IMODE(job.run_dir(rank).lstat().st_mode) == 0o700
            for path in job.run_dir(rank).iterdir():
                if not stat.S_ISSOCK(path.lstat().st_mode):
                    assert path.lstat().st_mode & 0o077 == 0, path
                if path.is_file():
                    assert SECRET not in path.read_text(errors="replace"), path
    finally:
        (job.folder / "go").touch()
    assert job.ends() == {0: 0, 1: 0}, job.both()
    assert leaks(job.both()) == []
    assert SECRET not in job.both()
    # The program had every one of them, byte for byte.
    digests = " ".join(
        f"{name}={hashlib.sha256(value.encode()).hexdigest()}" for name, value in wanted.items()
    )
    assert job.out().count(f"RANK {digests}") == 2
    left = [path for path in job.folder.rglob("*") if path.is_file() and path.name != "job.yaml"]
    assert leaks(*(path.read_text(errors="replace") for path in left)) == []


MISTAKEN = {
    "hexadecimal": secrets.token_hex(32),
    # One that begins with a slash looks like a path: it is the next but one.
    "base64": base64.b64encode(b"x" + secrets.token_bytes(32)).decode(),
    "base64 whose long parts have no digit": "tMGsOJuUxITIWkUHju/AAYhQAXKJNAiusO/x7FhS15Jv",
    "base64, as a path begins": f"/{base64.b64encode(hashlib.sha256(b'1').digest()).decode()}",
    "words": "correct-horse-battery-staple",
    "base64 of 24 bytes": "q/Zt9VhEGlT7mBxw0cKp/3sJdYRuNf2L",
}


@pytest.mark.parametrize(
    ("kind", "how"),
    [
        *((kind, "spec") for kind in MISTAKEN),
        *(("base64", how) for how in ("flag", "variable", "another variable")),
    ],
)
def test_a_secret_in_the_place_of_its_file_is_nowhere(kind: str, how: str, tmp_path: Path) -> None:
    """In what plan, run, check and render print and write, errors included."""
    mistaken = MISTAKEN[kind]
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "ENTRYPOINT_RUN_DIR": str(tmp_path / "run"),
    }
    (tmp_path / "job.yaml").write_text(
        "hosts: [node-0, node-1]\nnode_rank: 0\nlauncher: mpirun\nslots: 1\n"
        f"{f'secret_file: {json.dumps(mistaken)}' if how == 'spec' else ''}\ncommand: ['true']\n"
    )
    flags = ["--spec", "job.yaml", *(["--secret-file", mistaken] if how == "flag" else [])]
    env |= {"ENTRYPOINT_SECRET_FILE": mistaken} if how == "variable" else {}
    env |= (
        {"HF_TOKEN_PATH": mistaken, "ENTRYPOINT_SECRET": "4f" * 8 + "9ab3c"}
        if how == "another variable"
        else {}
    )
    given = ["--env", f"MY_TOKEN_FILE={mistaken}"] if how == "another variable" else []
    commands = [
        ["plan", *given],
        ["plan", "--json", *given],
        ["facts"],
        ["check"],
        ["render", "--out", "made"],
    ]
    # which would wait for its peer
    for words in commands + ([["run"]] if how != "another variable" else []):
        done = command.run(tmp_path, *words, *flags, env=env)
        assert mistaken not in done.stdout + done.stderr, (words, done)
        assert done.returncode != 70, done
    files = [each for each in tmp_path.rglob("*") if each.is_file() and each.name != "job.yaml"]
    assert [each for each in files if mistaken in each.read_text()] == []


def test_the_name_of_a_file_is_shown() -> None:
    """The control: who gives a file sees which."""
    assert hides("HF_TOKEN_PATH", "hf_0123456789abcdefghij")
    assert hides("ssh.host_key", "-----BEGIN OPENSSH PRIVATE KEY-----")
    for name in (
        *split(
            "/run/secrets/job secret key/secret job.secret ../my-training-job.secret ./job.secret"
        ),
        "~/.secrets/my-long-training-job-secret-2",
        "$MA_JOB_DIR/secret",
    ):
        assert not hides("secret_file", name)
        assert not hides("ENTRYPOINT_SECRET_FILE", name)
    assert not hides("workdir", secrets.token_hex(32))


TOKENS = TABLE["tokens"]


@pytest.mark.parametrize("token", TOKENS.values(), ids=TOKENS)
def test_a_token_is_hidden_by_its_form(token: str) -> None:
    """in a value, a word and a text, whatever names it"""
    for shown in (masked(f"begin {token} end"), *masked_words(["--to", token])):
        assert "(not shown)" in shown or shown == "--to"
        assert token[-12:] not in shown or token.endswith("/x")
        assert "9f8e7d6c5b4a" not in shown
    assert masked(f"begin {token} end").endswith(" end")
    assert masked(f"begin {token} end").startswith("begin ")


@pytest.mark.parametrize(
    "text",
    [
        "sk-learn hf_home ghp_x eyJ bearer of news AIza",
        "KEY=1 sort_key=loss public_key=/k client_key=/run/k keyboard=us compass=n author=me",
        "tasks=4 disk=/data mask=7 patience=3 path=/x signal=9 pass_rate=0.5",
    ],
)
def test_what_only_begins_alike_is_shown(text: str) -> None:
    assert masked(text) == text
