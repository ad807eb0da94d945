"""torchrun.sh and torchlaunch.sh, run as they are: what they hand to torch, and that real processes
of torch meet.

Here a recorder stands in the place of Python, or a module in that of torch. With the real one:
tests/loopback/test_torch.py and, in the image, tests/compose/test_torch_nodes.py and
test_plain_torch.py.
"""

from __future__ import annotations

import json
import os
import re
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
from entrypoint.errors import SpecError
from entrypoint.launchers import torchlaunch, torchrun
from entrypoint.model import Device, Facts, Launch, Members, Node, NodeReport, Topology
from entrypoint.plan import settle
from entrypoint.render import TEMPLATES
from entrypoint.spec import JobSpec, Source
from entrypoint.values import replace

CPU = Device("cpu", 0, "no accelerator")
NOBODY = Members(())
AWKWARD = (
    *("", "a b", "it's", '"q"', *split("$HOME $$ ${local_rank} $(id) `id`"), "a\nb", "*", "ü\\"),
    *("--", "--nnodes=9", "-m"),
)

RECORDER = """\
#!{python} -IS
import json, os, sys
if sys.argv[1] != "-c":
    sys.exit("not the line expected")
elif len(sys.argv) == 3:
    print(os.environ["FAKE_TORCH"])
else:
    own = dict(zip(["scratch", "node_rank", "exit_barrier", "together", "name"], sys.argv[3:8], strict=True))
    argv = [word for word in sys.argv[8:] if word != "--log_dir=" + own["scratch"]]
    print(json.dumps({{"argv": ["-c", *argv], "own": own, "env": dict(os.environ), "python": sys.argv[0]}}))
"""


def topology(
    hosts: Sequence[str] = ("w-0", "w-1"), me: int = 0, slots: int = 2, **origins: Source
) -> Topology:
    nodes = tuple(Node(rank, host, slots) for rank, host in enumerate(hosts))
    return Topology("job-7", nodes, me, "local", CPU, "/run/x", "u", origins)


def job(text: str = "", env: Mapping[str, str] | None = None) -> JobSpec:
    return specs.load(text or "name: job-7", "job.yaml", env or {}, {})


