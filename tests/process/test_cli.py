"""The command, as a person meets it: its exit status, and what it says on which stream."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from shlex import split
from typing import Any

import pytest

from entrypoint.base import registry
from entrypoint.cli.parser import NAMES
from tests import table
from tests.cluster import free_port
from tests.command import PATH, captured
from tests.command import run as call
from tests.process.bench import Process

PROGRAM = (sys.executable, "-m", "entrypoint")
SECRET = secrets.token_hex(32)
TWO = ("--hosts", "worker-0=127.0.0.1,worker-1=127.0.0.2")

Done = subprocess.CompletedProcess[str]


@pytest.fixture
def cwd(tmp_path: Path) -> Path:
    """An empty place to start from; what the command writes anywhere near is seen."""
    folder = tmp_path / "cwd"
    folder.mkdir()
    return folder


def entrypoint(cwd: Path, *args: str, env: Mapping[str, str] = PATH) -> Done:
    return call(cwd, *args, env=env)


def started(cwd: Path, *args: str, env: Mapping[str, str] = PATH, **more: Any) -> Done:
    """The same as a process of its own, as a user starts it."""
    return subprocess.run(
        [*PROGRAM, *args], cwd=cwd, env=env, text=True, check=False,
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **more},
    )  # fmt: skip


def tree(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.mark.parametrize(
    ("env", "is_job"),
    [
        ({"MASTER_PORT": "7070"}, False),
        ({"MY_MPI_SLOTS": "1"}, True),
        ({"JOB_COMPLETION_INDEX": "3", "KUBERNETES_SERVICE_HOST": "10.0.0.1"}, False),
        ({"SKYPILOT_NODE_RANK": "0", "SKYPILOT_NUM_NODES": "1", "SKYPILOT_NODE_IPS": "127.0.0.1"}, True),
        ({"ENTRYPOINT_SECRET": "", "ENTRYPOINT_CACHE": "/x", "ENTRYPOINT_TRACE": "1"}, False),
        ({"ENTRYPOINT_CACHE": "/x", "ENTRYPOINT_NODE_RANK": "0"}, True),
    ],
)  # fmt: skip
def test_only_what_describes_a_job_makes_one_of_a_program(
    env: dict[str, str], is_job: bool, cwd: Path
) -> None:
    """Which variables do: unit/test_settings.py."""
    done = entrypoint(cwd, "run", "--passthrough", "--", "env", env={**PATH, **env})
    assert (done.returncode, "ENTRYPOINT_RUN_DIR=" in done.stdout) == (0, is_job)


@pytest.mark.parametrize(
    "args",
    [
        ["plan", "--json", *TWO, "--node-rank", "1", "--", "env", "an arg"],
        ["fly"],
        ["run", "--", "sh", "-c", "pwd; env | sort; echo err >&2; exit 7"],
        ["run", "--", "sh", "-c", "kill -9 $$"],
        ["run", "--slots", "2", "--launcher", "plain", "--", "no-such-program"],
    ],
)
def test_a_forked_command_answers_as_a_started_one(args: list[str], cwd: Path) -> None:
    """Most tests here fork a process that has imported everything: tests/command.py."""
    env = {**PATH, "ENTRYPOINT_SECRET": SECRET, "LC_ALL": "C.UTF-8"}
    forked, real = entrypoint(cwd, *args, env=env), started(cwd, *args, env=env)
    assert (forked.returncode, forked.stdout, forked.stderr) == (
        real.returncode,
        real.stdout,
        real.stderr,
    )
    assert forked.stdout + forked.stderr or forked.returncode == -9


def test_the_documented_trials_on_ascend_cards(cwd: Path) -> None:
    """The lines of docs/how-to/ascend.md that start a job on Ascend cards, or as if there were
    some."""
    lines = (Path(__file__).parents[2] / "docs/how-to/ascend.md").read_text().splitlines()
    trials = [line for line in lines if line.startswith("docker run") and "RANK_TABLE=none" in line]
    assert len(trials) == 2
    env = {**PATH, "ENTRYPOINT_RUN_DIR": f"{cwd.parent}/run", "ENTRYPOINT_SIMULATE_ASCEND": "2"}
    program = ("sh", "-c", "echo $RANK_ID of $RANK_SIZE")
    for line in trials:
        given = dict(re.findall(r"-e (\w+)=(\S+)", line))
        done = entrypoint(cwd, "run", "--passthrough", "--", *program, env={**env, **given})
        assert done.returncode == 0, done
        assert sorted(done.stdout.splitlines()) == ["[rank 0] 0 of 2", "[rank 1] 1 of 2"]


# --------------------------------------------------------------------------------------------------
# What is asked for


@pytest.mark.parametrize(
    "command", [[], ["help"], ["run"], ["plan"], ["render"], ["deploy"], ["schema"], ["explain"]]
)
def test_help_is_on_stdout_with_no_environment_at_all(command: list[str], cwd: Path) -> None:
    done = entrypoint(cwd, *command, "--help", env={})
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("usage: entrypoint")
    assert re.search(r"^    78 +CONFIG ", done.stdout, re.MULTILINE)


def test_help_names_what_can_be_chosen(cwd: Path) -> None:
    done = entrypoint(cwd, "run", "--help", env={**PATH, "COLUMNS": "500"})
    text = " ".join(done.stdout.split())
    for kind in ("launcher", "device", "platform"):
        names = ", ".join(registry.names(f"{kind}s"))
        assert f": {names} (or ENTRYPOINT_{kind.upper()})" in text


def test_a_command_of_ours_taken_for_a_program(cwd: Path) -> None:
    """As `docker run IMAGE plan` does."""
    for word, hint in (("plan", " | did you mean: entrypoint plan?"), ("plam", "")):
        done = entrypoint(cwd, "run", "--passthrough", "--", word)
        said = f"cannot start {word}: No such file or directory{hint}; exit 127"
        assert (done.returncode, done.stderr) == (127, f"[entrypoint] EP440 {said}\n")
    listed = entrypoint(cwd, "fly").stderr.partition("use one of ")[2]
    assert tuple(re.findall(r"[a-z]+", listed)) == tuple(NAMES)


@pytest.mark.parametrize("flag", ["--version", "-V"])
def test_version(flag: str, cwd: Path) -> None:
    """Which it is: test_version.py."""
    done = entrypoint(cwd, flag, env={})
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(r"entrypoint \d+\.\d+\.\d+\S*\n", done.stdout)


@pytest.mark.parametrize(
    ("words", "same"),
    [("", "--help"), ("help", "--help"), ("help ranktable make", "ranktable make -h")],
)
def test_help_is_a_command_too(words: str, same: str, cwd: Path) -> None:
    done = entrypoint(cwd, *words.split(), env={})
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == entrypoint(cwd, *same.split(), env={}).stdout


def test_help_shows_the_common_options_first_and_each_group_in_order(cwd: Path) -> None:
    """Of a job's options, eight are used most; those of the command alone come last."""
    text = entrypoint(cwd, "plan", "--help", env={"COLUMNS": "300"}).stdout
    groups = re.findall(r"^(\w[^\n]*):\n((?:  .*\n)+)", text, re.MULTILINE)
    flags = {title: re.findall(r"^  (?:-\w, )?--([a-z-]+)", lines, re.M) for title, lines in groups}
    assert next(iter(flags)) == "common options"
    assert list(flags)[-1] == "options"
    assert len(flags["common options"]) == 8
    assert {"spec", "launcher", "env", "hosts"} < set(flags["common options"])
    for title, names in flags.items():
        assert names == sorted(names), title
    assert len(text.splitlines()) < 74


