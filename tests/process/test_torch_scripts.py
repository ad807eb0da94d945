"""torchrun.sh and torchlaunch.sh as people start them, and torch's launcher as `entrypoint run`
starts it.

Here a recorder stands for Python, or a module for torch. With the real one:
tests/loopback/test_torch.py and, in the image, tests/engines/test_pytorch_engine.py.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import split
from types import ModuleType

import pytest

from entrypoint import spec as specs
from entrypoint.base.errors import SpecError
from entrypoint.base.model import Device, Facts, Launch, Members, Node, NodeReport, Source, Topology
from entrypoint.base.values import replace
from entrypoint.launchers import torchlaunch, torchrun
from entrypoint.plan import settle
from entrypoint.spec import JobSpec
from tests import table
from tests.command import captured
from tests.process.bench import Process

TABLE = table("tests/tables/torch_scripts.yaml")

CPU = Device("cpu", 0, "no accelerator")
AWKWARD = (
    *("", "a b", "it's", '"q"', *split("$HOME $$ ${local_rank} $(id) `id`"), "a\nb", "*", "ü\\"),
    *("--", "--nnodes=9", "-m"),
)

RECORDER = """\
#!{python} -IS
import json, os, sys
print(json.dumps({{"argv": sys.argv[1:], "env": dict(os.environ), "python": sys.argv[0]}}))
"""


def topology(
    hosts: Sequence[str] = ("w-0", "w-1"), me: int = 0, slots: int = 2, **origins: Source
) -> Topology:
    nodes = tuple(Node(rank, host, slots) for rank, host in enumerate(hosts))
    return Topology("job-7", nodes, me, "local", CPU, "/run/$x", "u", origins=origins)


def job(text: str = "", env: Mapping[str, str] | None = None) -> JobSpec:
    return specs.load(text or "{name: job-7, slots: 2}", "job.yaml", env or {}, {})


@dataclass
class Recorded:
    status: int
    error: str
    argv: list[str]
    env: dict[str, str]
    python: str

    @property
    def options(self) -> list[str]:
        return self.argv[: self.argv.index("--")]

    @property
    def program(self) -> list[str]:
        return self.argv[self.argv.index("--") + 1 :]


class Bench:
    """A folder with both scripts in it, and a recorder that stands for Python."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.python = folder / "recorder"
        self.python.write_text(RECORDER.format(python=sys.executable))
        self.python.chmod(0o755)
        (folder / "bin").mkdir()
        for name in ("bash", "dirname", "env", "hostname", "sed", "tr"):  # and no entrypoint
            (folder / "bin" / name).symlink_to(str(shutil.which(name)))
        self.render()

    def render(self, text: str = "", at: Topology | None = None) -> None:
        for launcher in (torchrun, torchlaunch):
            file = launcher.script(job(text), at or topology(), "a test")
            (self.folder / file.name).write_text(file.text)

    def head(self, script: str) -> str:
        """Return the script's first lines."""
        return (self.folder / f"{script}.sh").read_text().split("\n\nep_")[0]

    def run(
        self, *words: str, script: str = "torchrun", bare: bool = False, **env: str
    ) -> Recorded:
        """What worker-0's script starts for this program, for train.py where there is none, or for
        none (`bare`)."""
        base = {"PATH": f"{self.folder}/bin", "PYTHON": str(self.python), "NODE_RANK": "0"}
        done = subprocess.run(
            ["bash", f"{self.folder}/{script}.sh", *(words or (() if bare else ("train.py",)))],
            env={**base, **env}, cwd=self.folder, capture_output=True, text=True,
        )  # fmt: skip
        got = json.loads(done.stdout) if done.stdout else {"argv": [], "env": {}, "python": ""}
        return Recorded(done.returncode, done.stderr, **got)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


UNNAMED = replace(
    topology(["this-host"]), origins={"hosts": Source("default", "this container's host name")}
)
BOTH = pytest.mark.parametrize("script", ["torchrun", "torchlaunch"])


# --------------------------------------------------------------------------------------------------
# By hand: the command line


@pytest.mark.promise("`torchrun.sh` and `run_mpi.sh` work without the toolkit")
def test_torchrun_by_itself(bench: Bench) -> None:
    got = bench.run("train.py", "--epochs", "5")
    assert got.argv == [
        *("-m", "torch.distributed.run", "--nnodes=2", "--nproc_per_node=2", "--rdzv_id=job-7"),
        *("--rdzv_backend=static", "--master_addr=w-0", "--master_port=6060", "--node_rank=0"),
        *("--rdzv_conf=timeout=600", "--max_restarts=0", "--no_python", "--"),
        *(str(bench.python), "train.py", "--epochs", "5"),
    ]


@pytest.mark.promise("`torchrun.sh` and `run_mpi.sh` work without the toolkit")
def test_torchlaunch_by_itself(bench: Bench) -> None:
    assert bench.run("train.py", script="torchlaunch").argv == [
        *("-m", "torch.distributed.launch", "--nnodes=2", "--node_rank=0", "--nproc_per_node=2"),
        *("--master_addr=w-0", "--master_port=6060", "--use_env", "--no_python", "--"),
        *(str(bench.python), "train.py"),
    ]


@pytest.mark.control("`torchrun.sh` and `run_mpi.sh` work without the toolkit")
def test_there_is_no_toolkit_beside_them(bench: Bench) -> None:
    assert shutil.which("entrypoint") or shutil.which("entrypoint", path=f"{sys.prefix}/bin")
    assert not shutil.which("entrypoint", path=f"{bench.folder}/bin")


@BOTH
def test_a_script_shows_what_it_starts_and_that_torch_is_alone(bench: Bench, script: str) -> None:
    said = bench.run("train.py", "a b", script=script).error.splitlines()
    alone = "torch alone, node 0 of 2: a failure on another node may end this one with 0"
    assert said[0] == f"{script}.sh: {alone}"
    line = rf"{script}\.sh: .*recorder -m torch\.distributed\..* train\.py a\\ b"
    assert re.fullmatch(line, said[1])
    assert len(said) == 2
    bench.render(at=topology(["w-0"]))
    assert "another node" not in bench.run(script=script).error


