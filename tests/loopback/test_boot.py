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

from tests.cluster import SECRET, Cluster, Make, clean_environment, until

WHERE = 'echo "rank $OMPI_COMM_WORLD_RANK node $NODE"'


def placed(cluster: Cluster) -> list[tuple[int, int]]:
    return sorted(
        (int(rank), int(node))
        for rank, node in re.findall(r"^rank (\d+) node (\d+)$", cluster.out(0), re.M)
    )


@pytest.mark.control("a dead login or daemon of mpirun is named at once")
@pytest.mark.control("no rank starts until every node has answered; missing nodes are named")
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0)])
def test_ranks_land_on_every_node_whoever_starts_first(
    cluster: Make, order: tuple[int, ...]
) -> None:
    job = cluster(3)
    for rank in order:
        job.start(rank, "sh", "-c", WHERE)
    assert job.ends() == {0: 0, 1: 0, 2: 0}, job.both()
    assert placed(job) == [(0, 0), (1, 0), (2, 1), (3, 1), (4, 2), (5, 2)]
    assert "6 ranks on 3 nodes: worker-0 (node-0) 0-1, worker-1 (node-1) 2-3, " in job.err(0)
    assert job.survivors() == []
    assert [path.name for path in job.folder.iterdir() if path.is_dir()] == []


def test_a_second_start_in_the_same_run_directories(cluster: Make) -> None:
    job = cluster(2)
    for _ in range(2):
        job.processes.clear()
        job.ended_at.clear()
        job.start_all("sh", "-c", WHERE)
        assert job.ends() == {0: 0, 1: 0}, job.both()
        assert placed(job) == [(0, 0), (1, 0), (2, 1), (3, 1)]


def test_unequal_slots_are_what_each_node_says(cluster: Make) -> None:
    job = cluster(2)
    job.start(1, "sh", "-c", WHERE, env={"ENTRYPOINT_SLOTS": "3"})
    job.start(0, "sh", "-c", WHERE, env={"ENTRYPOINT_SLOTS": "1"})
    assert job.ends() == {0: 0, 1: 0}, job.both()
    assert placed(job) == [(0, 0), (1, 1), (2, 1), (3, 1)]


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
    "--a b",
    "it's",
    '"',
    "$HOME",
    ";",
    "a\nb",
    "x=",
    '{"k": [1, "v w"]}',
    "",
    *split("- -- -x *"),
    "y" * 50_000,
]


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
    job = cluster(2, slots=1)
    show = 'echo "node $NODE: $SET $FORWARDED $NCCL_DEBUG"'
    job.start(1, "sh", "-c", show, env={"SET": "own", "FORWARDED": "own1", "NCCL_DEBUG": "WARN"})
    leader = {"SET": "own", "FORWARDED": "own0", "OPENMPI_X_ARGS": "-x SET=asked -x FORWARDED"}
    job.start(0, "sh", "-c", show, env=leader)
    assert job.ends() == {0: 0, 1: 0}, job.both()
    assert sorted(job.out(0).splitlines()) == ["node 0: asked own0 ", "node 1: asked own1 WARN"]


def test_a_device_that_one_node_has_not_ends_all_before_ranks_start(cluster: Make) -> None:
    job = cluster(2)
    for rank in (1, 0):
        job.start(rank, "echo", "ran", env={"ENTRYPOINT_DEVICE": "nvidia"} if rank else {})
    assert job.ends() == {0: 78, 1: 78}, job.both()
    what = "EP400 device nvidia was asked for and is not in this container (env ENTRYPOINT_DEVICE)"
    assert all(what in job.err(rank).splitlines()[-1] for rank in range(2)), job.both()
    assert "ran" not in job.out(0)


