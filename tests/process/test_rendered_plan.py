"""The files of `entrypoint render` start what `entrypoint plan` says, or refuse: over drawn specs
and variables, with programs that print their arguments and environment in place of Python and
`entrypoint`."""

from __future__ import annotations

import json
import random
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from entrypoint import spec as specs
from entrypoint.base.errors import EntrypointError
from entrypoint.base.model import Facts, File, Plan
from entrypoint.base.values import replace
from entrypoint.plan import rendered, settle
from entrypoint.spec import JobSpec
from tests.command import captured

RECORDER = """\
#!{python} -IS
import json, os, sys
print(json.dumps([sys.argv, os.getcwd(), dict(os.environ)]))
"""
SECRET = "8f2c" * 9
FOLDER = "jobs"  # below the bench's folder, as MA_JOB_DIR
# What a spec may say, each with its alternatives.
SPECS: dict[str, list[Any]] = {
    "name": [None, None, "demo"],
    "hosts": [
        None, None, ["w-0"], ["w-0", "w-1"], ["w-0:3", "w-1", "w-2=10.0.0.9"],
        ["w-0=fd00::1", "w-1=fd00::2"],
    ],
    "slots": [None, None, 2, 8],
    "nodes": [None, None, None, "1:2", "2:3"],
    "spares": [None, None, None, 1],
    "restarts": [None, None, 2],
    "platform": [None, None, None, "modelarts", "local"],
    "workdir": [None, None, "place", "${MA_JOB_DIR}/code"],
    "command": [
        ["python", "train.py", "--lr", "1"], ["train.py", "$HOME", "a b", "$$"], ["-m", "pkg", ""],
        ["python3.11", "-u", "train.py"], ["sh", "-c", "exit $N"], None, ["torchrun", "train.py"],
        ["python", "${MA_JOB_DIR}/code/train.py", "--data", "$MA_JOB_DIR/x", "x$MA_JOB_DIR/y"],
        ["python", "-m", "torch.distributed.run", "train.py"],
    ],
    "env": [
        None, None, {"TIMEOUT": "30", "A": "it's\n$HOME"}, {"MASTER_PORT": "7100"}, {"UID": "5"},
        {"PATH": "{bin}:/p", "NNODES": "9", "NODE_RANK": "8", "WORLD_SIZE": "7", "RANK": "6"}, {"RDZV_BACKEND": "c10d"},
        {"PYTHON": "python3.11"}, {"MA_NUM_HOSTS": "5", "MASTER_ADDR": "other"},
    ],
    "torch": [
        None, None, {"port": 7000}, {"max_restarts": 2}, {"rdzv_backend": "c10d"},
        {"rdzv_backend": "static"}, {"extra_args": ["--role", "a b", "--rdzv_conf=x=1"]},
        {"extra_args": ["--nnodes=9"]},
    ],
    "timeouts": [None, {"peers": 60}, {"join": 7.4}],
}  # fmt: skip
# What platforms, torch's own launchers and users set, each with its alternatives; empty is unset.
VARIABLES = {
    "MA_NUM_HOSTS": ["", "", "1", "2", "3", "02", "x"],
    "MA_VJ_NAME": ["", "", "job-7"],
    "MA_TASK_NAME": ["", "", "", "worker", "trainer", "ps"],
    "MA_NUM_GPUS": ["", "", "4", "0"],
    "MA_TASK_INDEX": ["", "", "0", "1"],
    "VC_TASK_INDEX": ["", "", "0", "1", "01", "08"],
    "VC_WORKER_HOSTS": ["", "", "h-0,h-1", "h-0", "h-0:7,h-1:7", "h-0,H-0", "[fd00::1]:7"],
    "VC_PS_HOSTS": [*[""] * 9, "h-5"],
    "NODE_RANK": ["", "", "0", "1", "08", "x"],
    "MY_TASK_INDEX": ["", "", "", "1"],
    "MY_MPI_SLOTS": ["", "", "", "6", "0"],
    "MASTER_PORT": ["", "", "7200", "0", "x"],
    "RDZV_BACKEND": ["", "", "", "c10d", "static", "auto", "etcd"],
    "MAX_RESTARTS": ["", "", "", "1"],
    "PET_MAX_RESTARTS": ["", "", "", "3"],
    "TORCHRUN_EXTRA_ARGS": ["", "", "--role x", "--rdzv-conf=a=1 --role y", "--node-rank 3", "'a b'"],
    "TORCHLAUNCH_EXTRA_ARGS": ["", "", "", "--role z"],
    "RANK": ["", "", "0", "1"],
    "WORLD_SIZE": ["", "", "1", "2"],
    "MASTER_ADDR": ["", "", "", "other", "w-0"],
    "NNODES": ["", "", "", "2", "1"],
    "PET_NNODES": ["", "", "", "2"],
    "PET_STANDALONE": ["", "", "", "1"],
    "PET_RDZV_ENDPOINT": ["", "", "", "x:1"],
    "SLURM_JOB_ID": [*[""] * 9, "7"],
    "JOB_COMPLETION_INDEX": [*[""] * 9, "1"],
    "ENTRYPOINT_SLOTS": ["", "", "", "", "5"],
    "ENTRYPOINT_NODE_RANK": ["", "", "", "", "1"],
    "ENTRYPOINT_PORT": ["", "", "", "", "7300", "tcp://10.0.0.1:80"],
    "ENTRYPOINT_TORCH_PORT": ["", "", "", "", "7300"],
    "ENTRYPOINT_HOSTS": [*[""] * 9, "e-0,e-1"],
    "ENTRYPOINT_TIMEOUTS_PEERS": [*[""] * 9, "33"],
}  # fmt: skip
# Names that a script might use for itself.
OWN = ("TIMEOUT", "CMD", "words", "names", "args", "seen", "dollars", "slots", "problem", "i", "ep_word", "ep_env")  # fmt: skip
ADDED = {"PYTHONUNBUFFERED", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "PWD", "OLDPWD", "SHLVL", "_", "LC_CTYPE"}  # fmt: skip