def test_second_node_is_no_rendezvous_host(bench: Bench) -> None:
    options = bench.run(NODE_RANK="1", RDZV_BACKEND="c10d").options
    assert "--rdzv_conf=is_host=0,join_timeout=600,read_timeout=600" in options
    assert "--rdzv_endpoint=w-0:6060" in options
    # torch would warn that c10d ignores it
    assert not [word for word in options if "node_rank" in word]
    bench.render(at=topology(["fd00::1", "fd00::2"]))
    options = bench.run(RDZV_BACKEND="c10d", MASTER_ADDR="fd00::1").options
    assert {"--rdzv_endpoint=[fd00::1]:6060", "--rdzv_backend=c10d"} <= set(options)
    assert "--rdzv_conf=is_host=1,join_timeout=600,read_timeout=600" in options


MODELARTS = {"hosts": Source("platform", "VC_WORKER_HOSTS")}


@pytest.mark.parametrize(
    "at",
    [
        UNNAMED,
        # rendered in one job, started in another
        replace(topology(["old-0", "old-1"]), origins=MODELARTS, platform="modelarts"),
    ],
    ids=["no-hosts", "hosts-of-modelarts"],
)
def test_modelarts_variables(bench: Bench, at: Topology) -> None:
    bench.render("torch: {port: 6060}", at)
    env = {
        "VC_WORKER_HOSTS": "j-worker-0.j,j-worker-1.j,j-worker-2.j",
        "MA_NUM_HOSTS": "3",
        "MA_VJ_NAME": "j",
        "MA_NUM_GPUS": "8",
        "VC_TASK_INDEX": "2",
        "VK_TASK_INDEX": "1",
        "NODE_RANK": "",
    }
    options = bench.run(**env).options
    assert options[2:5] == ["--nnodes=3", "--nproc_per_node=8", "--rdzv_id=j"]
    assert {"--master_addr=j-worker-0.j", "--node_rank=2"} <= set(options)
    assert "--node_rank=1" in bench.run(**env, MA_TASK_INDEX="1").options
    assert "--node_rank=0" in bench.run(script="torchlaunch", **{**env, "NODE_RANK": "0"}).options
    # without the hosts, as platforms/modelarts.py knows them
    del env["VC_WORKER_HOSTS"]
    assert "--master_addr=j-worker-0.j" in bench.run(**env).options
    assert "--master_addr=j-trainer-0.j" in bench.run(**env, MA_TASK_NAME="trainer").options


def test_a_list_of_nodes_says_how_many_there_are(bench: Bench) -> None:
    """Two jobs of one node each would both end with 0."""
    bench.render(at=UNNAMED)
    env = {"VC_WORKER_HOSTS": "h0,h1,h2", "VC_TASK_INDEX": "1", "NODE_RANK": ""}
    options = bench.run(**env).options
    assert {"--nnodes=3", "--node_rank=1", "--master_addr=h0"} <= set(options)
    got = bench.run(**{**env, "VC_WORKER_HOSTS": "h0"})
    assert got.status == 78
    assert "EP650 no node of this job has this index | 1 of 1" in got.error


ELSEWHERE = TABLE["elsewhere"]


@pytest.mark.promise("a rendered script takes no node of several for the only one")
@BOTH
@pytest.mark.parametrize("env", ELSEWHERE, ids=" ".join)
def test_the_number_of_nodes_is_never_guessed(
    bench: Bench, script: str, env: dict[str, str]
) -> None:
    bench.render(at=UNNAMED)
    for rank in ("0", "1"):
        got = bench.run(script=script, NODE_RANK=rank, **env)
        assert (got.status, got.argv) == (78, [])
        hint = "set NNODES, such as 2 (NNODES=1 for one node)"
        assert got.error == f"{script}.sh: EP650 the number of nodes is not known | '' | {hint}\n"


@pytest.mark.control("a rendered script takes no node of several for the only one")
@BOTH
@pytest.mark.parametrize("env", ELSEWHERE, ids=" ".join)
def test_a_number_of_nodes_counts(bench: Bench, script: str, env: dict[str, str]) -> None:
    bench.render(at=UNNAMED)
    for number in ("NNODES", "MA_NUM_HOSTS"):
        got = bench.run(script=script, **{number: "1"}, NODE_RANK="", **env)
        if env.get("RANK") == "1":
            continue
        assert got.status == 0, got.error
        assert "--nnodes=1" in got.options
        is_told = "one node meets no other: MASTER_ADDR other is not used" in got.error
        assert is_told is ("MASTER_ADDR" in env)
        assert {"PET_STANDALONE", "PET_RDZV_ENDPOINT"}.isdisjoint(got.env)
    got = bench.run(script=script, **{**env, "NNODES": "2", "MASTER_ADDR": "m"}, NODE_RANK="1")
    assert [word for word in got.options if word in ("--nnodes=2", "--master_addr=m")] == [
        "--nnodes=2",
        "--master_addr=m",
    ]


@BOTH
def test_one_host_of_the_spec_is_one_node(bench: Bench, script: str) -> None:
    bench.render(at=topology(["w-0"]))
    options = bench.run(script=script, NODE_RANK="").options
    assert "--nnodes=1" in options
    alone = {"torchrun": "--rdzv_endpoint=127.0.0.1:0", "torchlaunch": "--master_addr=127.0.0.1"}
    assert alone[script] in options
    assert bench.run(script=script, NODE_RANK="", RANK="1").status == 78