# --------------------------------------------------------------------------------------------------
# What is wrong


WRONG: dict[str, str] = table("tests/tables/flags.yaml")


@pytest.mark.parametrize("words", WRONG)
def test_a_wrong_flag(words: str, cwd: Path) -> None:
    done = entrypoint(cwd, *words.split())
    assert (done.returncode, done.stdout) == (64, "")
    assert re.fullmatch(rf"\[entrypoint\] {WRONG[words]}\n", done.stderr)


def settings_of(plan: str) -> dict[str, Any]:
    return {path: entry["value"] for path, entry in json.loads(plan)["settings"].items()}


@pytest.mark.parametrize("path", ["mpi.hostfile", "workdir", "log_dir", "secret_file"])
def test_a_relative_path_starts_where_it_was_written(path: str, cwd: Path) -> None:
    """In the spec's file at its folder; in a flag or a variable at the current folder."""
    folder = cwd / "conf"
    folder.mkdir()
    section, _, name = path.rpartition(".")
    (folder / "job.yaml").write_text(
        f"{section}: {{{name}: sub/x}}\n" if section else f"{name}: sub/x\n"
    )
    words = ("plan", "--json", "--spec", "conf/job.yaml", "--", "true")
    variable = "ENTRYPOINT_" + path.replace(".", "_").upper()
    found = [
        settings_of(entrypoint(cwd, *words, env={**PATH, **env}).stdout)[path]
        for env in ({}, {variable: "sub/x"})
    ]
    assert found == [f"{folder}/sub/x", f"{cwd}/sub/x"]


