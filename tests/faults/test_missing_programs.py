"""Rows 13 and 14: something that is needed is not there on one node, and ranks that land on fewer
nodes than asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.faultjob import BOTH, HOSTS, TRAINS, UP, Job, Make

# As root, break something; then go on as the image does.
BREAK = (
    'eval "$0"; export HOME=/home/ma-user; exec setpriv --reuid 1000 --regid 100 --clear-groups'
    ' /usr/bin/tini -s -- /usr/local/bin/image-entry "$@"'
)
HOW = {"missing": ("rm {0}", 127), "not executable": ("rm {0}; : >{0}", 126)}


def start_broken(job: Job, host: str, break_it: str, *command: str) -> None:
    options = ("--user", "0", "--entrypoint", "sh")
    job.start("-c", BREAK, break_it, *command, hosts=[host], options={host: options})
    job.start(*command, hosts=[each for each in HOSTS if each != host])


def all_name(job: Job, host: str, what: str, status: int) -> None:
    assert job.ends(90) == dict.fromkeys(HOSTS, status), job.logs()
    for each in HOSTS:
        line = job.last_line(each).partition("] ")[2]
        assert host in line, job.logs()
        assert line.endswith(f"; exit {status}"), job.logs()
    assert what in job.log("worker-0"), job.logs()


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize(("host", "what"), [("worker-0", "mpirun"), ("worker-2", "orted")])
@pytest.mark.fault("13", "{what} is {how} on {host}", launcher="mpirun")
def test_open_mpi_is_broken(make: Make, host: str, what: str, how: str) -> None:
    job = make("mpirun")
    script, status = HOW[how]
    start_broken(job, host, script.format(f"/usr/bin/{what}"), "sh", "-c", TRAINS)
    all_name(job, host, what, status)
    assert "is up" not in job.logs(), job.logs()


@BOTH
@pytest.mark.parametrize("how", HOW)
@pytest.mark.fault("13", "python is {how} on worker-2")
def test_python_is_broken(make: Make, launcher: str, how: str) -> None:
    job = make(launcher)
    script, status = HOW[how]
    start_broken(
        job,
        "worker-2",
        script.format("/usr/bin/python"),
        "python",
        "-c",
        "import time; time.sleep(1000)",
    )
    all_name(job, "worker-2", "python", status)


@BOTH
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("program", ["train.sh", "train.py"])
@pytest.mark.fault("13", "{program} is {how} on worker-2")
def test_the_script_is_broken(
    make: Make, launcher: str, program: str, how: str, folder: Path
) -> None:
    job = make(launcher)
    text = (
        f"#!/bin/sh\n{TRAINS}\n"
        if program == "train.sh"
        else "#!/usr/bin/python\nimport time\ntime.sleep(1000)\n"
    )
    (folder / program).write_text(text)
    (folder / program).chmod(0o755)
    copy = "mkdir /tmp/job && cp /mounted/* /tmp/job && chmod 755 /tmp/job && cd /tmp/job"
    script, status = HOW[how]
    # Of a script that python reads, what counts is that it can be read.
    if how == "not executable":
        script = "chmod 000 {0}" if program == "train.py" else "chmod 644 {0}"
    break_it = script.format(f"/tmp/job/{program}")
    command = ("python", program) if program == "train.py" else (f"./{program}",)
    mount = ("-v", f"{folder}:/mounted:ro", "--user", "0", "--entrypoint", "sh")
    for host in HOSTS:
        breaks = f"{copy}; {break_it}" if host == "worker-2" else copy
        job.start("-c", BREAK, breaks, *command, hosts=[host], options={host: mount})
    all_name(job, "worker-2", program, status)


# -- row 14


@pytest.mark.promise("ranks run where they should")
@pytest.mark.parametrize(
    ("extra", "what", "found"),
    [
        ("--host worker-0:4", "no rank", "4 ranks on 1 node: worker-0 0-3"),
        (
            "--host worker-0:2,worker-1:2",
            "worker-1 reports 2 ranks and has 1 slot: none",
            "4 ranks on 2 nodes: worker-0 0-1, worker-1 2-3",
        ),
    ],
    ids=["one", "two"],
)
@pytest.mark.fault("14", "mpirun is told: {extra}", launcher="mpirun")
def test_ranks_on_fewer_nodes(make: Make, extra: str, what: str, found: str) -> None:
    job = make("mpirun")
    job.start("sh", "-c", TRAINS, env={"OPENMPI_EXTRA_ARGS": extra})
    assert job.ends() == dict.fromkeys(HOSTS, 78), job.logs()
    empty = [host for host in HOSTS if host not in extra]
    for host in HOSTS:
        assert f"EP604 {what} runs on {', '.join(empty)} | {found} | " in job.last_line(host), (
            job.logs()
        )


@pytest.mark.control("ranks run where they should")
@pytest.mark.fault("14", "the control: the user says how many ranks", launcher="mpirun")
def test_ranks_where_the_user_wants_them(make: Make) -> None:
    job = make("mpirun")
    job.start(
        "sh",
        "-c",
        f"{UP}echo done",
        env={"OPENMPI_EXTRA_ARGS": "--host worker-0:2", "OPENMPI_NP": "2"},
    )
    assert job.ends() == dict.fromkeys(HOSTS, 0), job.logs()
