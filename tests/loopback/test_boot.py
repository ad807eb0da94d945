"""A real multi-node boot without containers: sshd, roll call, mpirun, placement, values, keys."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from shlex import split

import pytest

from tests import TREE
from tests.cluster import SECRET, Cluster, Make, clean_environment, skip_with_open_mpi_5
from tests.process.bench import executable

WHERE = 'echo "rank $OMPI_COMM_WORLD_RANK node $NODE"'


def placed(cluster: Cluster) -> list[tuple[int, int]]:
    return sorted(
        (int(rank), int(node))
        for rank, node in re.findall(r"^rank (\d+) node (\d+)$", cluster.out(0), re.M)
    )


@pytest.mark.control("a dead login or daemon of mpirun is named at once")
@pytest.mark.control("no rank starts until every node has answered; missing nodes are named")
def test_ranks_land_on_every_node(cluster: Make) -> None:
    job = cluster(3)
    job.start_all("sh", "-c", WHERE)
    assert job.ends() == {0: 0, 1: 0, 2: 0}, job.both()
    assert placed(job) == [(0, 0), (1, 0), (2, 1), (3, 1), (4, 2), (5, 2)]
    assert "6 ranks on 3 nodes: worker-0 (node-0) 0-1, worker-1 (node-1) 2-3, " in job.err(0)
    assert job.survivors() == []
    left = {path.name for path in job.folder.iterdir() if path.is_dir()}
    assert left == {"n0-ranks", "n1-ranks", "n2-ranks"}, "what `entrypoint rerun` starts again"


DUMP = """
import json, os, sys
rank = os.environ["OMPI_COMM_WORLD_RANK"]
environment = {name.decode("latin1"): value.decode("latin1") for name, value in os.environb.items()}
arguments = [os.fsencode(word).decode("latin1") for word in sys.argv[2:]]
with open(os.path.join(sys.argv[1], "rank-" + rank), "w") as file:
    json.dump({"env": environment, "argv": arguments, "cwd": os.getcwd()}, file)
"""

HOSTILE = {
    "SPACES": "  two  words ",
    "QUOTES": """it's "so" `x` \\ """,
    "DOLLAR": "$HOME ${PATH} $(id) $$",
    "SEMICOLON": "a; b && c | d > e",
    "NEWLINE": "one\ntwo\n\n three\n",
    "BASE64": "c2VjcmV0Cg==",
    "JSON": '[{"url": "obs://b/k", "n": 1, "t": "a b"}]',
    "JINJA": "{{ x }} {% y %}",
    "UNICODE": "\u5b57 \U0001f600 \udcff",  # the last is a byte that is no UTF-8
    "LONG": "x" * 100_000,
    "EMPTY": "",
    "STAR": "* ? [a-z] ~ !",
    "-odd.name%": "kept too",
    "UID": "4711",
}
ARGUMENTS = [
    "--a b", "it's", '"', "$HOME", ";", "a\nb", "x=", '{"k": [1, "v w"]}', "", *split("- -- -x *"),
    "y" * 50_000,
]  # fmt: skip


@pytest.mark.promise("every rank has its own node's environment, byte for byte")
def test_every_byte_of_every_value_reaches_every_rank_and_each_sees_its_own_node(
    cluster: Make,
) -> None:
    job = cluster(2)
    (job.folder / "dump.py").write_text(DUMP)
    spec = job.folder / "job.yaml"
    spec.write_text(
        json.dumps({"env": {"FROM_SPEC": 'it\'s "$HOME";\nline two =', "ALSO": "{{ x }}"}})
    )
    command = [sys.executable, "dump.py", str(job.folder), *ARGUMENTS]
    for rank in (1, 0):
        own = {
            **HOSTILE,
            "TMPDIR": f"/tmp/of-node-{rank}",
            "MA_CURRENT_IP": f"10.0.0.{rank}",
            "VC_TASK_INDEX": str(rank),
            "ONLY_HERE": f"node {rank}",
        }
        # The spec lies on worker-0 alone: its env has to travel.
        own |= {"ENTRYPOINT_SPEC": str(spec)} if rank == 0 else {}
        job.start(rank, *command, env=own)
    assert job.ends() == {0: 0, 1: 0}, job.both()
    for rank in range(4):
        seen = json.loads((job.folder / f"rank-{rank}").read_text())
        node = rank // 2
        for name, value in HOSTILE.items():
            assert seen["env"][name] == os.fsencode(value).decode("latin1"), name
        assert seen["argv"] == [os.fsencode(word).decode("latin1") for word in ARGUMENTS]
        assert seen["env"]["MA_CURRENT_IP"] == f"10.0.0.{node}"
        assert seen["env"]["VC_TASK_INDEX"] == str(node)
        assert seen["env"]["ONLY_HERE"] == f"node {node}"
        # and not that of mpirun and its daemons
        assert seen["env"]["TMPDIR"] == f"/tmp/of-node-{node}"
        assert seen["env"]["FROM_SPEC"] == 'it\'s "$HOME";\nline two ='
        assert seen["env"]["ALSO"] == "{{ x }}"
        assert seen["env"]["OMPI_COMM_WORLD_SIZE"] == "4"
        assert seen["cwd"] == str(job.folder)
        assert SECRET not in json.dumps(seen)