def test_a_spec_that_is_no_file_has_paths_from_the_current_folder(cwd: Path) -> None:
    script = 'exec "$0" -m entrypoint plan --json --spec <(echo "workdir: sub") -- true'
    done = captured(["bash", "-c", script, sys.executable], cwd=cwd, env=PATH)
    assert settings_of(done.stdout)["workdir"] == f"{cwd}/sub"


def test_a_plan_on_a_machine_that_is_none_of_the_nodes(cwd: Path) -> None:
    """A laptop shows worker-0's, says so, and ends as `run` would"""
    words = ("--hosts", "red,blue")
    done = entrypoint(cwd, "plan", *words, "--launcher", "plain", "--", "true")
    assert done.returncode == 78
    assert "this node: worker-0 (red)" in done.stdout
    assert "this is the plan of worker-0; --node-rank 1 shows that of worker-1" in done.stderr
    assert "run would end: EP202 node index unknown" in done.stderr
    done = entrypoint(cwd, "plan", *words, "--node-rank", "2", "--launcher", "plain", "--", "true")
    assert (done.returncode, done.stdout) == (78, "")


@pytest.mark.parametrize("command", ["run", "plan"])
def test_a_missing_spec(command: str, cwd: Path) -> None:
    message = (
        f"[entrypoint] EP111 cannot read the job spec {cwd}/job.yaml | No such file or directory"
        " | give --spec or ENTRYPOINT_SPEC an existing file\n"
    )
    for done in (
        entrypoint(cwd, command, "--spec", "job.yaml", "--", "true"),
        entrypoint(cwd, command, "--", "true", env={**PATH, "ENTRYPOINT_SPEC": "job.yaml"}),
    ):
        assert (done.returncode, done.stdout, done.stderr) == (66, "", message)


@pytest.mark.parametrize("command", ["run", "plan"])
def test_a_spec_that_was_not_given(command: str, cwd: Path) -> None:
    """A job.yaml in this folder is named, and not read."""
    (cwd / "job.yaml").write_text("command: [true]\n")
    done = entrypoint(cwd, command, env={})
    assert (done.returncode, done.stdout) == (78, "")
    assert (
        done.stderr == "[entrypoint] EP115 there is no program to run"
        " | job.yaml is in this folder, but no --spec was given"
        " | add --spec job.yaml (or ENTRYPOINT_SPEC=job.yaml), or a program: -- python train.py\n"
    )
    assert "job.yaml" not in entrypoint(cwd, command, "--", "true", env=PATH).stderr