@BOTH
@pytest.mark.parametrize(
    ("name", "value", "of"),
    [
        ("NNODES", "3", "the number of the job's nodes"),
        ("NNODES", "1", "the number of the job's nodes"),
        ("MASTER_ADDR", "other", "the first of the job's nodes"),
        ("ENTRYPOINT_HOSTS", "x,y", "the hosts of the spec"),
    ],
)
def test_a_variable_that_contradicts_the_job_is_refused(
    bench: Bench, script: str, name: str, value: str, of: str
) -> None:
    got = bench.run(script=script, **{name: value})
    assert (got.status, f"EP650 {name} contradicts {of} | '{value}', and '" in got.error) == (
        78,
        True,
    )
    assert bench.run(script=script, NNODES="2", MASTER_ADDR="W-0").status == 0
    bench.render(at=UNNAMED)
    for env in ({"VC_WORKER_HOSTS": "h-0,h-1"}, {"MA_NUM_HOSTS": "2", "MA_VJ_NAME": "j"}):
        assert bench.run(script=script, **env).status == 0
        if name != "ENTRYPOINT_HOSTS":
            assert bench.run(script=script, **env, **{name: value}).status == 78


@BOTH
def test_settings_of_run_alone_are_refused(bench: Bench, script: str) -> None:
    for name in ("SPEC", "WORKDIR", "ENV", "COMMAND", "TIMEOUTS_PEERS", "PLATFORM", "SPARES"):
        got = bench.run(script=script, **{f"ENTRYPOINT_{name}": "x"})
        said = f"EP650 ENTRYPOINT_{name} is for `entrypoint run` | it is set | unset it"
        assert (got.status, said in got.error) == (78, True)
    got = bench.run(script=script, ENTRYPOINT_SLOTS="3", ENTRYPOINT_PORT="7001", RDZV_BACKEND="")
    assert {"--nproc_per_node=3", "--master_port=7001"} <= set(got.options)


def test_every_setting_has_a_variable(bench: Bench) -> None:
    bench.render("name: x", UNNAMED)
    options = bench.run(
        NNODES="3", NODE_RANK="1", NGPUS_PER_NODE="4", MASTER_ADDR="m", MASTER_PORT="7000",
        JOB_ID="run-9",
        TORCHRUN_EXTRA_ARGS=" --role  trainer\n--rdzv-conf=a=1 --tee 3 $HOME ",
    ).options  # fmt: skip
    assert options[2:] == [
        *("--nnodes=3", "--nproc_per_node=4", "--rdzv_id=run-9", "--rdzv_backend=static"),
        *("--master_addr=m", "--master_port=7000", "--node_rank=1"),
        *("--rdzv_conf=timeout=600,a=1", "--max_restarts=0"),
        *("--role", "trainer", "--tee", "3", "$HOME", "--no_python"),
    ]


OF_EACH = TABLE["of_each"]


@BOTH
@pytest.mark.parametrize(("text", "env", "count"), TABLE["processes"])
def test_processes_of_a_node(
    bench: Bench, script: str, text: str, env: dict[str, str], count: int
) -> None:
    bench.render(text, topology(["w-0", "w-1", "w-2"]) if text == OF_EACH else None)
    assert f"--nproc_per_node={count}" in bench.run(script=script, **env).options


@BOTH
@pytest.mark.parametrize(("env", "message"), TABLE["wrong"])
def test_what_is_not_read_as_run_reads_it_is_refused(
    bench: Bench, script: str, env: dict[str, str], message: str
) -> None:
    bench.render("name: x", UNNAMED)
    got = bench.run(script=script, **{"NODE_RANK": "", "VC_TASK_INDEX": "0", **env})
    got = (
        got
        if "nodes is" in message or "VC_" in message
        else bench.run(script=script, NNODES="1", **env)
    )
    assert (got.status, f"{script}.sh: EP650 {message}" in got.error) == (78, True), got.error


@BOTH
def test_hosts_of_the_spec_win_as_a_whole(bench: Bench, script: str) -> None:
    """Else the nodes of one job would meet at the address of another."""
    other = {"VC_WORKER_HOSTS": "h0,h1,h2", "MA_NUM_HOSTS": "3", "MA_VJ_NAME": "j"}
    assert bench.run(script=script, **other).argv == bench.run(script=script).argv
    options = bench.run(script=script, NODE_RANK="", VC_TASK_INDEX="1").options
    assert {"--nnodes=2", "--node_rank=1", "--master_addr=w-0"} <= set(options)


def test_a_range_of_nodes_is_never_replaced_by_a_platform_s_number(bench: Bench) -> None:
    bench.render("nodes: 1:2")
    for platform in ({"MA_NUM_HOSTS": "2"}, {"PET_NNODES": "2"}):
        assert "--nnodes=1:2" in bench.run(**platform).options
    bench.render("nodes: 1:2", replace(topology(), origins=MODELARTS, platform="modelarts"))
    options = bench.run(MA_NUM_HOSTS="2", VC_WORKER_HOSTS="h0,h1").options
    assert {"--nnodes=1:2", "--rdzv_endpoint=h0:6060"} <= set(options)
    got = bench.run(VC_WORKER_HOSTS="h0,h1,h2")
    say = "EP650 the job has another number of nodes than the spec | 3, and '1:2'"
    assert (got.status, say in got.error) == (78, True)


def test_a_range_of_nodes_has_no_static_rendezvous(bench: Bench) -> None:
    bench.render("name: x", UNNAMED)
    assert "--rdzv_backend=c10d" in bench.run(NNODES="1:2", MASTER_ADDR="m").options
    for text, at, env in (("name: x", UNNAMED, {"NNODES": "1:2"}), ("nodes: 1:2", None, {})):
        bench.render(text, at)
        got = bench.run(RDZV_BACKEND="static", MASTER_ADDR="w-0", **env)
        say = "a static rendezvous has no range of nodes | '1:2' | set RDZV_BACKEND=c10d, or"
        assert (got.status, say in got.error) == (78, True)


