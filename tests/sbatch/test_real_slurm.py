"""What `deploy slurm` renders, submitted by the real sbatch to a real Slurm of two nodes: each test
is a line."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.containers import container
from tests.rows import agrees, expected, places
from tests.sbatch.realslurm import IMAGE, NODES, Job, Slurm
from tests.waits import until

__all__ = ["IMAGE"]  # which these tests need
pytestmark = pytest.mark.timeout(400)

SPEC = """\
name: demo
launcher: {launcher}
slots: 2
command: [{command}]
env: {{OMP_NUM_THREADS: "1"}}
timeouts: {{peers: 60, grace: 10, heartbeat: 3{timeouts}}}
"""
# It trains until it is told to stop, and then needs three seconds to save. Started again, it goes
# on and ends.
TRAIN = """\
import os, signal, socket, sys, time
rank, told = os.environ["RANK"], []
assert os.environ.get("HOSTNAME") in (None, socket.gethostname()), "HOSTNAME of another node"
def say(what):
    sys.stdout.write(f"rank {rank} {what}\\n")
    sys.stdout.flush()
signal.signal(signal.SIGUSR1, lambda *_: say("heard USR1"))
signal.signal(signal.SIGTERM, lambda *_: told.append(1))
if os.path.exists(f"step-{rank}"):
    say("goes on from its checkpoint")
    sys.exit(0)
open(f"step-{rank}", "w").close()
where = f"{socket.gethostname()}, local rank {os.environ['LOCAL_RANK']}, pid {os.getpid()}"
say(f"of {os.environ['WORLD_SIZE']} on {where}")
while not told:
    time.sleep(0.05)