def test_a_platform_s_lack_is_cured_by_what_its_message_asks_for(cwd: Path) -> None:
    """Where the index is missing: unit/test_topology.py."""
    env = {**PATH, "MA_NUM_HOSTS": "2", "VC_WORKER_HOSTS": "a,b", "VC_TASK_INDEX": "1"}
    done = entrypoint(cwd, "plan", "--json", "--launcher", "plain", "--", "true", env=env)
    assert done.returncode == 78
    assert " | add ENTRYPOINT_SECRET to the job's variables (try: openssl rand" in done.stderr
    env["ENTRYPOINT_SECRET"] = SECRET
    done = entrypoint(cwd, "plan", "--json", "--launcher", "plain", "--", "true", env=env)
    assert (done.returncode, json.loads(done.stdout)["this_node"]) == (0, 1)


@pytest.mark.parametrize(
    ("set_by", "rank", "named"),
    [
        ("flag", "0", "--timeout"),
        ("env", "1", "ENTRYPOINT_TIMEOUTS_PEERS"),
        ("spec", "0", "timeouts.peers (job.yaml:1:19)"),
    ],
)
def test_the_hint_names_the_setting_that_was_given(
    set_by: str, rank: str, named: str, cwd: Path
) -> None:
    """And that nothing listens at the other node's port."""
    (cwd / "job.yaml").write_text("timeouts: {peers: 0.3}\n" if set_by == "spec" else "{}")
    env = {**PATH, "ENTRYPOINT_SECRET": SECRET, "ENTRYPOINT_SSH_PORT": str(free_port())}
    env |= {"ENTRYPOINT_TIMEOUTS_PEERS": "0.3"} if set_by == "env" else {}
    hosts = {"0": "worker-0=127.0.0.1,worker-1=127.0.0.213", "1": "b=127.0.0.213,a=127.0.0.1"}
    words = ("--spec", "job.yaml", "--hosts", hosts[rank], "--node-rank", rank)
    flags = ("--run-dir", str(cwd.parent / "run"), *(("--timeout", "0.3") * (set_by == "flag")))
    done = entrypoint(cwd, "run", *words, *flags, "--", "true", env=env)
    assert done.returncode == 69, done.stderr
    assert f" or wait longer: {named}, in seconds; exit 69\n" in done.stderr
    assert ("worker-1 (nothing listens there yet)" in done.stderr) == (rank == "0")


# --------------------------------------------------------------------------------------------------
# plan


def test_plan_as_text(cwd: Path) -> None:
    """Defaults are shown if they are asked for."""
    flags = split("--slots 2 --run-dir /run/job --name demo")
    done = entrypoint(cwd, "plan", *flags, "--", "env", "an arg")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0] == "job demo: 1 node, 2 ranks, launcher mpirun, platform local, device cpu"
    assert "  bash /run/job/mpirun.sh env 'an arg'" in lines
    assert "  slots: 2  # flag --slots" in lines
    assert "  # default\n" not in done.stdout.partition("\nsettings")[2]
    (left,) = re.findall(r"\nsettings; --all shows (\d+) defaults, too\n", done.stdout)
    whole = entrypoint(cwd, "plan", "--all", *flags, "--", "env", "an arg").stdout
    assert "  ssh.port: 36666  # default\n" in whole
    assert len(whole.splitlines()) == len(lines) + int(left)


def test_plan_shows_what_mpirun_s_script_starts(cwd: Path) -> None:
    """Lines of other launchers: tests/launchers."""
    (cwd / "train.py").touch()
    # Open MPI 5 says nothing without a HOME
    env = {**PATH, "HOME": "/", "OPENMPI_X_ARGS": "-x API_TOKEN=planted-planted"}
    words = split("plan --launcher mpirun --slots 2 --run-dir /run/job -- python3 train.py")
    done = entrypoint(cwd, *words, env=env)
    line = r"  which starts: mpirun .*-np 2 .* rank python3 train\.py"
    assert re.search(rf"\n{line}\n", done.stdout), done
    assert "planted" not in done.stdout + done.stderr
    assert tree(cwd) == ["train.py"]
    env = {"PATH": str(Path(sys.executable).parent)}
    assert "\n  which starts: not known here: " in entrypoint(cwd, *words, env=env).stdout