@dataclass
class Recorded:
    status: int
    error: str
    argv: list[str]  # less torch's folder, where the script made one up
    own: dict[str, str]  # what is not torch's
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
        self.folder, self.temporary = folder, folder / "tmp"
        self.python = folder / "recorder"
        self.python.write_text(RECORDER.format(python=sys.executable))
        self.python.chmod(0o755)
        self.render()

    def render(self, text: str = "", at: Topology | None = None) -> None:
        for launcher in (torchrun, torchlaunch):
            for file in launcher.scripts(job(text), at or topology(), NOBODY, "a test"):
                (self.folder / file.name).write_text(file.text)

    def run(
        self,
        *words: str,
        script: str = "torchrun",
        torch: str = "2.13.0",
        bare: bool = False,
        **env: str,
    ) -> Recorded:
        """The script's line for this program, for train.py where there is none, or for none
        (`bare`)."""
        self.temporary.mkdir(exist_ok=True)
        base = {
            "PATH": os.environ["PATH"],
            "HOSTNAME": "w-0.example",
            "TMPDIR": str(self.temporary),
        }
        base |= {"PYTHON": str(self.python), "FAKE_TORCH": torch}
        done = subprocess.run(
            ["bash", f"{self.folder}/{script}.sh", *(words or (() if bare else ("train.py",)))],
            env={**base, **env}, cwd=self.folder, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        got = (
            json.loads(done.stdout)
            if done.stdout
            else {"argv": [], "own": {}, "env": {}, "python": ""}
        )
        return Recorded(done.returncode, done.stderr, **got)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


# --------------------------------------------------------------------------------------------------
# The line


def test_torchrun_by_itself(bench: Bench) -> None:
    assert bench.run("train.py", "--epochs", "5").argv == [
        *("-c", "torch.distributed.run", "--nnodes=2", "--nproc_per_node=2", "--rdzv_id=job-7"),
        *("--rdzv_backend=static", "--master_addr=w-0", "--master_port=6060", "--node_rank=0"),
        *("--rdzv_conf=timeout=600", "--max_restarts=0", "--", "train.py", "--epochs", "5"),
    ]


def test_torchlaunch_by_itself(bench: Bench) -> None:
    assert bench.run("train.py", script="torchlaunch").argv == [
        *("-c", "torch.distributed.launch", "--nnodes=2", "--node_rank=0", "--nproc_per_node=2"),
        *("--master_addr=w-0", "--master_port=6060", "--use-env", "--", "train.py"),
    ]


def test_second_node_is_no_rendezvous_host(bench: Bench) -> None:
    options = bench.run(NODE_RANK="1", RDZV_BACKEND="c10d").options
    assert "--rdzv_conf=is_host=0,join_timeout=600,read_timeout=600" in options
    assert "--local_addr=w-1" in options
    # torch would warn that c10d ignores it
    assert not [word for word in options if "node_rank" in word]


@pytest.mark.parametrize(
    ("torch", "backend", "local_addr", "use_env"),
    [
        ("1.13.1", "c10d", False, "--use_env"),
        ("2.0.1+cu118", "c10d", True, "--use-env"),
        ("2.1.0a0+32f93b1", "static", False, "--use-env"),
        ("2.2.0", "c10d", True, "--use-env"),
        ("2.10.0", "c10d", True, "--use-env"),
        ("2.13.0+cpu", "c10d", True, "--use-env"),
    ],
)
def test_forms_follow_the_installed_version(
    bench: Bench, torch: str, backend: str, local_addr: bool, use_env: str
) -> None:
    options = bench.run(torch=torch, MAX_RESTARTS="1").options
    assert f"--rdzv_backend={backend}" in options
    assert any(word.startswith("--local_addr") for word in options) == local_addr
    assert use_env in bench.run(torch=torch, script="torchlaunch").options


def test_a_stated_version_wins_over_the_installed_one(bench: Bench) -> None:
    bench.render('torch: {version: "2.1"}')
    options = bench.run(torch="2.13.0").options
    assert options[5:] == [
        *("--rdzv_backend=static", "--master_addr=w-0", "--master_port=6060", "--node_rank=0"),
        *("--rdzv_conf=timeout=600", "--max_restarts=0"),
    ]
    newer = bench.run(TORCH_VERSION="2.13", MAX_RESTARTS="1").options
    assert "--rdzv_backend=c10d" in newer


@pytest.mark.promise("torchrun's nodes are numbered in the order of `hosts`")
@pytest.mark.parametrize(
    "hosts", [["w-0", "w-1"], [f"w-{node}" for node in range(11)], ["fd00::9", "fd00::10"]]
)
def test_nodes_keep_the_order_of_the_hosts(bench: Bench, hosts: list[str]) -> None:
    """What c10d makes of them: tests/loopback/test_torch.py."""
    bench.render(at=topology(hosts))
    for node in range(2):
        assert "--rdzv_backend=static" in bench.run(NODE_RANK=str(node)).options
    assert "--rdzv_backend=c10d" in bench.run(NODE_RANK="1", MAX_RESTARTS="1").options
    assert "--rdzv_backend=c10d" in bench.run(NODE_RANK="1", RDZV_BACKEND="c10d").options
    # Nodes of an elastic job have no fixed order.
    elastic = bench.run(NODE_RANK="1", NNODES_MIN="1", MAX_RESTARTS="0").options
    assert {"--rdzv_backend=c10d", f"--nnodes=1:{len(hosts)}"} <= set(elastic)
    bench.render()
    given = {"NODE_RANK": "1", "VC_WORKER_HOSTS": ",".join(hosts), "RDZV_BACKEND": "auto"}
    assert "--rdzv_backend=static" in bench.run(**given).options


def test_one_node_meets_itself_on_a_free_port(bench: Bench) -> None:
    bench.render(at=topology(["only.invalid"], slots=1))
    options = bench.run(HOSTNAME="only.invalid").options
    assert "--rdzv_endpoint=127.0.0.1:0" in options
    assert "--local_addr=127.0.0.1" in options
    assert "--master_addr=127.0.0.1" in bench.run(RDZV_BACKEND="static").options
    assert "--master_addr=127.0.0.1" in bench.run(script="torchlaunch").options


def test_modelarts_variables(bench: Bench) -> None:
    env = {
        "VC_WORKER_HOSTS": "j-worker-0.j,j-worker-1.j,j-worker-2.j",
        "MA_NUM_HOSTS": "3",
        "MA_VJ_NAME": "j",
        "MA_CURRENT_IP": "10.0.0.9",
        "MA_NUM_GPUS": "8",
        "VC_TASK_INDEX": "2",
        "VK_TASK_INDEX": "1",
    }
    options = bench.run(**env).options
    assert options[2:5] == ["--nnodes=3", "--nproc_per_node=8", "--rdzv_id=j"]
    assert {"--master_addr=j-worker-0.j", "--node_rank=2"} <= set(options)
    assert "--node_rank=1" in bench.run(**env, MA_TASK_INDEX="1").options
    options = bench.run(RDZV_BACKEND="c10d", **env).options
    assert {"--rdzv_endpoint=j-worker-0.j:6060", "--local_addr=j-worker-2.j"} <= set(options)
    unnamed = {**env, "VC_WORKER_HOSTS": "", "MA_VJ_NAME": "", "MASTER_ADDR": "m"}
    assert "--local_addr=10.0.0.9" in bench.run(RDZV_BACKEND="c10d", **unnamed).options
    assert "--node_rank=0" in bench.run(script="torchlaunch", **env, NODE_RANK="0").options


def test_numbers_of_the_platform_are_decimal(bench: Bench) -> None:
    env = {
        "VC_WORKER_HOSTS": ",".join(f"h{node}" for node in range(9)),
        "MA_NUM_HOSTS": "09",
        "VC_TASK_INDEX": "08",
    }
    options = bench.run(MA_NUM_GPUS="08", **env).options
    assert options[2:4] == ["--nnodes=9", "--nproc_per_node=8"]
    assert "--node_rank=8" in options
    options = bench.run(
        NODE_RANK="0", MASTER_PORT="06061", RDZV_TIMEOUT="060", MAX_RESTARTS="01"
    ).options
    assert "--rdzv_endpoint=w-0:6061" in options
    assert "--rdzv_conf=is_host=1,join_timeout=60,read_timeout=60" in options
    assert "--max_restarts=1" in options


@pytest.mark.parametrize("listed", ["a:6666,b:6666", "[a:6666,b:6666]", "a, b"])
def test_hosts_with_ports(bench: Bench, listed: str) -> None:
    given = {"VC_WORKER_HOSTS": listed, "VC_TASK_INDEX": "1"}
    assert "--master_addr=a" in bench.run(**given).options
    options = bench.run(RDZV_BACKEND="c10d", **given).options
    assert {"--rdzv_endpoint=a:6060", "--local_addr=b"} <= set(options)


def test_hosts_by_the_platform_s_rule(bench: Bench) -> None:
    """As platforms/modelarts.py knows it: tests/platforms/modelarts."""
    env = {"MA_NUM_HOSTS": "3", "MA_VJ_NAME": "j", "VC_TASK_INDEX": "2"}
    assert "--master_addr=j-worker-0.j" in bench.run(**env).options
    assert "--master_addr=j-trainer-0.j" in bench.run(**env, MA_TASK_NAME="trainer").options
    options = bench.run(RDZV_BACKEND="c10d", **env).options
    assert {"--rdzv_endpoint=j-worker-0.j:6060", "--local_addr=j-worker-2.j"} <= set(options)
    assert "--nnodes=1" in bench.run(**{**env, "MA_NUM_HOSTS": "1"}).options


def test_every_setting_has_a_variable(bench: Bench) -> None:
    options = bench.run(
        NNODES="3", NODE_RANK="1", NPROC_PER_NODE="4", MASTER_ADDR="fd00::1", MASTER_PORT="7000", NODE_ADDR="fd00::2",
        JOB_ID="run-9", RDZV_BACKEND="c10d", RDZV_CONF="last_call_timeout=9", RDZV_TIMEOUT="50", MAX_RESTARTS="2",
        LOG_DIR="/l", TORCHRUN_EXTRA_ARGS=" --role  trainer\n--tee 0 ",
    ).options  # fmt: skip
    assert options[2:] == [
        *("--nnodes=3", "--nproc_per_node=4", "--rdzv_id=run-9"),
        *("--rdzv_backend=c10d", "--rdzv_endpoint=[fd00::1]:7000"),
        *(
            "--rdzv_conf=is_host=0,join_timeout=50,read_timeout=50,last_call_timeout=9",
            "--local_addr=fd00::2",
        ),
        *("--max_restarts=2", "--log_dir=/l", "--role", "trainer", "--tee", "0"),
    ]


@pytest.mark.parametrize(
    ("env", "count"),
    [
        ({"NPROC_PER_NODE": "3", "NGPUS_PER_NODE": "4"}, 3),
        ({"NGPUS_PER_NODE": "4", "MA_NUM_GPUS": "8"}, 4),
        ({"MA_NUM_GPUS": "8"}, 8),
        ({"MA_NUM_GPUS": "0"}, 1),
        ({"MA_NUM_GPUS": ""}, 2),
    ],
)
def test_processes_of_a_node(bench: Bench, env: dict[str, str], count: int) -> None:
    assert f"--nproc_per_node={count}" in bench.run(**env).options
    assert f"--nproc_per_node={count}" in bench.run(script="torchlaunch", **env).options


@pytest.mark.promise("no task of a Slurm job has another node's HOSTNAME")
def test_a_task_of_srun_knows_its_node_by_slurm(bench: Bench) -> None:
    """srun passes the batch node's HOSTNAME on to every task; control: without Slurm's own name
    HOSTNAME counts."""
    given = {"HOSTNAME": "w-0", "SLURMD_NODENAME": "w-1"}
    assert "--node_rank=1" in bench.run(script="torchlaunch", **given).options
    del given["SLURMD_NODENAME"]
    assert "--node_rank=0" in bench.run(script="torchlaunch", **given).options


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (
            {"HOSTNAME": "elsewhere"},
            (
                "node index unknown: 2 nodes are given and no index | host name elsewhere | set"
                " NODE_RANK (0 for worker-0)"
            ),
        ),
        (
            {"NODE_RANK": "2"},
            "NODE_RANK is beyond the last node | 2 of 2 | count from 0, or set NNODES",
        ),
        ({"NODE_RANK": "x"}, "NODE_RANK is not a whole number | 'x' | set NODE_RANK"),
        (
            {"NNODES": "3", "NODE_RANK": "0"},
            (
                "worker-0 has no address | 3 nodes, and no list of as many hosts | set MASTER_ADDR,"
                " or VC_WORKER_HOSTS"
            ),
        ),
        ({"MASTER_PORT": "6o6o"}, "MASTER_PORT is not a whole number | '6o6o' | set MASTER_PORT"),
        (
            {"VC_TASK_INDEX": "010"},
            "NODE_RANK is beyond the last node | 10 of 2 | count from 0, or set NNODES",
        ),
        (
            {"VC_TASK_INDEX": "1234567890"},
            "NODE_RANK is not a whole number | '1234567890' | set NODE_RANK",
        ),
        ({"MA_NUM_HOSTS": "2x"}, "NNODES is not a whole number | '2x' | set NNODES"),
        (
            {"NPROC_PER_NODE": "two"},
            "NPROC_PER_NODE is not a whole number | 'two' | set NPROC_PER_NODE",
        ),
        (
            {"MASTER_ADDR": "a:6666"},
            "MASTER_ADDR has a port in it | 'a:6666' | give the port by MASTER_PORT",
        ),
        ({"TORCH_VERSION": "new"}, "TORCH_VERSION is no version | 'new' | write for example 2.1"),
    ],
)
def test_what_cannot_be_a_job(bench: Bench, env: dict[str, str], message: str) -> None:
    for script in ("torchrun", "torchlaunch"):
        got = bench.run(script=script, **env)
        assert (got.status, got.error) == (78, f"{script}.sh: EP650 {message}\n")