@pytest.mark.promise("`plan` says what `run` does")
def test_plan_is_what_run_does(cluster: Make) -> None:
    job = cluster(2)
    (job.folder / "go").unlink(missing_ok=True)
    command = ["sh", "-c", "echo up; while ! [ -e go ]; do sleep 0.1; done"]
    argv = [sys.executable, *split("-m entrypoint plan --launcher mpirun --json --"), *command]
    planned = [
        json.loads(
            subprocess.run(
                argv, env=job.environment(rank), cwd=job.folder, capture_output=True, check=True
            ).stdout
        )
        for rank in range(2)
    ]
    assert not job.run_dir(0).exists(), "plan wrote something"
    job.start_all(*command)
    until(lambda: job.out(0).count("up") == 4, 60, "four ranks")
    for rank, plan in enumerate(planned):
        written = {path.name: path for path in job.run_dir(rank).iterdir()}
        for file in plan["files"]:
            path = written.pop(file["name"])
            assert f"{path.stat().st_mode & 0o7777:04o}" == file["mode"], file["name"]
            if "text" in file:
                # What only the roll call can know is the address of a peer; here the user fixed it.
                assert path.read_text() == file["text"], file["name"]
        expected = {
            "lock",
            "tmp",
            "ranks",
            "program-ranks",
            "last-output",
            "attend",
            "attend.sessions",
            "attend.end",
            "stacks",
        }
        # mpirun knows neither node by the name of this machine, so it wants a daemon on each
        if rank == 0:
            expected |= {"line", "started.txt", "agents", "agent.node-0", "agent.node-1"}
            expected |= {"agent.node-0.command", "agent.node-1.command"}
        assert set(written) == expected, "run wrote what plan did not name"
    launcher = next(
        Path(f"/proc/{child}")
        for child in Path(f"/proc/{job.processes[0].pid}/task/{job.processes[0].pid}/children")
        .read_text()
        .split()
        if Path(f"/proc/{child}/cmdline").read_bytes().startswith(b"mpirun\0")
    )
    environment = dict(
        entry.split("=", 1)
        for entry in (launcher / "environ")
        .read_bytes()
        .decode("utf-8", "surrogateescape")
        .split("\0")
        if entry
    )
    for variable in planned[0]["env"] + planned[0]["programs"][0]["env"]:
        assert environment[variable["name"]] == variable["value"], variable["name"]
    assert environment["TMPDIR"] == f"{job.run_dir(0)}/tmp", (
        "two jobs on a machine share a session folder"
    )
    line = (launcher / "cmdline").read_bytes().decode().split("\0")
    assert line[-len(command) - 1 : -1] == command
    assert planned[1]["programs"] == []
    (job.folder / "go").touch()
    assert job.ends() == {0: 0, 1: 0}, job.both()


def render(job: Cluster, *flags: str) -> str:
    """Write the scripts into the job's folder; return a PATH with our command."""
    command = job.folder / "bin/entrypoint"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m entrypoint "$@"\n')
    command.chmod(0o755)
    words = [command, "render", "--out", job.folder, *flags]
    subprocess.run(words, env=clean_environment(), check=True, capture_output=True)
    return f"{command.parent}:{os.environ['PATH']}"


def test_run_mpi_sh_by_hand_boots_the_whole_job(cluster: Make) -> None:
    job = cluster(2)
    path = render(job)
    for rank in (1, 0):
        # Only what ModelArts sets, and the secret: names come from no DNS here, so the hosts are
        # addresses.
        env = {
            **dict.fromkeys(
                split("ENTRYPOINT_HOSTS ENTRYPOINT_NODE_RANK ENTRYPOINT_SLOTS ENTRYPOINT_SSH_PORT"),
                "(unset)",
            ),
            "PATH": path,
            "MA_JOB_DIR": "/home/ma-user/modelarts/user-job-dir",
            "MA_NUM_HOSTS": "2",
            "MA_NUM_GPUS": "2",
            "VC_WORKER_HOSTS": "127.0.0.2,127.0.0.3",
            "VC_TASK_INDEX": str(rank),
            "MY_SSHD_PORT": str(job.port),
            # two nodes on one machine cannot both listen on every address
            "ENTRYPOINT_HOSTS": "127.0.0.2=127.0.0.2,127.0.0.3=127.0.0.3",
        }
        job.start(rank, env=env, argv=("bash", "run_mpi.sh", "sh", "-c", WHERE))
    assert job.ends() == {0: 0, 1: 0}, job.both()
    assert placed(job) == [(0, 0), (1, 0), (2, 1), (3, 1)]