def test_a_former_name_of_a_setting_is_told_and_two_values_are_an_error(cwd: Path) -> None:
    former = "launcher: torchrun\ncommand: [a]\ntorch: {extra_args: [--role, x]}\n"
    (cwd / "job.yaml").write_text(former)
    done = entrypoint(cwd, "plan", "--json", "--spec", "job.yaml")
    assert done.stderr == (
        "[entrypoint] warning: EP131 settings have other names | torch.extra_args is now"
        " launcher_args (job.yaml:3:21) | rename them\n"
    )
    assert settings_of(done.stdout)["launcher_args"] == ["--role", "x"]
    assert "torch.extra_args" not in settings_of(done.stdout)
    (cwd / "job.yaml").write_text(f"{former}launcher_args: []\n")
    for command in ("plan", "run", "check"):
        done = entrypoint(cwd, command, "--spec", "job.yaml")
        says = "[entrypoint] job.yaml:3:21: torch.extra_args: EP104 launcher_args contradicts it |"
        assert (done.returncode, done.stdout) == (65, "")
        assert done.stderr.startswith(says)


def test_plan_as_json(cwd: Path) -> None:
    env = {**PATH, "ENTRYPOINT_SECRET": SECRET, "ENTRYPOINT_SSH_PORT": "40022"}
    done = entrypoint(
        cwd, "plan", "--json", *TWO, "--node-rank", "1", "--", "env", "an arg", env=env
    )
    assert (done.returncode, done.stderr) == (0, "")
    plan = json.loads(done.stdout)
    assert plan["nodes"] == [
        {"rank": 0, "host": "worker-0", "slots": 1, "role": "leader"},
        {"rank": 1, "host": "worker-1", "slots": 1, "role": "worker"},
    ]
    expected = (1, 2, [], "required")
    assert (plan["this_node"], plan["world_size"], plan["programs"], plan["roll_call"]) == expected
    assert plan["members_assumed"] is True
    assert plan["settings"]["ssh.port"] == {"value": 40022, "origin": "env ENTRYPOINT_SSH_PORT"}
    secret = {file["name"] for file in plan["files"] if file["secret"]}
    assert secret == {"host_key"}
    assert [file["name"] for file in plan["files"] if file["secret"] and "text" in file] == []


@pytest.mark.parametrize("rank", ["0", "1"])
def test_plan_writes_nothing_and_needs_no_network(rank: str, cwd: Path) -> None:
    env = {**PATH, "HOME": str(cwd), "TMPDIR": str(cwd), "ENTRYPOINT_SECRET": SECRET}
    env["PYTHONDONTWRITEBYTECODE"] = "1"
    flags = split(f"--hosts a.invalid,b.invalid --node-rank {rank} --run-dir {cwd.parent}/run")
    cwd.chmod(0o555)
    done = entrypoint(cwd, "plan", *flags, "--", "env", env=env)
    assert (done.returncode, done.stderr) == (0, "")
    assert tree(cwd.parent) == ["cwd"]


def test_a_reader_that_leaves(cwd: Path) -> None:
    """`plan | head -1`, with head gone before the first byte."""
    read, write = os.pipe()
    os.close(read)
    try:
        table = ["ranktable", "make", "--server-id", "10.0.0.1", "--addresses", "10.1.0.1"]
        for args in (["plan", "--", "true"], ["schema"], ["--help"], ["--version"], table):
            done = started(cwd, *args, stdout=write)
            assert (done.returncode, done.stderr) == (0, "")
        # A probe's status is its answer, whoever reads the words.
        not_ready = (
            "from entrypoint import cli; from entrypoint.features.record import health; health.check ="
            " lambda: (False, 'no')"
        )
        words = [sys.executable, "-c", f"{not_ready}; cli.script()", "health"]
        assert subprocess.run(words, cwd=cwd, stdout=write, check=False).returncode == 1
    finally:
        os.close(write)