def test_a_python_without_torch_is_named(bench: Bench) -> None:
    got = bench.run("/bin/false.py", PYTHON="/bin/false")
    assert (got.status, got.error) == (
        78,
        "torchrun.sh: EP650 torch cannot be imported by /bin/false | its own error is above | "
        "correct its installation, or set PYTHON to another\n",
    )
    got = bench.run("/no.py", PYTHON="/no/python")
    assert got.status == 127
    assert "EP650 /no/python cannot be started | it is to start torch | " in got.error


def test_a_program_is_needed(bench: Bench) -> None:
    bare = ["bash", f"{bench.folder}/torchrun.sh"]
    done = subprocess.run(bare, env={"HOSTNAME": "w-0"}, capture_output=True, text=True)
    assert done.returncode == 64
    say = "there is no program to run | no arguments | bash torchrun.sh train.py --epochs 5"
    assert done.stderr == f"torchrun.sh: EP650 {say}\n"


def test_the_program_by_variables(bench: Bench) -> None:
    """As the scripts of ModelArts' documents have it."""
    named = {"PYTHON_SCRIPT": "a b.py", "PYTHON_ARGS": "--epochs  5 $HOME *"}
    assert bench.run(bare=True, **named).program == ["a b.py", "--epochs", "5", "$$HOME", "*"]
    assert bench.run("other.py", **named).program == ["other.py"]


