"""`entrypoint migrate`: a documented script is run for real, with recorders in the place of mpirun
and python, and the plan of its job.yaml has to start the same."""

from __future__ import annotations

import contextlib
import re
import secrets
import shlex
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from entrypoint.adopt import documented, migrate, shell
from entrypoint.errors import NoInputError
from tests import command

SCRIPTS = Path(__file__).parent.parent / "samples/modelarts"
NAMES = ("run_mpi.sh", "torchrun.sh", "torchlaunch.sh")
RECORDER = """\
#!/bin/sh
[ "$1" = --version ] && echo "mpirun (Open MPI) 4.1.4" && exit
[ -e "$RECORD" ] || printf '%s\\0' "${0##*/}" "$@" >"$RECORD"
env -0 >"$RECORD.env"
pwd >"$RECORD.cwd"
"""
PING = '#!/bin/sh\necho "PING $3 (127.0.0.1) 56(84) bytes of data."\n'
OURS = {"rdzv_id", "rdzv_conf", "local_addr", "log_dir"}


@dataclass
class Edit:
    """A copy of a script with a user's edits, and what cannot be carried over."""

    script: str
    changes: Mapping[str, str]  # text -> what replaces it
    lost: Sequence[str] = ()
    arguments: Sequence[str] = ()


MPI = Edit(
    "run_mpi.sh",
    {
        '"36666"}': '"%PORT%"}',
        '${MY_MPI_SLOTS:-"${MA_NUM_GPUS}"}': "4",
        "MY_HOME=/home/ma-user": "MY_HOME=%HOME%\nexport NCCL_IB_TIMEOUT=22\npip install -r r.txt",
        "-bind-to none -map-by slot": "-bind-to core -map-by ppr:4:node --report-bindings",
        "NCCL_DEBUG=INFO": "NCCL_DEBUG=WARN -x 'NOTE=two words' -x NCCL_IB_HCA=mlx5",
        "-mca pml ob1": "-mca pml ob1 -mca btl_tcp_if_include eth1",
        '        "$@"\n': "        python ${MA_JOB_DIR}/code/train.py --lr 0.1"
        " --data='$5 a b' \"$@\" 2>&1 | tee -a log\n",
    },
    ("pip install -r r.txt", "2>&1 | tee -a log"),
    ("--epochs", "3"),
)
TORCHRUN = Edit(
    "torchrun.sh",
    {
        '"6060"': "7070",
        '"$MA_NUM_GPUS"': "4",
        "=c10d": "=static --max_restarts=3 --tee 3",
        'PYTHON_ARGS=""': 'PYTHON_ARGS="--data ${DATA_URL}/train"\nexport OMP_NUM_THREADS=4\nUNUSED=1\n'
        "cd ${MA_JOB_DIR}",
        "\n$CMD\n": "\nexec $CMD --last\n",
    },
    ("UNUSED=1",),
)
TORCHLAUNCH = Edit(
    "torchlaunch.sh",
    {
        "--use_env \\\n": "",
        "python -m": "python3 -m",
        "=$NGPUS_PER_NODE": "=2 --log_dir=/tmp/l",
        "$PYTHON_SCRIPT \\": "-m train.main \\",
        'PYTHON_ARGS=""': 'PYTHON_ARGS="--a"\nPYTHON_ARGS+=" --b 1"',
        "echo $CMD": "echo $CMD\nif [ -d /cache ]; then\n  rm -rf /cache/*\nfi",
    },
    ("if [ -d /cache ]", "rm -rf /cache/*"),
)
DOCUMENTED = Edit("run_mpi.sh", {"/home/ma-user": "%HOME%"}, (), ("python", "t.py"))
EDITS = [
    DOCUMENTED,
    Edit("torchrun.sh", {}),
    Edit("torchlaunch.sh", {}),
    MPI,
    TORCHRUN,
    TORCHLAUNCH,
]
IDS = [*NAMES, *(f"edited {name}" for name in NAMES)]