@BOTH
def test_the_interface_of_the_spec(bench: Bench, script: str) -> None:
    names = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")

    def interfaces(text: str, **env: str) -> list[str | None]:
        bench.render(text)
        got = bench.run(script=script, **env).env
        return [got.get(name) for name in names]

    assert interfaces("") == [None, None]
    assert interfaces("network: {interface: lo}") == ["=lo", "lo"]  # as `run` names it
    assert interfaces("mpi: {interface: lo}") == ["lo", "lo"]
    # Gloo takes no beginning of a name
    assert interfaces("network: {interface: l}") == ["l", None]
    assert interfaces("network: {interface: lo}", **dict.fromkeys(names, "x")) == ["x", "x"]
    assert interfaces("network: {interface: 10.0.0.0/8}") == [None, None]
    assert "# Not carried from the spec: network.interface" in bench.head(script)


NO_INDEX = "this node's index is not known | '{}' of 2 | set NODE_RANK (0 for worker-0)"
NO_NODE = "no node of this job has this index | {} | set NNODES, and NODE_RANK from 0"
NO_NUMBER = (
    "the number of nodes is not known | '{}' | set NNODES, such as 2 (NNODES=1 for one node)"
)


@BOTH
@pytest.mark.parametrize(
    ("env", "message"),
    [
        ({"NODE_RANK": ""}, NO_INDEX.format("")),
        ({"NODE_RANK": "x"}, NO_INDEX.format("x")),
        ({"NODE_RANK": "2"}, NO_NODE.format("2 of 2")),
        ({"NODE_RANK": "9" * 30}, NO_NODE.format("9" * 30 + " of 2")),
        ({"NODE_RANK": "08"}, NO_NODE.format("08 of 2")),
        *(({"NNODES": text}, NO_NUMBER.format(text)) for text in ("two", "0", "-1", "2 ", "02")),
        *(({"MA_NUM_HOSTS": text}, f"the number of nodes is not known | MA_NUM_HOSTS is '{text}' | set it to a number from 1") for text in ("two", "0", "-1")),
    ],
)  # fmt: skip
def test_what_cannot_be_a_job(bench: Bench, script: str, env: dict[str, str], message: str) -> None:
    if "NODE_RANK" not in env:
        bench.render(at=UNNAMED)
    got = bench.run(script=script, **env)
    assert (got.status, got.error) == (78, f"{script}.sh: EP650 {message}\n")


@pytest.mark.parametrize("text", ["2:", ":2", "1:2:3", "2:x", "0:2", "3:2"])
def test_what_is_no_range(bench: Bench, text: str) -> None:
    bench.render(at=UNNAMED)
    got = bench.run(NNODES=text)
    assert (got.status, NO_NUMBER.format(text) in got.error) == (78, True)


@BOTH
def test_a_program_and_worker_0_are_needed(bench: Bench, script: str) -> None:
    got = bench.run(script=script, bare=True)
    say = f"there is no program to run | no arguments | bash {script}.sh train.py --epochs 5"
    assert (got.status, got.error) == (78, f"{script}.sh: EP650 {say}\n")
    got = bench.run("--nnodes=2", "train.py", script=script)
    options = f"{script.upper()}_EXTRA_ARGS"
    say = f"an option is not a program | --nnodes=2 | name the program first; torch's: {options}"
    assert (got.status, got.error) == (78, f"{script}.sh: EP650 {say}\n")
    bench.render(at=UNNAMED)
    assert "this-host" not in (bench.folder / f"{script}.sh").read_text()
    assert "--nnodes=1" in bench.run(script=script, NNODES="1").options
    got = bench.run("torchrun", "train.py", script=script, NNODES="1")
    assert (got.status, "EP650 the program is a launcher itself | torchrun" in got.error) == (
        78,
        True,
    )
    got = bench.run(script=script, NNODES="2", NODE_RANK="1")
    assert (got.status, "EP650 worker-0 is not known | 2 nodes" in got.error) == (78, True)
    got = bench.run(script=script, NNODES="2", NODE_RANK="1", MASTER_ADDR="m")
    assert "--master_addr=m" in got.options


def test_the_program_by_variables(bench: Bench) -> None:
    """As the scripts of ModelArts' documents have it."""
    named = {"PYTHON_SCRIPT": "a b.py", "PYTHON_ARGS": "--epochs  5 $HOME *"}
    python = str(bench.python)
    assert bench.run(bare=True, **named).program == [
        *(python, "a b.py", "--epochs", "5", "$$HOME", "*")
    ]
    assert bench.run("other.py", **named).program == [python, "other.py"]


def test_words_of_the_program(bench: Bench) -> None:
    """torch runs string.Template over every word but the program's name; a doubled $ comes out as
    one."""
    (bench.folder / "python3.11").symlink_to(bench.python)
    own, other = str(bench.python), f"{bench.folder}/python3.11"
    doubled = [word.replace("$", "$$") for word in AWKWARD]
    ways = [
        (["train.py", "-u"], own, [own, "train.py", "-u"]),
        (["-m", "pkg.train"], own, [own, "-m", "pkg.train"]),
        ([other, "-O", "train.py", "x"], own, [own, "-O", "train.py", "x"]),
        (["python", "train.py"], own, [own, "train.py"]),
        (["cat", "-"], own, ["cat", "-"]),
        (["a$b.py", *AWKWARD], own, [own, "a$$b.py", *doubled]),
        (["cat$x", *AWKWARD], own, ["cat$x", *doubled]),
    ]
    for script in ("torchrun", "torchlaunch"):
        for words, python, program in ways:
            got = bench.run(*words, script=script)
            assert (got.program, got.python) == (program, python)
            assert got.env["PYTHONUNBUFFERED"] == "1"
        got = bench.run(other, "train.py", script=script, PYTHON="")
        assert (got.program, got.python) == ([other, "train.py"], other)


# --------------------------------------------------------------------------------------------------
# By hand: what a rendered script carries