def test_console_lines_name_node_and_rank(bench: Bench) -> None:
    name = "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"
    assert bench.run(NODE_RANK="1").env[name] == "[worker-1 rank ${rank}] "
    assert bench.run(**{name: "mine"}).env[name] == "mine"


def test_torchs_own_variables_cannot_undo_it(bench: Bench) -> None:
    env = bench.run(
        PET_STANDALONE="",
        PET_ROLE="",
        PET_NNODES="7",
        PET_RDZV_ENDPOINT="x:1",
        PET_LOG_DIR="/kept",
        PET_TEE="1",
    ).env
    assert {name: value for name, value in env.items() if name.startswith("PET_")} == {
        "PET_LOG_DIR": "/kept",
        "PET_TEE": "1",
    }


# --------------------------------------------------------------------------------------------------
# The program


def test_words_of_the_program(bench: Bench) -> None:
    (bench.folder / "python3.11").symlink_to(bench.python)
    (bench.folder / "plain").write_text("print()")
    python = f"{bench.folder}/python3.11"
    ways: list[tuple[list[str], list[str], list[str]]] = [
        (["train.py", "-u"], [], ["train.py", "-u"]),
        (["./no-suffix"], [], ["./no-suffix"]),
        (["plain", "x"], [], ["plain", "x"]),
        ([python, "train.py", "x"], [], ["train.py", "x"]),
        ([python, "-u", "train.py"], [], ["train.py"]),
        ([python, "-m", "pkg.train", "x"], ["--module"], ["pkg.train", "x"]),
        (["-m", "pkg.train"], ["--module"], ["pkg.train"]),
        ([python, "-O", "train.py"], ["--no_python"], [python, "-O", "train.py"]),
        (["cat", "-"], ["--no_python"], ["cat", "-"]),
        ([f"{bench.folder}/recorder", "x"], ["--no_python"], [f"{bench.folder}/recorder", "x"]),
    ]
    for script in ("torchrun", "torchlaunch"):
        for words, form, program in ways:
            got = bench.run(*words, script=script)
            assert (
                got.argv[got.argv.index("--") - len(form) : got.argv.index("--")],
                got.program,
            ) == (form, program)
            assert got.python == (python if words[0] == python else str(bench.python))