def test_what_dash_x_sets_by_value_wins_and_what_it_forwards_does_not(cluster: Make) -> None:
    """Nor does a rank get a HOME that its node has not, as sshd gives one to its sessions; and
    torch's words come from each node."""
    skip_with_open_mpi_5("it does not start without a HOME")
    job = cluster(2, slots=1)
    words = "$RANK $WORLD_SIZE $LOCAL_RANK $NODE_RANK $MASTER_ADDR"
    show = f'echo "node $NODE: $SET $FORWARDED ${{HOME-none}} {words} $NCCL_DEBUG"'
    gone = {"HOME": "(unset)", "SET": "own"}
    job.start(1, "sh", "-c", show, env={**gone, "FORWARDED": "own1", "NCCL_DEBUG": "WARN"})
    leader = {"FORWARDED": "own0", "OPENMPI_X_ARGS": "-x SET=asked -x FORWARDED"}
    job.start(0, "sh", "-c", show, env={**gone, **leader})
    assert job.ends() == {0: 0, 1: 0}, job.both()
    assert sorted(job.out(0).splitlines()) == [
        "node 0: asked own0 none 0 2 0 0 127.0.0.2 ",
        "node 1: asked own1 none 1 2 0 1 127.0.0.2 WARN",
    ]


def _run_mpi(job: Cluster, *program: str, **more: str) -> None:
    """Start the rendered run_mpi.sh on two nodes, with what ModelArts sets."""
    script = f'exec {sys.executable} -m entrypoint "$@"'
    command = executable(job.folder / "bin/entrypoint", script)
    words = [command, "render", "--out", job.folder]
    subprocess.run(words, env=clean_environment(), check=True, capture_output=True)
    unset = split("ENTRYPOINT_NODE_RANK ENTRYPOINT_SLOTS ENTRYPOINT_SSH_PORT")
    for rank in (1, 0):
        # Only what ModelArts sets, and the secret: names come from no DNS here, so the hosts are
        # addresses.
        env = {
            **dict.fromkeys(unset, "(unset)"),
            "PATH": f"{command.parent}:{os.environ['PATH']}",
            "MA_JOB_DIR": "/home/ma-user/modelarts/user-job-dir",
            "MA_NUM_HOSTS": "2",
            "MA_NUM_GPUS": "2",
            "VC_WORKER_HOSTS": "127.0.0.2,127.0.0.3",
            "VC_TASK_INDEX": str(rank),
            "MY_SSHD_PORT": str(job.port),
            # two nodes on one machine cannot both listen on every address
            "ENTRYPOINT_HOSTS": "127.0.0.2=127.0.0.2,127.0.0.3=127.0.0.3",
            **more,
        }
        job.start(rank, env=env, argv=("bash", "run_mpi.sh", *program))


def test_run_mpi_sh_by_hand_boots_the_whole_job(cluster: Make) -> None:
    job = cluster(2)
    _run_mpi(job, "sh", "-c", WHERE)
    assert job.ends() == {0: 0, 1: 0}, job.both()
    assert placed(job) == [(0, 0), (1, 0), (2, 1), (3, 1)]


@pytest.mark.parametrize("status", [0, 7])
def test_each_line_of_the_documents_script_has_its_line_here(cluster: Make, status: int) -> None:
    """Operators look for them: the page has each, and ours is in the log, the last one with the
    time and status of the exit."""
    page = (TREE / "docs/reference/mpirun.md").read_text()
    table = page.partition("### Lines in the log")[2].partition("\n#")[0]
    rows = [re.split(r" (?<!\\)\| ", row) for row in table.splitlines() if row.startswith("| `")]
    original = (TREE / "tests/samples/modelarts/run_mpi.sh").read_text()
    for line in re.findall(r"(?:echo|printf) \"(\[run_mpi\] [^$:,`\"]+)", original):
        assert any(line in row[0] for row in rows), line
    job = cluster(2)
    ends = f"[ $OMPI_COMM_WORLD_RANK != 3 ] || exit {status}"
    _run_mpi(job, "sh", "-c", ends, ENTRYPOINT_LOGS_TIMESTAMPS="utc")
    assert job.ends() == {0: status, 1: status}, job.both()
    ours = [span for row in rows for span in re.findall("`([^`]*…[^`]*)`", row[1])]
    assert len(ours) > 4
    for each in ours:
        pattern = re.escape(each.replace(r"\|", "|")).replace("…", ".+")
        is_here = {"EP600": status != 0, "done:": status == 0}.get(each.split()[0], True)
        assert bool(re.search(pattern, job.err(0))) == is_here, f"{each}\n{job.both()}"
    last = job.err(0).splitlines()[-1]
    end = r"done: .+" if status == 0 else r"EP600 .+; exit 7"
    assert re.fullmatch(rf"\d{{4}}-\d\d-\d\dT[\d:.]+Z \[entrypoint worker-0\] {end}", last)