def test_command_env_and_workdir_of_the_spec(bench: Bench) -> None:
    place = bench.folder / "a place"
    place.mkdir()
    spec = {
        "command": ["train.py", *AWKWARD],
        "env": {"MODE": "it's $HOME", "UID": "5", "NNODES": "9", "NODE_RANK": "7", "PATH": "/p"},
    }
    bench.render(json.dumps({**spec, "workdir": str(place)}))
    for script in ("torchrun", "torchlaunch"):
        done = bench.run(script=script, bare=True, MODE="mine")
        assert spec["env"].items() <= done.env.items()  # type: ignore[attr-defined]
        expected = ["train.py", *(word.replace("$", "$$") for word in AWKWARD)]
        assert done.program == [str(bench.python), *expected]
        assert (done.env["MODE"], done.env["PWD"]) == ("it's $HOME", str(place))
        assert bench.run("other.py", script=script).program[1:] == ["other.py"]
    bench.render("env: {RDZV_BACKEND: c10d}")
    got = bench.run()
    assert (got.status, "EP650 this job cannot be started so | " in got.error) == (78, True)
    assert "EP119 RDZV_BACKEND is set by the launcher" in got.error


def test_settings_of_the_spec(bench: Bench) -> None:
    own = ["--rdzv_conf=a=1", "--role", "a b", "--rdzv-conf", "b=2"]
    bench.render(f"port: 7000\ntorch: {{max_restarts: 2}}\nlauncher_args: {json.dumps(own)}")
    options = bench.run().options
    assert {"--rdzv_backend=c10d", "--rdzv_endpoint=w-0:7000", "--max_restarts=2"} <= set(options)
    assert "--rdzv_conf=is_host=1,join_timeout=600,read_timeout=600,a=1,b=2" in options
    assert options[-3:] == ["--role", "a b", "--no_python"]
    # A variable replaces them, as under `entrypoint run`.
    assert bench.run(TORCHRUN_EXTRA_ARGS="--tee 3").options[-3:] == ["--tee", "3", "--no_python"]
    for words, say in (
        ("--nnodes 3", "--nnodes is set by this script"),
        ("'a b'", "quotes are not"),
    ):
        got = bench.run(TORCHRUN_EXTRA_ARGS=words)
        assert (got.status, say in got.error) == (78, True)
    bench.render("nodes: 2:4", topology(["a", "b", "c", "d"]))
    options = bench.run().options
    assert {"--nnodes=2:4", "--rdzv_backend=c10d", "--max_restarts=3"} <= set(options)
    assert [word for word in options if word.endswith(",last_call_timeout=30")]
    bench.render("nodes: 1:2\ntimeouts: {join: 7.2}")
    conf = "--rdzv_conf=is_host=1,join_timeout=600,read_timeout=600,last_call_timeout=7"
    assert conf in bench.run().options
    said = "# Not carried from the spec: timeouts.join.\n"
    assert said not in (bench.folder / "torchrun.sh").read_text()
    bench.render("timeouts: {join: 7.2}")
    assert said in (bench.folder / "torchrun.sh").read_text()


def test_an_elastic_job_by_hand(bench: Bench) -> None:
    share = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
    assert share not in bench.run(RDZV_BACKEND="c10d").env
    bench.render("nodes: 1:2\ntorch: {max_restarts: 4}")
    assert bench.run().env[share] == "1"
    assert bench.run(**{share: "0"}).env[share] == "0"
    # torch.distributed.launch has a fixed number of nodes
    got = bench.run(script="torchlaunch")
    assert (got.status, "EP120 only torchrun has elastic jobs" in got.error) == (78, True)
    bench.render("torch: {max_restarts: 4}", UNNAMED)
    said = "# Not carried from the spec: torch.max_restarts; see torchrun.sh."
    assert said in bench.head("torchlaunch")
    got = bench.run(script="torchlaunch", NNODES="1:2")
    assert "EP650 torch.distributed.launch has no range of nodes | '1:2'" in got.error


@pytest.mark.promise("a rendered script leaves the program's own variables as they are")
@BOTH
def test_the_program_s_own_variables_stay(bench: Bench, script: str) -> None:
    """Whatever the script calls its own: each name that occurs in it is a variable of the user's."""
    text = (bench.folder / f"{script}.sh").read_text()
    names = {*re.findall(r"\b[A-Za-z]\w*", text)} - {*split("PATH PYTHON NODE_RANK script bare")}
    read = (
        "(MASTER|MA|VC|VK|TF|PET|ENTRYPOINT|MY)_.*|.*_VISIBLE_DEVICES"
        "|(NNODES|NGPUS_PER|RDZV_BACKEND|MAX_RES|TORCH|PYTHON|JOB_ID|RANK).*"
    )
    own = {name: f"{name} of the user's" for name in names if not re.fullmatch(read, name)}
    own |= dict.fromkeys(("TIMEOUT", "CMD", "words", "args", "names", "seen", "dollars"), "30")
    assert {"ep_line", "ep_fail", "name", "env"} <= own.keys()
    got = bench.run(script=script, **own)
    assert got.status == 0, got.error
    assert own.items() <= got.env.items()
    added = got.env.keys() - own.keys() - {"PATH", "PYTHON", "NODE_RANK", "LC_CTYPE"}
    assert added <= {"PYTHONUNBUFFERED", "PWD", "OLDPWD", "SHLVL", "_"}


@pytest.mark.control("a rendered script leaves the program's own variables as they are")
def test_a_variable_of_the_script_s_own_would_replace_it(bench: Bench) -> None:
    file = bench.folder / "torchrun.sh"
    file.write_text(f"TIMEOUT=600\n{file.read_text()}")
    assert bench.run(TIMEOUT="30").env["TIMEOUT"] == "600"