def test_words_survive_torchs_templates(bench: Bench) -> None:
    """torch runs string.Template over every word but the program's name; a doubled $ comes out as
    one."""
    expected = [word.replace("$", "$$") for word in AWKWARD]
    assert bench.run("a$b.py", *AWKWARD).program == ["a$$b.py", *expected]
    assert bench.run("cat", *AWKWARD).program == ["cat", *expected]


def test_the_local_rank_as_an_argument(bench: Bench) -> None:
    assert "--use-env" not in bench.run(script="torchlaunch", TORCHLAUNCH_USE_ENV="0").options
    got = bench.run("cat", script="torchlaunch", TORCHLAUNCH_USE_ENV="0")
    assert (got.status, got.error) == (
        64,
        (
            "torchlaunch.sh: EP650 only a Python script can be given its local rank | cat with"
            " TORCHLAUNCH_USE_ENV=0 | unset TORCHLAUNCH_USE_ENV\n"
        ),
    )


# --------------------------------------------------------------------------------------------------
# Options of the user's own

REFUSED = {
    "--nnodes=2": ("nnodes", "NNODES", "hosts"),
    "--node-rank": ("node_rank", "NODE_RANK", "node_rank"),
    "--nproc_per_node=2": ("nproc_per_node", "NPROC_PER_NODE", "slots"),
    "--nproc-per-node": ("nproc_per_node", "NPROC_PER_NODE", "slots"),
    "--nproc": ("nproc_per_node", "NPROC_PER_NODE", "slots"),  # argparse takes any clear beginning
    "--master_addr=x": ("master_addr", "MASTER_ADDR", "hosts"),
    "--master-port": ("master_port", "MASTER_PORT", "torch.port"),
    "--local-addr=x": ("local_addr", "NODE_ADDR", "hosts"),
    "--standalone": ("standalone", "NNODES=1", "one host in hosts"),
    "--rdzv-backend=c10d": ("rdzv_backend", "RDZV_BACKEND", "torch.rdzv_backend"),
    "--rdzv_e=x": ("rdzv_endpoint", "MASTER_ADDR and MASTER_PORT", "hosts and torch.port"),
    "--rdzv_id": ("rdzv_id", "JOB_ID", "name"),
    "--rdzv-conf=a=b": ("rdzv_conf", "RDZV_CONF", "the variable RDZV_CONF in env"),
    "--": ("nnodes", "NNODES", "hosts"),
}


@pytest.mark.parametrize("word", REFUSED)
def test_reserved_options_are_refused_by_name(bench: Bench, word: str) -> None:
    option, variable, field = REFUSED[word]
    for script, name in (
        ("torchrun", "TORCHRUN_EXTRA_ARGS"),
        ("torchlaunch", "TORCHLAUNCH_EXTRA_ARGS"),
    ):
        got = bench.run(script=script, **{name: f"--role x {word}"})
        assert got.status == 64
        what, do = f"--{option} is set by this script", f"remove it, and set {variable}"
        assert got.error == f"{script}.sh: EP650 {what} | {word} among the options | {do}\n"
    with pytest.raises(SpecError) as raised:
        torchrun.plan(
            job(f"torch:\n  extra_args: [--role, x, {json.dumps(word)}]\n"), topology(), NOBODY
        )
    assert raised.value.lines() == [
        f"job.yaml:2:15: torch.extra_args: EP119 --{option} is set by the launcher's script |"
        f" `{word}` | set {field}"
    ]


def test_slots_of_each_node(bench: Bench) -> None:
    made = topology()
    bench.render(
        at=replace(made, nodes=(replace(made.nodes[0], slots=1), replace(made.nodes[1], slots=3)))
    )
    for rank, own in (("0", "1"), ("1", "3")):
        assert f"--nproc_per_node={own}" in bench.run(NODE_RANK=rank).options
    assert "--nproc_per_node=2" in bench.run(NODE_RANK="1", NPROC_PER_NODE="2").options


def test_other_options_pass(bench: Bench) -> None:
    bench.render(
        "torch: {extra_args:"
        f" {json.dumps(['--log-dir', '/a b', '-t', '1', '--monitor_interval=2'])}}}"
    )
    for script, name in (
        ("torchrun", "TORCHRUN_EXTRA_ARGS"),
        ("torchlaunch", "TORCHLAUNCH_EXTRA_ARGS"),
    ):
        options = bench.run(script=script, **{name: "--role x"}).options
        assert options[-7:] == ["--log-dir", "/a b", *split("-t 1 --monitor_interval=2 --role x")]


# --------------------------------------------------------------------------------------------------
# What a rendered script carries


def test_command_env_and_workdir_of_the_spec(bench: Bench) -> None:
    place = bench.folder / "a place"
    place.mkdir()
    spec = {
        "command": ["train.py", *AWKWARD],
        "env": {"MODE": "it's $HOME", "RDZV_BACKEND": "static", "UID": "5"},
    }
    bench.render(json.dumps({**spec, "workdir": str(place)}))
    for script in ("torchrun", "torchlaunch"):
        done = bench.run(script=script, bare=True, MODE="mine")
        assert done.program == ["train.py", *(word.replace("$", "$$") for word in AWKWARD)]
        assert (done.env["MODE"], done.env["PWD"]) == ("it's $HOME", str(place))
        assert bench.run("other.py", script=script).program == ["other.py"]
    assert "--rdzv_backend=static" in bench.run().options