time.sleep(3)
open(f"saved-{rank}", "w").close()
say("saved")
"""
ALL = 4  # ranks
SAVED = [f"saved-{rank}" for rank in range(ALL)]
Submit = Callable[..., Job]
Seen = Callable[[str], None]


@pytest.fixture(scope="session")
def slurm() -> Iterator[Slurm]:
    made = Slurm()
    try:
        made.start()
        yield made
    finally:
        made.close()


@pytest.fixture
def submit(slurm: Slurm) -> Iterator[Submit]:
    """Submit a job, `train.py` where it is no example. Ends with the test."""
    slurm.idle()
    jobs: list[Job] = []

    def make(
        *options: str,
        launcher: str = "mpirun",
        command: str = "python, train.py",
        fields: str = "",
        timeouts: str = "",
        train: str = TRAIN,
        **more: str,
    ) -> Job:
        spec = SPEC.format(launcher=launcher, command=command, timeouts=timeouts) + fields
        files = {} if more else {"job.yaml": spec, "train.py": train}
        nodes = () if more else ("--nodes", "2")
        jobs.append(slurm.submit(*nodes, *options, files=files, **more))
        return jobs[-1]

    yield make
    for job in jobs:
        print(job.log(), job.show(), sep="\n")  # pytest shows it where the test failed
        job.cancel("--full", "--signal=KILL", check=False)
        job.cancel(check=False)
    print(slurm.said())


@pytest.fixture
def seen(record_property: Callable[[str, object], None]) -> Seen:
    """For the table."""
    return lambda what: record_property("seen", what)


def trains(job: Job) -> None:
    """Wait until every rank does, each where it should."""
    job.says("local rank", ALL)
    assert places(job.log()) == expected(NODES)


@pytest.mark.promise(
    "a real Slurm runs, stops, requeues and limits jobs as the batch script says",
    control="which is not requeued",
)
@pytest.mark.slurm("1", "mpirun on 2 nodes, Open MPI and mpi4py")
def test_mpirun(submit: Submit, seen: Seen) -> None:
    job = submit("--", "python", "train.py", example="mpi", spec="containers.yaml")
    state, code = job.ends()
    log = job.log()
    assert (state, code) == ("COMPLETED", "0:0")
    assert places(log) == expected(NODES)
    agrees(log, "1e-10")
    seen(f"{state} {code}, ranks 0 1 on node-1, 2 3 on node-2")


@pytest.mark.promise("a real Slurm runs, stops, requeues and limits jobs as the batch script says")
@pytest.mark.slurm("2", "torchrun on 2 nodes, DDP")
def test_torchrun(submit: Submit, seen: Seen) -> None:
    job = submit(example="pytorch", spec="torchrun.yaml")
    state, code = job.ends()
    assert (state, code) == ("COMPLETED", "0:0")
    assert places(job.log()) == expected(NODES)
    agrees(job.log(), "1e-10")
    seen(f"{state} {code}, ranks 0 1 on node-1, 2 3 on node-2")


@pytest.mark.promise("a real Slurm runs, stops, requeues and limits jobs as the batch script says")
@pytest.mark.parametrize(
    ("how", "state", "launcher"),
    [("scancel", "CANCELLED", "torchrun"), ("scancel --full --signal=TERM", "FAILED", "mpirun")],
)
@pytest.mark.slurm("3", "{how}, {launcher}: every rank has the 3 s that it needs to save")
def test_ranks_have_their_grace(
    how: str, state: str, launcher: str, submit: Submit, seen: Seen
) -> None:
    job = submit(launcher=launcher)
    trains(job)
    job.cancel(*how.split()[1:])
    assert job.ends() == (state, "143:0")
    assert set(SAVED) <= set(job.files())
    assert job.show()["Restarts"] == "0"
    seen(f"{state} 143:0, {ALL} of {ALL} ranks saved")


@pytest.mark.control("a real Slurm runs, stops, requeues and limits jobs as the batch script says")
@pytest.mark.slurm("4", "rank 3 exits with 7, torchrun")
def test_the_failing_rank_s_status_is_the_job_s(submit: Submit, seen: Seen) -> None:
    fails = """sh, -c, 'test "$RANK" != 3 || exit 7; exec sleep 600'"""
    job = submit(launcher="torchrun", command=fails)
    state, code = job.ends()
    assert (state, code) == ("FAILED", "7:0")
    assert job.show()["Restarts"] == "0"
    seen(f"{state} {code}")


@pytest.mark.slurm("5", "node-2 is killed, and boots again")
def test_a_job_outlives_a_node(slurm: Slurm, submit: Submit, seen: Seen) -> None:
    job = submit()
    trains(job)
    slurm.kill(NODES[1])
    try:
        until(lambda: job.show()["Restarts"] == "1", "the job is requeued")
    finally:
        slurm.boot(NODES[1])
    goes_on(job)
    assert "cannot requeue" not in job.log()
    seen("requeued, then COMPLETED 0:0")


def goes_on(job: Job) -> None:
    """Wait for its good end, of its second start."""
    assert job.ends() == ("COMPLETED", "0:0")
    assert job.log().count(" goes on from its checkpoint") == ALL
    assert job.show()["Restarts"] == "1"


@pytest.mark.promise("a real Slurm runs, stops, requeues and limits jobs as the batch script says")
@pytest.mark.slurm("5", "a node stands still for longer than the heartbeat timeout")
def test_a_lost_node_requeues_the_job(slurm: Slurm, submit: Submit, seen: Seen) -> None:
    job = submit()
    trains(job)
    box = slurm.boxes[NODES[1]]
    container(box).pause()
    try:
        job.says(" is lost: ")
    finally:
        container(box).unpause()
    job.says("[entrypoint sbatch] requeued | status 75: machines or the network failed")
    goes_on(job)
    seen("75, scontrol requeue, then COMPLETED 0:0")


@pytest.mark.promise("a real Slurm runs, stops, requeues and limits jobs as the batch script says")
@pytest.mark.slurm("6", "scancel --signal=USR1: every rank hears it, once")
def test_a_user_s_signal_reaches_every_rank(submit: Submit, seen: Seen) -> None:
    job = submit()
    trains(job)
    job.cancel("--signal=USR1")
    job.says(" heard USR1", ALL)
    assert not job.is_over()
    job.cancel("--signal=TERM")
    assert job.ends() == ("FAILED", "143:0")
    assert job.log().count(" heard USR1") == ALL
    seen(f"{ALL} of {ALL} ranks, and the job went on")


@pytest.mark.promise("a real Slurm runs, stops, requeues and limits jobs as the batch script says")
@pytest.mark.parametrize(("timeouts", "status"), [("", 143), (", job: scheduler", 72)])
@pytest.mark.slurm("7", "time limit of 2 minutes{timeouts}: SIGTERM comes before it")
def test_the_time_limit_is_told_before_it_comes(
    timeouts: str, status: int, submit: Submit, seen: Seen
) -> None:
    job = submit("--time", "2", timeouts=timeouts)
    trains(job)
    assert job.ends() == ("FAILED", f"{status}:0")
    assert set(SAVED) <= set(job.files())
    ran = job.show()["RunTime"]
    assert ran < "00:02:00"
    seen(f"FAILED {status}:0 after {ran[3:]}, {ALL} of {ALL} ranks saved")


@pytest.mark.slurm("8", "two jobs share both nodes, each with its own --ssh-port")
def test_two_jobs_on_a_node(submit: Submit, seen: Seen) -> None:
    part = ("--resource", "cpu=1", "--resource", "memory=500M", "--ssh-port")
    jobs = [submit(*part, port) for port in ("40001", "40002")]
    for job in jobs:
        trains(job)
    assert [job.show()["JobState"] for job in jobs] == ["RUNNING"] * 2
    for job in jobs:
        job.cancel("--signal=TERM")
    assert [job.ends() for job in jobs] == [("FAILED", "143:0")] * 2
    seen("both ran at once")