@pytest.mark.parametrize("by", ["spec", "variable"])
def test_the_local_rank_as_an_argument_is_torch_s_own(bench: Bench, by: str) -> None:
    """In the spelling of its version, which the script cannot know."""
    text, env = {
        "spec": ("env: {TORCHLAUNCH_USE_ENV: '0'}", {}),
        "variable": ("", {"TORCHLAUNCH_USE_ENV": "0"}),
    }[by]
    bench.render(text)
    for words, options, program in (
        (["train.py", "$x"], [], ["train.py", "$$x"]),
        (["python", "-u", "train.py"], [], ["train.py"]),
        (["-m", "pkg.train", "a"], ["--module"], ["pkg.train", "a"]),
    ):
        got = bench.run(*words, script="torchlaunch", **env)
        assert got.program == program, got.error
        assert got.options[7:] == options
        assert got.env["TORCHLAUNCH_USE_ENV"] == "0"
    for words in (["sh", "-c", "true"], ["python", "-O", "train.py"]):
        got = bench.run(*words, script="torchlaunch", **env)
        assert (got.status, "EP650 TORCHLAUNCH_USE_ENV=0 needs a " in got.error) == (78, True)
    assert "--use_env" in bench.run(script="torchlaunch", TORCHLAUNCH_USE_ENV="1").options or text


@BOTH
def test_spares_are_no_nodes_of_the_script(bench: Bench, script: str) -> None:
    at = replace(topology(["a", "b", "c"]), spares=1)
    bench.render("{spares: 1, slots: 2}", at)
    assert "--nnodes=2" in bench.run(script=script).options
    got = bench.run(script=script, NODE_RANK="2")
    assert (got.status, "EP650 no node of this job has this index | 2 of 2" in got.error) == (
        78,
        True,
    )
    assert "# Not carried from the spec: spares" in bench.head(script)


@BOTH
def test_a_platform_s_folder_is_expanded_where_the_script_runs(bench: Bench, script: str) -> None:
    (bench.folder / "jobs/code").mkdir(parents=True)
    words = split("${MA_JOB_DIR}/code/train.py --data $MA_JOB_DIR/x --x=$MA_JOB_DIR/y $MA_JOB_DIRS")
    bench.render(json.dumps({"workdir": "${MA_JOB_DIR}/code", "command": words}))
    jobs = f"{bench.folder}/jobs"
    got = bench.run(script=script, bare=True, MA_JOB_DIR=f"{jobs}/")
    expected = [
        f"{jobs}/code/train.py",
        "--data",
        f"{jobs}/x",
        "--x=$$MA_JOB_DIR/y",
        "$$MA_JOB_DIRS",
    ]
    assert got.program[1:] == expected
    assert got.env["PWD"] == f"{jobs}/code"
    assert bench.run(*words, script=script, MA_JOB_DIR=jobs).program[1:] == expected
    got = bench.run(script=script, bare=True)
    assert (got.status, "the working directory cannot be entered" in got.error) == (78, True)


# --------------------------------------------------------------------------------------------------
# Under the entrypoint: the command line


def argv_of(
    text: str = "",
    at: Topology | None = None,
    launcher: ModuleType = torchrun,
    env: Mapping[str, str] | None = None,
) -> tuple[str, ...]:
    """The launcher's command line for this job, whose program is train.py unless it names one."""
    text = text if "command:" in text else f"command: [train.py]\n{text}"
    name = launcher.__name__.rpartition(".")[2]
    spec = specs.for_launcher(job(f"name: job-7\n{text}", env), name)
    argv: tuple[str, ...] = launcher.plan(spec, at or topology()).programs[0].argv
    return argv


def options_of(*words: str, **more: object) -> tuple[str, ...]:
    argv = argv_of(*words, **more)  # type: ignore[arg-type]
    return argv[2 : argv.index("--")]


def settings(launch: Launch) -> dict[str, str]:
    return {var.name: var.value for var in launch.programs[0].env}


@pytest.mark.parametrize(
    ("command", "python", "program"),
    [
        ("[train.py, $HOME]", "python", ("python", "-u", "train.py", "$$HOME")),
        ("[-m, pkg.train]", "python", ("python", "-u", "-m", "pkg.train")),
        ("[python3.11, -u, train.py]", "python3.11", ("python3.11", "-u", "train.py")),
        ("[/v/python, -m, pkg]", "/v/python", ("/v/python", "-u", "-m", "pkg")),
        ("[python, -O, train.py]", "python", ("python", "-O", "train.py")),
        ("[cat, $HOME]", "python", ("cat", "$$HOME")),
    ],
)
def test_every_process_starts_through_the_node_s_own_script(
    command: str, python: str, program: tuple[str, ...]
) -> None:
    """What else a launcher is told: the golden cases in tests/launchers."""
    for launcher in (torchrun, torchlaunch):
        argv = argv_of(f"command: {command}", launcher=launcher)
        assert argv[:2] == (python, "/run/$x/torch_launch.py")
        assert argv[argv.index("--") + 1 :] == ("sh", "/run/$$x/rank.sh", *program)
        launch = launcher.plan(job("command: [train.py]"), topology(me=1))
        assert (launch.ranks.kind.in_programs, launch.needs_roll_call) == (True, False)


@pytest.mark.parametrize(
    ("env", "text", "programs", "python"),
    [
        ({}, "", {"python": "/p", "python3": "/p3"}, "python"),
        ({}, "", {"python3": "/p3"}, "python3"),
        ({"PYTHON": "/v/python"}, "", {"python": "/p"}, "/v/python"),
        ({"PYTHON": "/v/python"}, "env: {PYTHON: /w/python}\n", {}, "/w/python"),
    ],
)
def test_the_python_of_a_program_that_names_none(
    env: dict[str, str], text: str, programs: dict[str, str], python: str
) -> None:
    facts = Facts(env, "w-0", "/", 1000, "u", "/home/u", programs=programs)
    made = settle(job(f"{text}launcher: torchrun\ncommand: [train.py]"), facts)
    assert made.launch.programs[0].argv[0] == python