def test_no_secret_is_in_a_rendered_script(bench: Bench) -> None:
    command = ["train.py", "--api-key", "do-not-write-this"]
    bench.render(
        json.dumps({"command": command, "env": {"HF_TOKEN": "do-not-write-this", "SHOWN": "x"}})
    )
    for script in ("torchrun", "torchlaunch"):
        text = (bench.folder / f"{script}.sh").read_text()
        assert ("do-not-write-this" in text, "export SHOWN=x" in text) == (False, True)
        assert bench.run(script=script, bare=True).status == 64
    started = torchrun.plan(job(json.dumps({"command": command})), topology(), NOBODY)
    assert "do-not-write-this" not in started.files[0].text


def test_the_machine_that_renders_is_no_host_of_the_job(bench: Bench) -> None:
    origins = {"hosts": Source("default", "this container's host name")}
    bench.render(at=replace(topology(["buildkitsandbox"]), origins=origins))
    for script in ("torchrun", "torchlaunch"):
        assert "buildkitsandbox" not in (bench.folder / f"{script}.sh").read_text()
        assert "--nnodes=1" in bench.run(script=script).options
    assert "--master_addr=m" in bench.run(NNODES="2", NODE_RANK="1", MASTER_ADDR="m").options


def test_every_variable_is_in_the_documents() -> None:
    text = "".join(Path(TEMPLATES, name).read_text() for name in (
        "torchrun/common.sh.j2", "torchrun/torchrun.sh.j2", "torchlaunch/torchlaunch.sh.j2",
    ))  # fmt: skip
    page = Path(TEMPLATES, "../docs/reference/torchrun.md").read_text()
    names = set(re.findall(r"\$\{([A-Z][A-Z0-9_]+):-", text)) - {"ENTRYPOINT_STAGE"}
    assert len(names) > 25
    assert sorted(name for name in names if f"`{name}`" not in page) == []


# --------------------------------------------------------------------------------------------------
# Under the entrypoint


def settings(launch: Launch) -> dict[str, str]:
    return {var.name: var.value for var in launch.programs[0].env}


def test_plan_of_a_node() -> None:
    spec = job("command: [python, train.py, 'a b']\nname: job-7\ntorch: {port: 7000}\n")
    launch = torchrun.plan(spec, topology(me=1), NOBODY)
    assert launch.programs[0].argv == ("bash", "/run/x/torchrun.sh", "python", "train.py", "a b")
    assert (launch.ends.completion, launch.start.needs_roll_call) == ("first-failure", False)
    assert [file.name for file in launch.files] == ["torchrun.sh", "rank.sh"]
    assert settings(launch) == {
        "ENTRYPOINT_STAGE": "launch",
        "NNODES": "2",
        "NODE_RANK": "1",
        "NPROC_PER_NODE": "2",
        "MASTER_ADDR": "w-0",
        "MASTER_PORT": "7000",
        "NODE_ADDR": "w-1",
        "JOB_ID": "job-7",
        "RDZV_BACKEND": "auto",
        "MAX_RESTARTS": "0",
        "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "32",
    }
    assert launch.ranks.reports == "both"
    assert "MASTER_PORT=${MASTER_PORT:-7000}" in launch.files[0].text


def test_what_a_variable_of_ours_says_wins() -> None:
    env = {
        "ENTRYPOINT_TORCH_PORT": "7001",
        "ENTRYPOINT_TORCH_VERSION": "2.1",
        "ENTRYPOINT_TORCH_RDZV_BACKEND": "c10d",
        "ENTRYPOINT_TORCH_MAX_RESTARTS": "3",
    }
    launch = torchrun.plan(job("torch: {port: 7000}", env), topology(), NOBODY)
    more = {
        "MASTER_PORT": "7001",
        "TORCH_VERSION": "2.1",
        "RDZV_BACKEND": "c10d",
        "MAX_RESTARTS": "3",
    }
    assert settings(launch).items() >= more.items()


# flag > ENTRYPOINT_<FIELD> > the variable torch's users know > spec file > default
ORDER = [
    ("", {}, "6060", "default"),
    ("torch: {port: 7000}", {}, "7000", "spec job.yaml:1:15"),
    ("torch: {port: 7000}", {"MASTER_PORT": "7070"}, "7070", "env MASTER_PORT"),
    (
        "",
        {"MASTER_PORT": "7070", "ENTRYPOINT_TORCH_PORT": "7001"},
        "7001",
        "env ENTRYPOINT_TORCH_PORT",
    ),
    (
        "",
        {"MASTER_PORT": "tcp://10.0.0.1:80"},
        "6060",
        "default",
    ),  # Kubernetes', for a Service called master
]