@pytest.mark.promise(
    "mpirun in an MPIJob takes its nodes from the job, not from Kubeflow",
    control="where the agent does not know `-o`, its value is taken for the host",
)
def test_mpirun_in_an_mpijob_takes_its_nodes_from_us(cluster: Make, tmp_path: Path) -> None:
    """Kubeflow's operator has a hostfile, and options for an ssh, in the launcher's variables."""
    nodes = cluster(2)
    theirs = tmp_path / "hostfile"
    theirs.write_text("job-launcher.job.team.svc slots=2\njob-worker-0.job.team.svc slots=2\n")
    own = {
        "OMPI_MCA_orte_default_hostfile": str(theirs),
        "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
        "OMPI_MCA_plm_rsh_args": "-o ConnectionAttempts=10",
        "OMPI_MCA_orte_set_default_slots": "2",
    }
    for rank in (1, 0):
        nodes.start(rank, "sh", "-c", "echo $NODE $RANK/$WORLD_SIZE", env={} if rank else own)
    assert nodes.ends() == {0: 0, 1: 0}
    assert sorted(nodes.out().splitlines()) == ["0 0/4", "0 1/4", "1 2/4", "1 3/4"]


@pytest.mark.promise(
    "mpirun in a Slurm step takes its nodes from the job, not from Slurm",
    control="without run_mpi.sh's `unset`, mpirun calls srun",
)
def test_mpirun_in_a_slurm_step_takes_its_nodes_from_us(cluster: Make) -> None:
    """By itself, mpirun would take nodes and slots from Slurm's variables, and start its daemons by
    srun. And a RANK that a platform sets is no rank's own."""
    nodes = cluster(2)
    step = {
        **dict.fromkeys(split("SLURM_JOB_ID SLURM_JOBID"), "7"),
        **dict.fromkeys(split("SLURM_JOB_NODELIST SLURM_NODELIST SLURM_STEP_NODELIST"), "n[1-2]"),
        **dict.fromkeys(split("SLURM_STEP_NUM_NODES SLURM_NTASKS SLURM_NNODES WORLD_SIZE"), "2"),
        "SLURM_STEP_ID": "0",
        "SLURM_TASKS_PER_NODE": "1(x2)",
    }
    show = "echo $NODE $SLURM_JOB_ID $SLURM_NODEID $RANK/$WORLD_SIZE"
    for rank in (1, 0):
        own = {"SLURM_NODEID": str(rank), "RANK": str(rank)}
        nodes.start(rank, "sh", "-c", show, env=step | own)
    assert nodes.ends() == {0: 0, 1: 0}
    assert sorted(nodes.out().splitlines()) == ["0 7 0 0/4", "0 7 0 1/4", "1 7 1 2/4", "1 7 1 3/4"]


@pytest.mark.parametrize(("count", "options"), [(1, ""), (2, ""), (2, "-mca plm rsh")])
def test_an_image_that_keeps_mpirun_on_its_own_node(
    cluster: Make, count: int, options: str
) -> None:
    """Some set this for programs that are started without mpirun, such as an image for one GPU. Its
    own message would be `All nodes which are allocated for this job are already filled`."""
    nodes = cluster(count)
    env = {"OMPI_MCA_plm": "isolated", "OPENMPI_EXTRA_ARGS": options}
    for rank in reversed(range(count)):
        nodes.start(rank, "sh", "-c", "echo $NODE $OMPI_MCA_plm", env=env)
    assert nodes.ends() == dict.fromkeys(range(count), 0)
    assert sorted(nodes.out().splitlines()) == [
        f"{node} isolated" for node in range(count) for _ in range(2)
    ]


def test_mpirun_makes_no_login_of_its_own(cluster: Make) -> None:
    """An ssh client that leaves a trace is never run; control: by the setting for it, a job itself
    may run it."""
    job = cluster(2, slots=1)
    trace = job.folder / "trace"
    script = f'echo "$*" >>{trace}\nPATH={os.environ["PATH"]} exec ssh "$@"'
    client = executable(job.folder / "bin/ssh", script)
    path = {"PATH": f"{client.parent}:{os.environ['PATH']}"}
    job.start_all("echo", "up", env=path)
    assert job.ends() == {0: 0, 1: 0}, job.both()
    assert not trace.exists(), trace.read_text()
    again = cluster(2, slots=1)
    login = '[ "$RANK" = 1 ] || sh "$ENTRYPOINT_RUN_DIR/ssh" node-1 "echo in as \\$(id -u)"'
    again.start_all("sh", "-c", login, env={**path, "ENTRYPOINT_SSH_CLIENT": "files"})
    assert again.ends() == {0: 0, 1: 0}, again.both()
    assert again.out(0) == f"in as {os.geteuid()}\n"
    assert "node-1" in trace.read_text()