def test_a_rendezvous_by_c10d() -> None:
    hosts = ["fd00::1", "fd00::2"]
    text = (
        "torch: {rdzv_backend: c10d}\nlauncher_args: [--rdzv_conf=a=1, --role, x, --rdzv-conf, b=2]"
    )
    options = options_of(text, at=topology(hosts, me=1))
    conf = "--rdzv_conf=is_host=0,join_timeout=600,read_timeout=600,a=1,b=2"
    assert options[3:] == (
        *("--rdzv_id=job-7", "--rdzv_backend=c10d", "--rdzv_endpoint=[fd00::1]:6060"),
        *("--local_addr=fd00::2", conf, "--max_restarts=0", "--role", "x", "--no_python"),
    )
    static = options_of("torch: {rdzv_backend: static}", at=topology(["only.invalid"]))
    assert "--master_addr=127.0.0.1" in static


def test_every_variable_of_torch_s_is_a_setting() -> None:
    """Which of several counts: tests/unit/test_spec.py."""
    env = {"MASTER_PORT": "7070", "RDZV_BACKEND": "static", "TORCHRUN_EXTRA_ARGS": "--role 'a b'"}
    given = "port: 7000\nlauncher_args: [--role, x]\ntorch: {max_restarts: 1, rdzv_backend: c10d}"
    options = options_of(given, env={**env, "MAX_RESTARTS": "5"})
    assert {"--master_port=7070", "--max_restarts=5", "--rdzv_backend=static"} <= set(options)
    assert options[-3:] == ("--role", "a b", "--no_python")
    assert "--max_restarts=4" in options_of(env={"PET_MAX_RESTARTS": "4"})
    assert "--master_port=7070" in options_of(env=env, launcher=torchlaunch)
    assert "--master_port=7071" in options_of("env: {MASTER_PORT: '7071'}", env=env)
    with pytest.raises(SpecError, match=r"EP119 RDZV_BACKEND is set by the launcher"):
        argv_of("env: {RDZV_BACKEND: static}")


REFUSED = TABLE["reserved"]


@pytest.mark.parametrize("word", REFUSED)
def test_reserved_options_are_refused_by_name(word: str) -> None:
    option, field = REFUSED[word]
    for launcher, name in ((torchrun, "torchrun"), (torchlaunch, "torchlaunch")):
        with pytest.raises(SpecError) as raised:
            argv_of(f"launcher_args: [--role, x, {json.dumps(word)}]", launcher=launcher)
        assert raised.value.lines() == [
            f"job.yaml:3:16: launcher_args: EP119 --{option} is set by launcher {name} |"
            f" `{word}` | set {field}"
        ]


@pytest.mark.parametrize("launcher", [torchrun, torchlaunch])
def test_other_options_pass(launcher: ModuleType) -> None:
    own = ["--log-dir", "/a b", "-t", "1", "--monitor_interval=2", "--role", "x"]
    options = options_of(f"launcher_args: {json.dumps(own)}", launcher=launcher)
    assert options[-8:-1] == tuple(own)


@pytest.mark.parametrize("option", ["--tee=3", "-t3", "-r", "--redirects"])
@pytest.mark.parametrize("logs", ["prefix: '[{rank}] '", "timestamps: utc", "format: json"])
def test_torch_writes_no_lines_of_its_own_where_logs_has_the_form(option: str, logs: str) -> None:
    text = f"launcher_args: [{option}, '3']\n"
    with pytest.raises(SpecError, match=r"EP119 --\w+ is set by logs"):
        argv_of(f"{text}logs: {{{logs}}}")
    assert option in options_of(text)  # the control
    launch = torchrun.plan(job(f"command: [x]\nlogs: {{{logs}}}"), topology())
    assert {"PET_TEE": "0", "PET_REDIRECTS": "0"}.items() <= settings(launch).items()


CALLED, NONE = {"ENTRYPOINT_SECRET": "8f2c" * 9 + "0a1b3d5e"}, {"ENTRYPOINT_ROLL_CALL": "none"}
HEARD = Members(tuple(NodeReport(rank, 2, "1") for rank in range(2)))


@pytest.mark.parametrize("launcher", ["torchrun", "torchlaunch"])
@pytest.mark.parametrize(
    ("env", "at", "members", "stays"),
    [
        (CALLED, topology(), None, "2000000"),
        (CALLED, topology(), HEARD, "2000000"),
        (CALLED, topology(me=1), HEARD, None),
        (NONE, topology(), None, "7.5"),
        (NONE, topology(me=1), None, "7.5"),
        (NONE, topology(["w"]), None, None),
        (CALLED, topology(["w"]), None, None),
    ],
)
def test_how_long_the_first_node_s_launcher_stays(
    launcher: str, env: dict[str, str], at: Topology, members: Members | None, stays: str | None
) -> None:
    """It holds the store of all; where nothing is heard of the others, its wait has to end by
    itself."""
    facts = Facts({}, "w-0", "/", 1000, "u", "/home/u", programs={"sshd": "/usr/sbin/sshd"})
    spec = job(f"launcher: {launcher}\ncommand: [x.py]\ntimeouts: {{peers: 7.5}}", env)
    got = settings(settle(spec, facts, at, members).launch)
    assert got.get("EXIT_BARRIER") == stays
    assert got.get("EXIT_TOGETHER") == ("yes" if stays == "7.5" else None)


# --------------------------------------------------------------------------------------------------
# Under the entrypoint: torch_launch.py


class Starter:
    """A folder with torch_launch.py in it, and a module that replaces torch."""

    def __init__(self, folder: Path, text: str) -> None:
        self.folder = folder
        launch = torchrun.plan(job("command: [train.py]"), topology())
        for file in launch.files:
            (folder / file.name).write_text(file.text)
        package = folder / "torch" / "distributed"
        package.mkdir(parents=True)
        (package.parent / "__init__.py").touch()
        (package / "__init__.py").touch()
        for name in ("run", "launch"):
            (package / f"{name}.py").write_text(text)

    def argv(self, *program: str) -> list[str]:
        words = program or ("python", "-u", "train.py")
        module = "torch.distributed.run"
        return [sys.executable, "torch_launch.py", module, "--", "sh", "/r/rank.sh", *words]

    def run(self, *program: str, **env: str) -> tuple[int, str, str]:
        done = captured(self.argv(*program), cwd=self.folder, env=env)
        return done.returncode, done.stdout, done.stderr