@pytest.mark.parametrize("launcher", [torchrun, torchlaunch])
@pytest.mark.parametrize(("text", "env", "port", "origin"), ORDER)
def test_what_the_script_uses_is_what_the_plan_shows(
    launcher: ModuleType, text: str, env: dict[str, str], port: str, origin: str
) -> None:
    spec = job(text, env)
    assert [(str(spec.torch.port), str(spec.source("torch.port")))] == [(port, origin)]
    launch = launcher.plan(spec, topology(), NOBODY)
    assert [
        (v.value, v.origin, v.default) for v in launch.programs[0].env if v.name == "MASTER_PORT"
    ] == [(port, origin, False)]


def test_every_variable_of_torch_s_is_a_setting(bench: Bench) -> None:
    env = {
        "MASTER_PORT": "7070",
        "MAX_RESTARTS": "5",
        "RDZV_BACKEND": "static",
        "TORCH_VERSION": "2.13.0+cu130",
    }
    launch = torchrun.plan(
        job("torch: {max_restarts: 1, rdzv_backend: c10d}", env), topology(), NOBODY
    )
    assert settings(launch).items() >= env.items()
    options = bench.run(ENTRYPOINT_RUN_DIR="/run/x", **settings(launch)).options
    assert {"--master_port=7070", "--max_restarts=5", "--rdzv_backend=static"} <= set(options)
    assert (
        settings(torchrun.plan(job("", {"PET_MAX_RESTARTS": "4"}), topology(), NOBODY))[
            "MAX_RESTARTS"
        ]
        == "4"
    )


def test_the_spec_s_own_variables_stay() -> None:
    launch = torchrun.plan(
        job("env: {MASTER_PORT: '7070', RDZV_BACKEND: static}"), topology(), NOBODY
    )
    assert {"MASTER_PORT", "RDZV_BACKEND"} & settings(launch).keys() == set()


def test_every_node_gets_the_same_script() -> None:
    texts = {torchrun.plan(job(), topology(me=me), NOBODY).files[0].text for me in (0, 1)}
    assert len(texts) == 1


def as_launched(bench: Bench, *words: str, script: str = "torchrun", **env: str) -> Recorded:
    """As the entrypoint starts the script, with a run directory whose name torch would expand."""
    return bench.run(
        *words, script=script, ENTRYPOINT_STAGE="launch", ENTRYPOINT_RUN_DIR="/run/$x", **env
    )


@pytest.mark.parametrize("script", ["torchrun", "torchlaunch"])
def test_every_process_starts_through_the_node_s_own_script(bench: Bench, script: str) -> None:
    kept = ("sh", "/run/$$x/rank.sh", "")
    python = str(bench.python)
    for words, program in (
        (("train.py", "$HOME"), (python, "-u", "train.py", "$$HOME")),
        (("-m", "pkg.train"), (python, "-u", "-m", "pkg.train")),
        (("cat", "$HOME"), ("cat", "$$HOME")),
    ):
        got = as_launched(bench, *words, script=script)
        assert got.argv[-len(kept) - len(program) - 3 :] == [
            *("--log_dir=/run/$x/tmp/torch", "--no_python", "--", *kept, *program)
        ]
        assert got.own == {
            "scratch": "",
            "node_rank": "0",
            "exit_barrier": "",
            "together": "",
            "name": words[-1 if words[0] == "-m" else 0],
        }
        assert "ENTRYPOINT_STAGE" not in got.env
    assert (
        as_launched(bench, "train.py", script=script, PYTHON_EXEC="/other").program[3] == "/other"
    )


def test_options_of_torch_s_own_for_what_to_run_are_torch_s_to_follow(bench: Bench) -> None:
    for words in ("-m", "--module", "--no-python", "--run_path"):
        got = as_launched(bench, "train.py", TORCHRUN_EXTRA_ARGS=words)
        assert got.argv[-3:] == [words, "--", "train.py"]
    assert as_launched(bench, "train.py", PET_MODULE="1").program == ["train.py"]


def test_the_local_rank_as_an_argument_of_a_kept_process(bench: Bench) -> None:
    for torch, option in (
        ("1.13.1", "--local_rank=${local_rank}"),
        ("2.13.0", "--local-rank=${local_rank}"),
    ):
        got = as_launched(
            bench, "train.py", "x", script="torchlaunch", torch=torch, TORCHLAUNCH_USE_ENV="0"
        )
        assert got.program[-3:] == ["train.py", option, "x"]
        assert option.replace("local", "use").partition("_rank")[0] not in got.options


def test_lines_begin_with_node_and_rank_where_asked(bench: Bench) -> None:
    """Without a copy of what is printed, which torch's own --tee makes."""
    got = as_launched(bench, "train.py", PET_TEE="3")
    assert got.program[:3] == ["sh", "/run/$$x/rank.sh", "[worker-0 rank ${rank}] "]
    assert "PET_TEE" not in got.env
    assert as_launched(bench, "train.py", PET_TEE="0").program[2] == ""
    own = as_launched(
        bench, "train.py", PET_TEE="1", TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE="${local_rank}:"
    )
    assert own.program[2] == "${local_rank}:"