class Bench:
    """A node of a job of ModelArts, whose mpirun and python are recorders."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        (self.home / "etc/ssh").mkdir(parents=True)
        (self.home / "etc/ssh/sshd_config").write_text("Port {{MY_SSHD_PORT}}\n")
        self.code = folder / "jobs/code"
        self.code.mkdir(parents=True)
        (self.code / "train.py").touch()
        (self.code / "torch_ddp.py").touch()
        (folder / "t.py").touch()
        self.bin = folder / "bin"
        self.bin.mkdir()
        for name in ("mpirun", "python", "python3"):
            self.program(name, RECORDER)
        for name in ("sshd", "netstat", "sleep", "pkill", "pip", "rm", "tee"):
            self.program(name, "#!/bin/sh\n")
        self.program("ping", PING)
        self.env = {
            "PATH": f"{self.bin}:/usr/bin:/bin",
            "MA_JOB_DIR": str(folder / "jobs"),
            "MA_NUM_HOSTS": "2",
            "MA_NUM_GPUS": "8",
            "MA_VJ_NAME": "job",
            "MA_TASK_NAME": "worker",
            "VC_TASK_INDEX": "0",
            "VC_WORKER_HOSTS": "job-worker-0.job,job-worker-1.job",
            "DATA_URL": "/obs",
            "RECORD": str(folder / "record"),
        }

    def program(self, name: str, text: str) -> None:
        (self.bin / name).write_text(text)
        (self.bin / name).chmod(0o755)

    def edited(self, edit: Edit, port: int) -> Path:
        text = (SCRIPTS / edit.script).read_text()
        for old, new in edit.changes.items():
            assert old in text
            text = text.replace(old, new)
        path = self.folder / edit.script
        path.write_text(text.replace("%HOME%", str(self.home)).replace("%PORT%", str(port)))
        return path

    def run(self, *argv: str, **env: str) -> tuple[list[str], dict[str, str], str]:
        """Run a program; return what it started, in which environment and folder."""
        record = self.folder / "record"
        record.unlink(missing_ok=True)
        done = subprocess.run(
            argv, env=self.env | env, cwd=self.folder, capture_output=True, timeout=30, check=False
        )
        assert record.exists(), done.stderr.decode()
        pairs = Path(f"{record}.env").read_text().rstrip("\0").split("\0")
        environ = dict(pair.split("=", 1) for pair in pairs)
        return words(record), environ, Path(f"{record}.cwd").read_text().strip()

    def entrypoint(self, *argv: str, **env: str) -> subprocess.CompletedProcess[str]:
        return command.run(self.folder, *argv, env=self.env | env)


def words(record: Path) -> list[str]:
    return record.read_text().rstrip("\0").split("\0")


def mpi_job(line: Sequence[str]) -> dict[str, Any]:
    """What an mpirun line means, without what ours and theirs do in ways of their own."""
    job: dict[str, Any] = {"x": {}, "mca": {}, "more": []}
    at = 1
    while line[at].startswith("-"):
        name = line[at].lstrip("-")
        if name == "np":
            job["np"] = line[at + 1]
        elif name == "x":
            key, _, value = line[at + 1].partition("=")
            job["x"].update({key: value} if value else {})
        elif name == "mca":
            job["mca"][line[at + 1]] = line[at + 2]
            at += 1
        elif name in ("hostfile", "tune"):
            pass
        elif name in ("allow-run-as-root", "report-bindings", "tag-output"):
            job["more"] += [name] if name == "report-bindings" else []
            at -= 1
        else:
            job["more"] += [name, line[at + 1]]
        at += 2
    for ours in ("plm_rsh_args", "plm_rsh_agent", "orte_keep_fqdn_hostnames", "plm"):
        job["mca"].pop(ours, None)
    program = list(line[at:])
    if program[:2] == ["sh", "-c"] and "rank.sh" in program[2]:
        program = program[4:]
    return {**job, "program": program}


def torch_job(line: Sequence[str]) -> dict[str, Any]:
    """What a line of torch's launcher means."""
    at = 2 if line[1].endswith("/torch_launch.py") else line.index("-m") + 1
    job: dict[str, Any] = {"module": line[at].rpartition(".")[2], "use_env": False}
    at += 1
    while line[at].startswith("-") and line[at] != "--":
        name, _, value = line[at].lstrip("-").replace("-", "_").partition("=")
        at += 1
        if name == "use_env":
            job[name] = True
        elif name in ("m", "module"):
            break
        elif name != "no_python":
            if not value:
                value = line[at]
                at += 1
            else:
                value = line[at - 1].partition("=")[2]
            job[name] = value
    else:
        name = ""
    program = [*(["-m"] if name in ("m", "module") else []), *line[at:]]
    if program[:1] == ["--"]:
        shown = program[3:] if program[1] == "sh" else program[1:]
        # torch replaces $ in words, so ours doubles it
        program = [word.replace("$$", "$") for word in shown if word != "-u"]
        if program[0].startswith("python"):
            program = program[1:]
    job["program"] = program
    job.setdefault("max_restarts", "0")
    if "rdzv_endpoint" in job:
        job["master_addr"], _, job["master_port"] = job.pop("rdzv_endpoint").rpartition(":")
    if job.get("rdzv_backend") == "c10d":
        job.pop("node_rank", None)
    return {name: value for name, value in job.items() if name not in OURS}


def meaning(line: Sequence[str]) -> dict[str, Any]:
    return mpi_job(line) if line[0] == "mpirun" else torch_job(line)