def test_a_stdout_that_cannot_be_written(cwd: Path) -> None:
    with open("/dev/full", "w") as full:
        done = started(cwd, "plan", "--", "true", stdout=full)
    said = "EP113 cannot write to stdout | No space left on device | make room where it goes"
    assert (done.returncode, done.stderr) == (73, f"[entrypoint] {said}\n")


def test_a_folder_whose_name_is_not_utf_8(cwd: Path) -> None:
    odd = os.path.join(os.fsencode(cwd), b"caf\xe9")
    os.mkdir(odd)
    done = subprocess.run(
        [*PROGRAM, "plan", "--", "true"],
        cwd=odd,
        env={**PATH, "LC_ALL": "C.UTF-8"},
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert rb"/caf\udce9" in done.stdout


CALLS = table("tests/tables/cli.yaml")["calls"]


@pytest.mark.parametrize("command", NAMES)
def test_no_command_minds_which_standard_streams_are_closed(command: str, cwd: Path) -> None:
    """It ends as it does with all of them open, and never with an internal error."""
    statuses = []
    for closed in ("", "<&-", ">&-", "2>&-", "<&- >&- 2>&-"):
        folder = cwd / f"closed{len(statuses)}"
        folder.mkdir()
        words = [*PROGRAM, command, *split(CALLS.get(command, ""))]
        done = subprocess.run(
            ["sh", "-c", f'exec "$@" {closed}', "sh", *words], cwd=folder, env=PATH,
            stdin=subprocess.DEVNULL, capture_output=True, check=False,
        )  # fmt: skip
        assert b"EP900" not in done.stderr, done.stderr
        statuses.append(done.returncode)
    if command not in ("health", "leave", "status", "stacks"):  # these see jobs of other tests
        assert set(statuses) == {statuses[0]}, statuses


# --------------------------------------------------------------------------------------------------
# render


def test_render_writes_scripts_with_their_modes(cwd: Path) -> None:
    done = entrypoint(cwd, "render", "--out", "a/b", "--name", "demo")
    assert (done.returncode, done.stdout) == (0, "")
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (cwd / "a/b").iterdir()}
    assert (modes["run_mpi.sh"], modes["sshd_config"]) == (0o755, 0o644)
    assert {mode for name, mode in modes.items() if name.endswith(".sh")} == {0o755}
    assert sorted(line.split(", ")[0] for line in done.stderr.splitlines()) == [
        f"[entrypoint] wrote a/b/{name}" for name in sorted(modes)
    ]


def test_render_where_it_cannot_write(cwd: Path) -> None:
    (cwd / "file").touch()
    done = entrypoint(cwd, "render", "--out", "file")
    assert (done.returncode, done.stdout) == (73, "")
    assert done.stderr.startswith("[entrypoint] EP112 cannot write into file | ")
    assert "Traceback" not in done.stderr


# --------------------------------------------------------------------------------------------------
# One node and one program: we become it