def test_run_mpi_sh_by_hand_keeps_what_it_was_rendered_with(cluster: Make) -> None:
    job = cluster(2)
    path = render(job, "--hosts", job.hosts, "--slots", "1", "--ssh-port", str(job.port))
    for rank in (1, 0):
        gone = dict.fromkeys(
            ["ENTRYPOINT_HOSTS", "ENTRYPOINT_SLOTS", "ENTRYPOINT_SSH_PORT"], "(unset)"
        )
        # one node's variable wins over what was rendered
        own = {"MY_MPI_SLOTS": "2"} if rank == 1 else {}
        env = {**gone, **own, "PATH": path}
        job.start(rank, env=env, argv=("bash", "run_mpi.sh", "sh", "-c", WHERE))
    assert job.ends() == {0: 0, 1: 0}, job.both()
    assert placed(job) == [(0, 0), (1, 1), (2, 1)]


def test_a_rank_without_home_has_none_on_any_node(cluster: Make) -> None:
    """sshd gives its sessions one, which a rank of worker-0 would not have; and torch's words come
    from each node."""
    job = cluster(2, slots=1)
    job.start_all(
        "sh",
        "-c",
        'echo "${HOME-none} $RANK $WORLD_SIZE $LOCAL_RANK $NODE_RANK $MASTER_ADDR"',
        env={"HOME": "(unset)"},
    )
    assert job.ends() == {0: 0, 1: 0}, job.both()
    assert sorted(job.out(0).splitlines()) == ["none 0 2 0 0 127.0.0.2", "none 1 2 0 1 127.0.0.2"]


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
    }
    own |= {
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
        "SLURM_JOB_ID": "7",
        "SLURM_JOBID": "7",
        "SLURM_STEP_ID": "0",
        "SLURM_JOB_NODELIST": "n[1-2]",
    }
    step |= {
        "SLURM_NODELIST": "n[1-2]",
        "SLURM_STEP_NODELIST": "n[1-2]",
        "SLURM_STEP_NUM_NODES": "2",
    }
    for rank in (1, 0):
        own = {
            "SLURM_NODEID": str(rank),
            "SLURM_TASKS_PER_NODE": "1(x2)",
            "SLURM_NTASKS": "2",
            "SLURM_NNODES": "2",
        }
        own |= {"RANK": str(rank), "WORLD_SIZE": "2"}
        nodes.start(
            rank,
            "sh",
            "-c",
            "echo $NODE $SLURM_JOB_ID $SLURM_NODEID $RANK/$WORLD_SIZE",
            env=step | own,
        )
    assert nodes.ends() == {0: 0, 1: 0}
    assert sorted(nodes.out().splitlines()) == ["0 7 0 0/4", "0 7 0 1/4", "1 7 1 2/4", "1 7 1 3/4"]


@pytest.mark.parametrize("options", ["", "-mca plm rsh"])
@pytest.mark.parametrize("count", [1, 2])
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


@pytest.mark.promise("ma-pre-start.sh runs once on each node, before ranks, which get its exports")
@pytest.mark.parametrize("fails", [False, True])
def test_each_node_runs_its_own_pre_start_script(cluster: Make, fails: bool) -> None:
    """As on ModelArts: once, and its exports are its own node's. One that fails ends all nodes with
    its status."""
    job = cluster(2)
    for rank in reversed(range(2)):
        code = job.folder / f"jobs-{rank}" / "code"
        code.mkdir(parents=True)
        end = f"exit {7 * rank}" if fails else ""
        (code / "ma-pre-start.sh").write_text(
            f"echo ran >>ran; export FROM_SCRIPT=node-{rank}; {end}\n"
        )
        job.start(
            rank,
            "sh",
            "-c",
            'echo "rank $RANK has $FROM_SCRIPT"',
            env={"MA_JOB_DIR": str(code.parent)},
        )
    status = 7 if fails else 0
    assert job.ends() == {0: status, 1: status}, job.both()
    assert [(job.folder / f"jobs-{rank}/ran").read_text() for rank in range(2)] == [
        "ran\n",
        "ran\n",
    ]
    lines = [] if fails else [f"rank {rank} has node-{rank // 2}" for rank in range(4)]
    assert sorted(job.out(0).splitlines()) == lines
    assert (
        "start hook ma-pre-start.sh on worker-1 (node-1) exited with 7" in job.err(0)
    ) is fails, job.both()