@contextlib.contextmanager
def somebody_listens() -> Any:
    """The documented script waits until each node's sshd can be reached."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.parametrize("edit", EDITS, ids=IDS)
def test_the_plan_starts_what_the_script_starts(edit: Edit, tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    with somebody_listens() as port:
        script = bench.edited(edit, port)
        own_port = {} if "%PORT%" in "".join(edit.changes.values()) else {"MY_SSHD_PORT": str(port)}
        started, environ, cwd = bench.run("bash", str(script), *edit.arguments, **own_port)
    done = bench.entrypoint("migrate", script.name, "--", *edit.arguments)
    assert done.returncode == 0, done.stderr
    lost = re.findall(r"EP135 not carried over: line \d+: (.*) \| .*", done.stderr)
    assert lost == list(edit.lost)
    text = (tmp_path / "job.yaml").read_text()
    assert all(f": {line} |" in text for line in edit.lost), "the file lists them, too"

    plan = bench.entrypoint("plan", "--spec", "job.yaml", ENTRYPOINT_SECRET=secrets.token_hex(32))
    shown = re.search(
        r"(?m)^  (?:which starts: (?=mpirun )|(?=\S+ \S+/torch_launch\.py ))(.*)$", plan.stdout
    )
    assert shown, plan.stdout + plan.stderr
    planned = meaning(shlex.split(shown[1]))
    if "\n  TORCHLAUNCH_USE_ENV=0 " in plan.stdout:
        planned["use_env"] = False
    if planned["program"][:2] == ["bash", "-c"]:  # what only a node's shell knows
        planned["program"] = bench.run(*planned["program"])[0]
    wanted = meaning(started)
    if wanted["program"][:1] != planned["program"][:1] and "module" in wanted:
        wanted["program"] = [planned["program"][0], *wanted["program"]]
    own_env = re.search(r"(?m)^env:\n((?:  .*\n)+)", text)
    exported = dict(
        line.strip().split(": ", 1) for line in (own_env[1].splitlines() if own_env else ())
    )
    notes = {name: value.strip("'\"") for name, value in exported.items()}
    if "module" not in wanted:
        wanted["x"] = {name: value for name, value in wanted["x"].items() if name not in notes}
    assert planned == wanted
    for name, value in notes.items():
        assert name in ("NOTE", "TORCHLAUNCH_USE_ENV") or environ[name] == value
    folder = re.search(r"(?m)^workdir: (.*)$", text)
    assert cwd == (str(bench.folder / "jobs") if folder else str(bench.folder))
    if edit is MPI:
        assert f"\n  port: {port}\n" in text


def test_a_documented_script_with_another_line_is_noticed() -> None:
    """The control of `lost == []` above, and of the digests: each is of a statement there."""
    found = set()
    for name in NAMES:
        text = (SCRIPTS / name).read_text()
        found |= {migrate.digest(one.text) for one in shell.statements(text, name)}
        changed = migrate.migrate(text.replace("\necho $CMD", "\necho $CMD; date"), name)
        assert [lost.text for lost in changed.lost] == ["date"] * ("$CMD" in text)
    assert found > documented.DOCUMENTED
    assert len(found - documented.DOCUMENTED) == 2, "the lines that start the training"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("echo train\n", "EP133"),
        ("", "EP133"),
        ("mpirun 'x", "`'` is not closed, at line 1"),
        ('a\nmpirun "x', '`"` is not closed, at line 2'),
        ("a=$(b", "`(` is not closed"),
        ("a=${b", "`${` is not closed"),
        ("\n" * (shell.LONGEST + 1), "EP132"),
    ],
)
def test_what_is_no_such_script_is_said(text: str, words: str) -> None:
    with pytest.raises(NoInputError) as caught:
        migrate.migrate(text, "run.sh")
    assert words in "; ".join(caught.value.lines())


def test_a_file_that_is_there_stays_as_it_is(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    (tmp_path / "job.yaml").write_text("mine")
    done = bench.entrypoint("migrate", str(SCRIPTS / "torchrun.sh"))
    assert done.returncode == 73
    assert "EP134 job.yaml exists" in done.stderr
    assert (tmp_path / "job.yaml").read_text() == "mine"
    done = bench.entrypoint("migrate", str(SCRIPTS / "torchrun.sh"), "--out", "-")
    assert done.returncode == 0
    assert "launcher: torchrun" in done.stdout
    done = bench.entrypoint("migrate", "nothing.sh")
    assert (done.returncode, "EP111" in done.stderr) == (66, True)


@pytest.mark.parametrize(
    "text",
    [
        "x=" + "${a:-" * 40000 + "}" * 40000,
        "a=1\n" + "".join(f"v{i}=$v{i - 1}$v{i - 1}\n" for i in range(1, 3000)),
        "mpirun " + "-x A=1 " * 10000,
        "echo " + "$((" * 40000,
        "echo " + "'a'" * 80000,
        "echo " + "a\\\n" * 80000,
        "echo $" + "{" * 200000,
        "cat <<E\n" * 20000,
        "if a\n" * 15000,
        "(" * 200000,
    ],
    ids=range(10),
)
def test_a_hostile_script_takes_little_time(text: str) -> None:
    begun = time.process_time()
    with contextlib.suppress(NoInputError):
        migrate.migrate(text, "run.sh")
    assert time.process_time() - begun < 3


def test_here_documents_comments_and_later_lines_are_not_what_starts_the_training() -> None:
    text = """\
# mpirun -np 2 a
cat >x <<E
mpirun -np 3 b
E
nohup mpirun -np 4 c & # d
mpirun -np 5 e
"""
    found = migrate.migrate(text, "run.sh")
    assert found.values == {"launcher": "mpirun", "mpi.np": 4, "command": ["c"]}
    expected = [(2, "cat >x <<E"), (5, "&"), (6, "mpirun -np 5 e")]
    assert [(lost.line, lost.text) for lost in found.lost] == expected