def test_the_program_takes_our_place(cwd: Path) -> None:
    """Its pid is ours, stdin and stdout are its alone, and we say nothing."""
    script = 'echo "$$ $*"; cat'
    with Process(
        [*PROGRAM, "run", "--", "sh", "-c", script, "sh", "a b", "--slots", "--", "$x", "*"],
        cwd=cwd, env=PATH, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        out, err = process.communicate("words\n")
    assert (process.returncode, out, err) == (0, f"{process.pid} a b --slots -- $x *\nwords\n", "")


def test_the_program_has_the_environment_it_was_given(cwd: Path) -> None:
    """With a number of threads of the user's own, nothing else is added."""
    env = {**PATH, "QUOTES": 'it\'s "so"\n', "EMPTY": "", "a.b": "odd", "ENTRYPOINT_SECRET": SECRET}
    env["OMP_NUM_THREADS"] = "3"
    done = started(cwd, "run", "-e", "NEW=x=y", "--run-dir", "/r", "--", "env", "-0", env=env)
    got = dict(entry.split("=", 1) for entry in done.stdout.split("\0") if entry)
    got.pop("LC_CTYPE", None)  # Python's own, where the locale is C
    assert got == {
        **PATH,
        "QUOTES": env["QUOTES"],
        "EMPTY": "",
        "a.b": "odd",
        "OMP_NUM_THREADS": "3",
        "NEW": "x=y",
        "ENTRYPOINT_RUN_DIR": "/r",
    }


def test_the_program_has_its_signals_as_they_are_by_default(cwd: Path) -> None:
    """Python ignores SIGPIPE; a program that inherits that writes on into nothing."""
    look = ["grep", "-E", "^Sig(Ign|Blk)", "/proc/self/status"]
    # Whoever runs the tests may ignore or block some itself; those are not ours to give back.
    without_us = captured(look, check=True).stdout
    assert started(cwd, "run", "--", *look).stdout == without_us
    ignored = int(without_us.splitlines()[1].split()[1], 16)
    assert not ignored >> (signal.SIGPIPE - 1) & 1
    done = started(cwd, "run", "--", "sh", "-c", "yes | head -1")
    assert (done.stdout, done.stderr) == ("y\n", "")


@pytest.mark.parametrize(("program", "status", "seen"), table("tests/tables/cli.yaml")["programs"])
def test_a_program_that_cannot_start(program: str, status: int, seen: str, cwd: Path) -> None:
    (cwd / "folder").mkdir()
    (cwd / "not-executable").write_text("#!/bin/sh\n")
    for name, text in (
        ("no-format", "\x7fELF nonsense"),
        ("bad-interpreter", "#!/no/such/shell\n"),
        ("windows", "#!/bin/sh\r\necho ran\r\n"),
    ):
        (cwd / name).write_bytes(text.encode())
        (cwd / name).chmod(0o755)
    done = entrypoint(cwd, "run", "--run-dir", str(cwd.parent / "run"), "--", program)
    expected = (status, "", f"[entrypoint] EP440 cannot start {program}: {seen}; exit {status}\n")
    assert (done.returncode, done.stdout, done.stderr) == expected


@pytest.mark.parametrize("flags", [(), ("--launcher", "mpirun", "--slots", "1")])
@pytest.mark.parametrize(
    ("program", "mode", "status", "why"),
    [
        ("train.py", 0o644, 127, "exists, but is not a program on PATH"),
        ("./train.py", 0o644, 126, "is not executable"),
    ],
)
def test_a_script_without_python_gets_the_words_that_work(
    program: str, mode: int, status: int, why: str, flags: tuple[str, ...], cwd: Path
) -> None:
    if flags and not shutil.which("mpirun"):
        pytest.skip("no mpirun here")
    (cwd / "train.py").write_text("print('ran')\n")
    (cwd / "train.py").chmod(mode)
    env = {**PATH, "HOME": "/root"}
    words = (*flags, "--run-dir", str(cwd.parent / "run"), "--")
    hint = f" | {cwd}/train.py {why} | write: python {program}"
    kind = "Permission denied" if status == 126 else "No such file or directory"
    done = entrypoint(cwd, "run", *words, program, env=env)
    assert f"EP440 cannot start {program}: {kind}{hint}" in done.stderr
    assert done.returncode == status
    done = entrypoint(cwd, "plan", *words, program, env=env)
    assert (done.returncode, hint in done.stderr) == (status, True), done.stderr
    python = entrypoint(cwd, "run", *words, "python3", program, env=env)
    assert (python.returncode, python.stdout) == (0, "ran\n")