@dataclass
class Case:
    """A drawn job, and the variables where its files start."""

    text: str
    env: dict[str, str]

    def spec(self, env: Mapping[str, str], folder: Path, launcher: str, here: bool) -> JobSpec:
        starts = {"spec": str(folder), "env": str(folder), "flag": str(folder)}
        read = specs.load(self.text, "job.yaml", env, {}, starts, here)
        return replace(read, launcher=launcher)


SCENES: tuple[dict[str, str], ...] = (
    {"NODE_RANK": "0"},
    {"NODE_RANK": "1"},
    {"MA_NUM_HOSTS": "2", "MA_VJ_NAME": "job-7", "VC_TASK_INDEX": "1", "MA_NUM_GPUS": "4"},
    {"MA_NUM_HOSTS": "2", "VC_WORKER_HOSTS": "h-0,h-1", "MA_TASK_INDEX": "0"},
    {"VC_WORKER_HOSTS": "h-0,h-1", "VC_TASK_INDEX": "01"},
    {"MA_NUM_HOSTS": "1", "MA_NUM_GPUS": "0"},
    {"NNODES": "1"},
    {"NNODES": "2", "NODE_RANK": "1", "MASTER_ADDR": "m"},
    {},
)
"""Variables with which a file may start."""


def draw(seed: int, folder: Path) -> Case:
    dice = random.Random(seed)
    several = dice.sample(list(SPECS), dice.randrange(6))
    content = {name: dice.choice(SPECS[name]) for name in ("command", *several)}
    spec = {name: value for name, value in content.items() if value is not None}
    env = dict(SCENES[seed % len(SCENES)])
    env |= {
        name: dice.choice(VARIABLES[name])
        for name in dice.sample(list(VARIABLES), dice.randrange(4))
    }
    env |= {name: f"{name} of the user's" for name in OWN}
    if dice.random() < 0.7:
        env["MA_JOB_DIR"] = f"{folder}/{FOLDER}"
    return Case(
        json.dumps(spec).replace("{bin}", f"{folder}/bin"),
        {name: value for name, value in env.items() if value},
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    bench = tmp_path_factory.mktemp("bench")
    (bench / "bin").mkdir()
    for name in ("python", "python3.11", "entrypoint"):
        (bench / "bin" / name).write_text(RECORDER.format(python=sys.executable))
        (bench / "bin" / name).chmod(0o755)
    for name in ("bash", "env"):
        (bench / "bin" / name).symlink_to(str(shutil.which(name)))
    (bench / FOLDER / "code").mkdir(parents=True)
    (bench / "place").mkdir()
    return bench


def facts(env: Mapping[str, str], folder: Path) -> Facts:
    programs = {"python": f"{folder}/bin/python", "sshd": "/usr/sbin/sshd", "mpirun": "/m/mpirun"}
    return Facts(env, "w-1", str(folder), 1000, "u", "/home/u", programs=programs, mpi="4.1.4")


def files(case: Case, folder: Path, launcher: str) -> dict[str, File]:
    """Render on another machine, which has none of these variables."""
    spec = case.spec({}, folder, launcher, here=False)
    return {
        file.name: file
        for file in rendered(replace(spec, node_rank=0), facts({}, folder), "a test")
    }


def start(folder: Path, file: File, env: Mapping[str, str]) -> tuple[int, str, list[Any]]:
    """Return the status, stderr and what the recorder saw: arguments, folder, environment."""
    script = folder / file.name
    script.write_text(file.text)
    base = {"PATH": f"{folder}/bin"}
    done = captured(["bash", str(script)], env={**base, **env}, cwd=folder)
    return done.returncode, done.stderr, json.loads(done.stdout) if done.stdout else []


def planned(case: Case, folder: Path, launcher: str, **settings: Any) -> Plan | str:
    """Return the plan where the files start; or why there is none. An elastic job holds no roll
    call, which would wait in place of torch."""
    try:
        spec = replace(case.spec(case.env, folder, launcher, here=True), **settings)
        if spec.nodes:
            spec = replace(spec, roll_call="none", restarts=JobSpec().restarts)
        return settle(spec, facts(case.env, folder))
    except EntrypointError as error:
        return str(error)


def words(argv: list[str]) -> list[str]:
    """Return a launcher's options and its program, without what only `run` adds."""
    at = argv.index("--")
    program = argv[at + 1 :]
    if program[:1] == ["sh"] and program[1].endswith("/rank.sh"):
        program = program[2:]
    if len(program) > 1 and program[0].startswith("python") and program[1] == "-u":
        del program[1]
    options = [word for word in argv[:at] if not word.startswith(("--local_addr=", "--rdzv_id="))]
    return [*options, "--", program[0].replace("$$", "$"), *program[1:]]


def torch_case(seed: int, folder: Path, launcher: str) -> str:
    """Check one case. Returns how it ended: `started`, or `refused`."""
    case = draw(seed, folder)
    try:
        file = files(case, folder, launcher)[f"{launcher}.sh"]
    except EntrypointError:
        return "not rendered"
    status, error, seen = start(folder, file, case.env)
    shown = f"seed {seed}: {case.text} {case.env}\n{error}{seen[:2]}"
    if status:
        assert (status, seen) == (78, []), shown
        assert error.count("EP650") == 1, shown
        return "refused"
    argv, cwd, env = seen
    rank = int(error.partition("alone, node ")[2].partition(" ")[0] or 0)
    settings: dict[str, Any] = {"node_rank": rank}
    plain = {**case.env}
    count = plain.pop("NNODES", "") or plain.get("MA_NUM_HOSTS", "")
    read = case.spec({}, folder, launcher, here=True)
    is_named = "VC_WORKER_HOSTS" in plain or {"MA_NUM_HOSTS", "MA_VJ_NAME"} <= plain.keys()
    if not (read.hosts or is_named) and count:
        # The script's own variables say what `hosts` says.
        first = plain.get("MASTER_ADDR", "w-0")
        settings["hosts"] = (first, *(f"n-{number}" for number in range(1, int(count))))
    plan = planned(Case(case.text, plain), folder, launcher, **settings)
    assert isinstance(plan, Plan), f"{shown}\n{plan}"
    program = plan.launch.programs[0]
    assert words(argv[1:]) == words(list(program.argv[2:])) or words(argv[2:]) == words(list(program.argv[2:])), (
        shown, program.argv,
    )  # fmt: skip
    assert Path(argv[0]).name == program.argv[0], shown
    assert cwd == plan.workdir, shown
    assert read.env.items() <= env.items(), shown
    given = {name: value for name, value in case.env.items() if name not in read.env}
    given = {name: value for name, value in given.items() if not name.startswith("PET_")}
    assert given.items() <= env.items(), shown
    assert env.keys() - case.env.keys() - read.env.keys() - ADDED <= {"PATH"}, shown
    return "started"


@pytest.mark.promise("a rendered file starts what `plan` says, or refuses")
@pytest.mark.parametrize("launcher", ["torchrun", "torchlaunch"])
def test_torch_files_start_what_plan_says_or_refuse(launcher: str, folder: Path) -> None:
    ends = [torch_case(seed, folder, launcher) for seed in range(100)]
    assert ends.count("started") > 20, {end: ends.count(end) for end in ends}
    assert ends.count("refused") > 20


@pytest.mark.control("a rendered file starts what `plan` says, or refuses")
def test_a_file_that_starts_something_else_is_noticed(folder: Path) -> None:
    case = Case(
        json.dumps({"hosts": ["w-0", "w-1"], "slots": 2, "command": ["train.py"]}),
        {"NODE_RANK": "1"},
    )
    file = files(case, folder, "torchrun")["torchrun.sh"]
    status, _, (argv, *_) = start(folder, file, case.env)
    plan = planned(case, folder, "torchrun", node_rank=0)
    assert status == 0
    assert isinstance(plan, Plan)
    assert words(argv[2:]) != words(list(plan.launch.programs[0].argv[2:]))


@pytest.mark.promise("a rendered file starts what `plan` says, or refuses")
def test_run_mpi_sh_gives_run_the_same_job(folder: Path) -> None:
    started = 0
    for seed in range(60):
        case = draw(seed, folder)
        try:
            spec = case.spec(case.env, folder, "mpirun", here=True)
            expected: Plan | str = settle(replace(spec, nodes=None), facts(case.env, folder))
        except EntrypointError as error:
            expected = str(error)
        try:
            file = files(case, folder, "mpirun")["run_mpi.sh"]
        except EntrypointError:
            continue
        status, error_text, (argv, cwd, env) = start(folder, file, case.env)
        assert status == 0, error_text
        assert cwd == str(folder)
        assert case.env.items() <= env.items()
        at = argv.index("--spec") if "--spec" in argv else 0
        text = argv[at + 1] if at else "{}"
        env = {
            name: value
            for name, value in env.items()
            if name in case.env or name.startswith("ENTRYPOINT_")
        }
        try:
            again = Case(text, env).spec(env, folder, "mpirun", here=True)
            assert again.env == case.spec({}, folder, "mpirun", here=True).env
            got: Plan | str = settle(replace(again, nodes=None), facts(env, folder))
        except EntrypointError as problem:
            got = str(problem)
        if isinstance(expected, str) or isinstance(got, str):
            assert isinstance(expected, str) == isinstance(got, str), (
                seed,
                case.text,
                case.env,
                expected,
                got,
            )
            continue
        started += 1
        for part in ("nodes", "me", "job", "workdir", "spares"):
            assert getattr(got.topology, part) == getattr(expected.topology, part), (seed, part)
        assert [each.argv for each in got.launch.programs] == [
            each.argv for each in expected.launch.programs
        ]
        assert {var.name: var.value for var in got.env} == {
            var.name: var.value for var in expected.env
        }
    assert started > 20
