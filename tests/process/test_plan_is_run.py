"""`plan` says what `run` does: each launcher, alone and of two nodes, with and without a roll call.

What a program really gets (words, environment, folder, files, and whose process it is) is compared
with what the plan of the same node says. In the place of bash, python and the program stands one
that writes down how it was started.
"""

from __future__ import annotations

import json
import shutil
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from entrypoint.base import kept, registry
from tests import command
from tests import table as cases
from tests.cluster import free_port
from tests.process.bench import Bench, executable

RECORDER = """\
import json, os, sys, time
env = dict(os.environ)
run_dir = env.get("ENTRYPOINT_RUN_DIR", "")
files = {}
for name in os.listdir(run_dir) if os.path.isdir(run_dir) else ():
    path = os.path.join(run_dir, name)
    if os.path.isfile(path):
        files[name] = (f"{os.stat(path).st_mode & 0o777:04o}", open(path, errors="surrogateescape", newline="").read())
words = [os.path.basename(sys.argv[0]), *sys.argv[1:]]
number = env.get("RANK_ID") or env.get("JAX_PROCESS_ID") or "0"
told = {"words": words, "env": env, "cwd": os.getcwd(), "pid": os.getpid(), "files": files}
place = os.path.join(os.path.dirname(sys.argv[0]), "../told." + number)
with open(place.replace("told.", "part."), "w") as file:
    json.dump(told, file)
os.rename(file.name, place)  # whole: another node's program may end the job once it is there
while not os.path.exists(env.get("AWAITS", "/")):
    time.sleep(0.01)
"""
# What must not reach a program, and what the shell of a person would have there.
OURS = {"ENTRYPOINT_SECRET", "ENTRYPOINT_STAGE", "_", "PWD", "OLDPWD", "SHLVL"}
KEPT = kept.MARK, kept.VERDICT  # which a keeper gives its programs
SECRET = "8f2c" * 9 + "0a1b3d5e"
SSHD = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin")


def table() -> str:
    devices = [
        {"device_id": str(n), "device_ip": f"192.1.0.{n}", "rank_id": str(1 - n)} for n in (0, 1)
    ]
    server = {"server_id": "10.0.0.1", "device": devices}
    return json.dumps(
        {"status": "completed", "version": "1.0", "server_count": "1", "server_list": [server]}
    )


class Node:
    """A node of a job on this machine: `plan` and `run` with the same words in the same
    environment."""

    def __init__(self, bench: Bench, launcher: str, env: dict[str, str]) -> None:
        self.bench = bench
        for name in ("bash", "python", "mpiexec.hydra", "hydra_pmi_proxy", "orted", "prog"):
            executable(bench.folder / "bin" / name, RECORDER, f"{sys.executable} -IS")
        bench.env |= {
            "LC_ALL": "C.UTF-8",
            "ENTRYPOINT_TIMEOUTS_PEERS": "300",
            "ENTRYPOINT_SLOTS": "2",
            **env,
        }
        self.words = ("--launcher", launcher, "--", "prog", "one arg")

    def plan(self) -> dict[str, Any]:
        words = ("plan", "--json", *self.words)
        done = command.run(self.bench.folder / "cwd", *words, env=self.bench.env)
        assert done.returncode == 0, done.stderr
        said: dict[str, Any] = json.loads(done.stdout)
        return said

    def run(self) -> None:
        self.process = self.bench.popen([sys.executable, "-m", "entrypoint", "run", *self.words])

    def told(self) -> list[dict[str, Any]]:
        """What the programs of this node wrote down, once it has ended."""
        self.process.wait()
        return [json.loads(path.read_text()) for path in sorted(self.bench.folder.glob("told.*"))]

    def check(self, plan: dict[str, Any]) -> None:
        """What happened is what the plan says."""
        told = self.told()
        assert [each["words"] for each in told] == [each["command"] for each in plan["programs"]], (
            self.bench.err
        )
        given = {name: value for name, value in self.bench.env.items() if name not in OURS}
        for each, program in zip(told, plan["programs"], strict=True):
            added = {var["name"]: var["value"] for var in (*plan["env"], *program["env"])}
            assert {n: v for n, v in each["env"].items() if n not in KEPT} == {**given, **added}
            assert each["cwd"] == plan["workdir"]
            assert (each["pid"] == self.process.pid) is (plan["mode"] == "exec")
            there = {file["name"]: file for file in plan["files"]}
            assert {name: each["files"][name][0] for name in there} == {
                n: f["mode"] for n, f in there.items()
            }
            texts = {name: file["text"] for name, file in there.items() if "text" in file}
            assert {name: each["files"][name][1] for name in texts} == texts
        alone = "warning: EP506 no roll call, " in self.bench.err
        assert alone is bool(plan["alone"])


@pytest.fixture
def port() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        yield int(listener.getsockname()[1])


MEETING = ("TORCH", "JAX", "MINDSPORE", "TENSORFLOW", "RAY")
ARGUMENTS = {"ascend": {"ENTRYPOINT_ASCEND_RANK_TABLE": "none"}}


