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
from tests import table
from tests.command import captured

RECORDER = """\
#!{python} -IS
import json, os, sys
print(json.dumps([sys.argv, os.getcwd(), dict(os.environ)]))
"""
SECRET = "8f2c" * 9
FOLDER = "jobs"  # below the bench's folder, as MA_JOB_DIR
SPECS: dict[str, list[Any]] = table("tests/tables/rendered_plan.yaml")["specs"]
VARIABLES = table("tests/tables/rendered_plan.yaml")["variables"]
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


SCENES: tuple[dict[str, str], ...] = table("tests/tables/rendered_plan.yaml")["scenes"]


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