# What stands for torch starts a rank, then waits where no signal is handled, as in a call of a
# store that is gone.
STUCK = """
import ctypes, os, signal, subprocess, threading, time
heard = []
signal.signal(signal.SIGTERM, lambda *_: heard.append(print("handled", flush=True)))
trap = 'trap "echo told; sleep 0.3; echo saved; exit" TERM; for _ in $(seq 400); do sleep 0.05; done'
rank = subprocess.Popen(["bash", "-c", trap], start_new_session=True)
lock, libc = ctypes.create_string_buffer(256), ctypes.CDLL(None)
def come_and_go():
    while True:
        thread = threading.Thread(target=time.sleep, args=[0.001])
        thread.start()
        thread.join()
threading.Timer(0.5, print, [os.getpid()], dict(flush=True)).start()  # long after this thread waits
{wait}
"""
WAIT = "for _ in range(2): libc.pthread_mutex_lock(lock)"


@pytest.mark.parametrize(
    ("wait", "printed", "status"),
    [
        (WAIT, "told saved", 143),
        # Threads that end while they are looked at have nothing more to tell of their children.
        (f"for _ in range(8): threading.Thread(target=come_and_go, daemon=True).start()\n{WAIT}", "told saved", 143),
        # The control: one that handles the signal tells its ranks itself, and once.
        ("while not heard: time.sleep(0.02)\nrank.terminate(); rank.wait()", "handled told saved", 0),
    ],
    ids=["stuck", "busy", "well"],
)  # fmt: skip
def test_ranks_are_told_to_stop_by_a_launcher_that_is_stuck(
    tmp_path: Path, wait: str, printed: str, status: int
) -> None:
    starter = Starter(tmp_path, STUCK.format(wait=wait))
    with Process(
        starter.argv(), env={"PATH": os.environ["PATH"]},
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        os.kill(int(process.stdout.readline()), signal.SIGTERM)
        out, error = process.communicate()
    found = (out.split(), process.returncode, "Traceback" in error)
    assert found == (printed.split(), status, False), error


# What torch raises when a program failed: torch.distributed.elastic's ChildFailedError.
FAILED = """
import os, sys
from types import SimpleNamespace
class Failed(Exception):
    name = "sh"
    def __init__(self, code):
        super().__init__("sh")
        self.code = code
    def format_msg(self):
        return f"report of {self.name}"
    def get_first_failure(self):
        return 0, SimpleNamespace(exitcode=self.code)
assert __name__ == "__main__"
"""


@pytest.mark.parametrize(
    ("program", "ending", "status", "said"),
    TABLE["ends"],
)
def test_the_program_s_own_status_and_torch_s_report_that_names_it(
    tmp_path: Path, program: str, ending: str, status: int, said: str
) -> None:
    got = Starter(tmp_path, f"{FAILED}\n{ending}\n").run(*program.split())
    assert (got[0], said in got[2]) == (status, True), got


SHOWS = "import json, os, sys\nprint(json.dumps([sys.argv[1:], dict(os.environ), sys.path[0]]))\n"


@pytest.mark.parametrize(
    ("version", "use_env", "words"),
    [
        ("2.13.0", "0", "--local_addr=a -- sh r python -u t.py --local-rank=${local_rank} x"),
        ("1.13.1", "0", "-- sh r python -u t.py --local_rank=${local_rank} x"),
        ("2.0.1+cu118", "", "--local_addr=a -- sh r python -u t.py x"),
    ],
)
def test_options_suit_the_installed_torch(
    tmp_path: Path, version: str, use_env: str, words: str
) -> None:
    Starter(tmp_path, SHOWS)
    (tmp_path / "torch/__init__.py").write_text(f"__version__ = {version!r}\n")
    program = "torch.distributed.launch --local_addr=a -- sh r python -u t.py x"
    argv = [sys.executable, "torch_launch.py", *split(program)]
    done = captured(argv, cwd=tmp_path, env={"TORCHLAUNCH_USE_ENV": use_env})
    assert json.loads(done.stdout)[0] == words.split(), done.stderr


def test_torchs_own_variables_cannot_undo_it(tmp_path: Path) -> None:
    given = {"PET_STANDALONE": "1", "PET_ROLE": "", "PET_RDZV_ENDPOINT": "x:1", "PET_MODULE": "1"}
    kept = {"PET_LOG_DIR": "/kept", "PET_TEE": "1"}
    _status, out, error = Starter(tmp_path, SHOWS).run(**given, **kept)
    _, env, first = json.loads(out)
    assert {name: env[name] for name in env if name.startswith("PET_")} == kept, error
    # what `python -m` has there, and not the run directory, whose files are no modules
    assert first == str(tmp_path)


def test_a_python_without_torch_is_named(tmp_path: Path) -> None:
    python, _script, *words = Starter(tmp_path, "").argv()
    (tmp_path / "elsewhere").mkdir()
    argv = [python, "-S", "../torch_launch.py", *words]
    done = captured(argv, cwd=tmp_path / "elsewhere", env={})
    assert done.returncode == 78
    said = rf"torch_launch\.py: EP650 torch is not installed in {re.escape(python)} \| .*\n"
    assert re.fullmatch(said, done.stderr)


COLLECTS = "import gc, sys\nprint({!r}, gc.isenabled(), file=sys.stderr)\n"


def test_garbage_is_not_collected_before_torch_is_imported(tmp_path: Path) -> None:
    starter = Starter(tmp_path, COLLECTS.format("in the launcher"))
    (tmp_path / "torch/__init__.py").write_text(COLLECTS.format("in the import"))
    assert starter.run()[2].splitlines() == ["in the import False", "in the launcher True"]