@pytest.mark.promise("`plan` says what `run` does")
@pytest.mark.parametrize("launcher", registry.names("launchers"))
@pytest.mark.parametrize(
    ("nodes", "calls"), [(1, False), (2, False), (2, True)], ids=["1", "2, none", "2, required"]
)
def test_run_does_what_plan_says(
    bench: Bench, launcher: str, nodes: int, calls: bool, port: int
) -> None:
    called = nodes == 2 and calls
    if called and not SSHD:
        pytest.skip("there is no sshd on this machine")
    if nodes == 2 and not calls and launcher in ("hydra", "mpirun", "ray"):
        pytest.skip("refused, in tests/process/test_no_roll_call.py")
    env = {**ARGUMENTS.get(launcher, {}), "ENTRYPOINT_SSH_PORT": str(port)}
    # The roll call may choose another one than the default, which a test beside this one may have.
    env |= {f"ENTRYPOINT_{name}_PORT": str(free_port()) for name in MEETING}
    env |= {"ENTRYPOINT_SECRET": SECRET} if calls else {"ENTRYPOINT_ROLL_CALL": "none"}
    if nodes == 2:
        env |= {"ENTRYPOINT_HOSTS": "a=127.0.0.2,b=127.0.0.3"}
    benches = bench.others(2) if called else [bench]
    made = [
        Node(each, launcher, {**env, "ENTRYPOINT_NODE_RANK": str(rank)})
        for rank, each in enumerate(benches)
    ]
    # whose first program ends the job, and the second may not have started yet
    if called and launcher == "ray":
        benches[0].env["AWAITS"] = str(benches[1].folder / "told.0")
    plans = [node.plan() for node in made]
    mode = "coordinated" if called else "exec" if launcher == "plain" else "local"
    assert {plan["mode"] for plan in plans} == {mode}
    for plan in plans:
        tells = [line for line in plan["later"] if "cannot be used, another one, to tell" in line]
        assert bool(tells) is called
    for node in made:
        node.run()
    for node in made:
        node.process.wait()
    for node, plan in zip(made, plans, strict=True):
        node.check(plan)


def test_the_rank_table_is_read_or_said_to_decide(bench: Bench) -> None:
    file = bench.folder / "table.json"
    env = {"RANK_TABLE_FILE": str(file), "ENTRYPOINT_SIMULATE_ASCEND": "2"}
    node = Node(bench, "ascend", env)
    for text, origin, cards in (
        ("", "assumed, the rank table decides", ["0", "1"]),
        (table(), "the rank table", ["1", "0"]),
    ):
        if text:
            file.write_text(text)
        plan = node.plan()
        plan["programs"].sort(key=lambda each: str(each["label"]))
        shown = [{var["name"]: var for var in each["env"]} for each in plan["programs"]]
        assert [each["RANK_ID"]["value"] for each in shown] == ["0", "1"]
        assert [each["ASCEND_DEVICE_ID"]["value"] for each in shown] == cards
        assert {each["ASCEND_DEVICE_ID"]["origin"] for each in shown} == {origin}
    node.run()
    node.check(plan)


REFUSALS: dict[str, tuple[int, tuple[str, ...], dict[str, str]]] = {
    **cases("tests/tables/plan_is_run.yaml")["refusals"],
    "short secret": (65, ("--hosts", "a,b", "--", "true"), {"ENTRYPOINT_SECRET": SECRET[:15]}),
}


@pytest.mark.promise(
    "what `run` refuses, `plan` refuses with the same status", control="its case without a mistake"
)
@pytest.mark.parametrize("name", REFUSALS)
def test_what_run_refuses_plan_does(name: str, tmp_path: Path) -> None:
    status, argv, env = REFUSALS[name]
    (tmp_path / "weak").write_text("x" * 40)
    (tmp_path / "table.json").write_text(table())
    env = {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "ENTRYPOINT_NODE_RANK": "0",
        "ENTRYPOINT_RUN_DIR": f"{tmp_path}/run",
        "ENTRYPOINT_TIMEOUTS_PEERS": "1",
        **env,
    }
    for word in ("plan", "run"):
        done = command.run(tmp_path, word, *argv, env=env)
        assert (done.returncode, bool(done.stderr)) == (status, bool(status)), word
        assert "Traceback" not in done.stderr


@pytest.mark.control("`plan` says what `run` does")
def test_a_plan_that_is_not_run_is_noticed(bench: Bench) -> None:
    """The control: a plan of other words, or another environment, is not what run does."""
    node = Node(bench, "pytorch", {})
    plan = node.plan()
    node.run()
    node.check(plan)
    for wrong in (
        {"mode": "exec"},
        {"workdir": "/"},
        {"alone": "roll_call: none"},
        {"env": [{"name": "MORE", "value": "1"}]},
        {"programs": []},
        {"files": [{"name": "rank.sh", "mode": "0600"}]},
    ):
        with pytest.raises((AssertionError, KeyError)):
            node.check({**plan, **wrong})