def test_how_long_the_first_node_s_launcher_stays() -> None:
    """It holds the store of all; where nothing is heard of the others, its wait has to end by
    itself."""
    facts = Facts({}, "w-0", "/", 1000, "u", "/home/u", programs={"sshd": "/usr/sbin/sshd"})
    called, alone = {"ENTRYPOINT_SECRET": "8f2c" * 9 + "0a1b3d5e"}, {"ENTRYPOINT_ROLL_CALL": "none"}
    heard = Members(tuple(NodeReport(rank, 2, "1") for rank in range(2)))
    for launcher in ("torchrun", "torchlaunch"):
        for env, at, members, stays in (
            (called, topology(), None, "2000000"),
            (called, topology(), heard, "2000000"),
            (called, topology(me=1), heard, None),
            (alone, topology(), None, "7.5"),
            (alone, topology(me=1), None, "7.5"),
            (alone, topology(["w"]), None, None),
            (called, topology(["w"]), None, None),
        ):
            spec = job(f"launcher: {launcher}\ncommand: [x.py]\ntimeouts: {{peers: 7.5}}", env)
            got = settings(settle(spec, facts, at, members).launch)
            assert got.get("EXIT_BARRIER") == stays
            assert got.get("EXIT_TOGETHER") == ("yes" if stays == "7.5" else None)


# --------------------------------------------------------------------------------------------------
# The status


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


def torch_that(folder: Path, text: str) -> None:
    package = folder / "torch" / "distributed"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").touch()
    (package / "__init__.py").touch()
    for name in ("run", "launch"):
        (package / f"{name}.py").write_text(text)


@pytest.mark.parametrize(
    ("wait", "printed", "status"),
    [
        (WAIT, "told saved", 143),
        # Threads that end while they are looked at have nothing more to tell of their children.
        (
            f"for _ in range(8): threading.Thread(target=come_and_go, daemon=True).start()\n{WAIT}",
            "told saved",
            143,
        ),
        # The control: one that handles the signal tells its ranks itself, and once.
        (
            "while not heard: time.sleep(0.02)\nrank.terminate(); rank.wait()",
            "handled told saved",
            0,
        ),
    ],
    ids=["stuck", "busy", "well"],
)
def test_ranks_are_told_to_stop_by_a_launcher_that_is_stuck(
    bench: Bench, wait: str, printed: str, status: int
) -> None:
    torch_that(bench.folder, STUCK.format(wait=wait))
    with subprocess.Popen(
        ["bash", "torchrun.sh", "train.py"],
        env={"PATH": os.environ["PATH"], "PYTHON": sys.executable, "TORCH_VERSION": "2.13", "NODE_RANK": "0"},
        cwd=bench.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        try:
            assert process.stdout
            os.kill(int(process.stdout.readline()), signal.SIGTERM)
            out, error = process.communicate(timeout=30)
        finally:
            process.kill()
    assert (out.split(), process.returncode, "Traceback" in error) == (
        printed.split(),
        status,
        False,
    ), error


@pytest.mark.parametrize(
    ("ending", "status", "said"),
    [
        ("pass", 0, ""),
        ("raise Failed(7)", 7, "Failed: report"),
        ("raise Failed(-9)", 137, "Failed: report"),
        ("raise Failed(1)", 1, "Failed: report"),
        ("raise ValueError('another')", 1, "ValueError: another"),
        ("sys.exit(2)", 2, ""),
    ],
)
@pytest.mark.parametrize("script", ["torchrun", "torchlaunch"])
def test_the_program_s_own_status(
    bench: Bench, script: str, ending: str, status: int, said: str
) -> None:
    # What torch raises when a program failed: torch.distributed.elastic's ChildFailedError.
    torch_that(
        bench.folder,
        "import sys\nfrom types import SimpleNamespace\nclass Failed(Exception):\n    def"
        " __init__(self, code):\n        super().__init__('report')\n        self.code = code\n   "
        " def get_first_failure(self):\n        return 0,"
        " SimpleNamespace(exitcode=self.code)\nassert __name__ == '__main__' and sys.argv[-2:] =="
        f" ['--', 'train.py']\n{ending}\n",
    )
    got = bench.run(script=script, PYTHON=sys.executable, TORCH_VERSION="2.13")
    assert (got.status, said in got.error) == (status, True), got.error
    assert list(bench.temporary.iterdir()) == []


COLLECTS = "import gc, sys\nprint({!r}, gc.isenabled(), file=sys.stderr)\n"


@pytest.mark.parametrize("script", ["torchrun", "torchlaunch"])
def test_garbage_is_not_collected_before_torch_is_imported(bench: Bench, script: str) -> None:
    torch_that(bench.folder, COLLECTS.format("in the launcher"))
    (bench.folder / "torch/__init__.py").write_text(COLLECTS.format("in the import"))
    got = bench.run(script=script, PYTHON=sys.executable, TORCH_VERSION="2.13")
    assert got.error.splitlines() == ["in the import False", "in the launcher True"]
