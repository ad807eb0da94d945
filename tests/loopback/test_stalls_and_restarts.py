"""What is done about a job that says nothing, about ranks that will not stop, and about a node that
was lost; and `entrypoint stacks`, which shows what ranks do."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster import RUN, Cluster, Make
from tests.command import captured
from tests.waits import until

STUCK = (
    "import time\ndef waits_for_nobody():\n    time.sleep(600)\nprint('up',"
    " flush=True)\nwaits_for_nobody()\n"
)
SILENT = {
    "ENTRYPOINT_STALL_MINUTES": "0.15",  # longer than ranks take to start on a busy machine
    "ENTRYPOINT_TIMEOUTS_HEARTBEAT": "3",
}


def up(job: Cluster, count: int) -> None:
    def all_up() -> bool:
        return sum(job.out(rank).count("up") for rank in range(job.nodes)) == count

    until(all_up, f"{count} ranks up")


@pytest.mark.promise("a job that prints nothing shows every rank's stack")
def test_a_silent_job_shows_every_rank_s_stack_and_ends_where_that_is_asked_for(
    cluster: Make,
) -> None:
    """No rank differs: it ends after five times the limit."""
    job = cluster(2, slots=1)
    stop = {"ENTRYPOINT_STALL_ACTION": "stop", "ENTRYPOINT_STALL_MINUTES": "0.05"}
    job.start_all(sys.executable, "-c", STUCK, env={**SILENT, **stop})
    assert job.ends() == {0: 75, 1: 75}, job.both()
    said = job.err(0)
    assert "all 2 ranks are in waits_for_nobody(), <string>:3: no rank differs" in said, job.both()
    assert "the job continues, since no rank differs; it ends after 15s" in said, job.both()
    assert re.search(r"EP610 no rank has printed anything for \d+(\.\d+)?s; ", said), job.both()
    assert "EP610 the job stalled: no rank has printed anything for" in job.err(1), job.both()


@pytest.mark.control("a job that prints nothing shows every rank's stack")
def test_a_job_that_prints_is_left_alone(cluster: Make) -> None:
    """The control: one rank of one node prints, the others are silent. No file's time counts: a
    file server's clock may be another, and this one's may jump."""
    job = cluster(2, slots=1)
    earlier = "touch -d '2 hours ago' $ENTRYPOINT_RUN_DIR/last-output"
    program = (
        f"[ $NODE = 1 ] || {{ {earlier}; exec sleep 9; }}; for i in $(seq 40); do echo $i;"
        f" {earlier}; sleep 0.2; done"
    )
    # mpirun's own start counts, too: more than three seconds on a busy machine.
    limit = {"ENTRYPOINT_STALL_MINUTES": "0.12", "ENTRYPOINT_STALL_ACTION": "stop"}
    job.start_all("sh", "-c", program, env={**SILENT, **limit})
    assert job.ends() == {0: 0, 1: 0}, job.both()
    assert "no rank has printed" not in job.err(0)


# Its first step and its save take longer than the limit of 10 s.
SLOW = """
sleep 14
echo step 1/
for part in 1 2 3 4 5 6 7; do echo weights >>"$OUT/model"; sleep 2; done
echo step 2/
"""


def slow(job: Cluster, **limits: str) -> int:
    """Return how often such a job has stalled."""
    (job.folder / "out").mkdir()
    stall = {"ENTRYPOINT_STALL_MINUTES": str(10 / 60), "ENTRYPOINT_STALL_LINE": "step {step}/"}
    job.start_all("sh", "-c", SLOW, env={**SILENT, **stall, **limits, "OUT": f"{job.folder}/out"})
    assert job.ends() == {0: 0, 1: 0}, job.both()
    return job.err(0).count("EP610")


@pytest.mark.promise("a checkpoint that grows is no stall")
@pytest.mark.promise("a first step within stall.first is no stall")
def test_a_slow_first_step_and_a_slow_save_are_no_stall(cluster: Make) -> None:
    job = cluster(2, slots=1)
    path = f"{job.folder}/out"
    assert slow(job, ENTRYPOINT_STALL_FIRST="10", ENTRYPOINT_RESTARTS_PROGRESS=path) == 0, (
        job.both()
    )


@pytest.mark.control("a checkpoint that grows is no stall")
@pytest.mark.control("a first step within stall.first is no stall")
def test_both_are_stalls_where_nothing_says_otherwise(cluster: Make) -> None:
    job = cluster(2, slots=1)
    assert slow(job) == 2, job.both()


# Says which process holds the leader's session on node 1. The first attempt does harm, and fails.
SESSION = """
[ "$ENTRYPOINT_NODE_RANK" = 1 ] || exec sleep 600
session=$(pgrep -f "^sh $ENTRYPOINT_RUN_DIR/attend")
echo "session $session"
[ "$ENTRYPOINT_ATTEMPT" = 1 ] || exit 3
eval "$HARM"
exit 1
"""


@pytest.mark.promise(
    "a restart needs no new login of a node that stays", control="what ends it, or what it needs"
)
@pytest.mark.parametrize(
    ("harm", "sessions"),
    [
        ("true", 1),
        ('kill -9 "$session"', 2),
        ('rm "$ENTRYPOINT_RUN_DIR/attend"', 2),
        ('rm -rf "$ENTRYPOINT_RUN_DIR"', 2),
    ],
)
def test_a_restart_stays_in_the_sessions_that_are_there(
    cluster: Make, harm: str, sessions: int
) -> None:
    job = cluster(2, slots=1)
    env = {"ENTRYPOINT_RESTARTS": "1", "ENTRYPOINT_RESTARTS_ON": "any", "HARM": harm}
    job.start_all("sh", "-c", SESSION, env=env, launcher="plain")
    assert job.ends() == {0: 3, 1: 3}, job.both()
    held = re.findall(r"^session (\d+)$", job.out(1), re.MULTILINE)
    assert len(held) == 2, job.both()
    assert len({*held}) == sessions, job.both()


# Saves a second after SIGTERM, if it is to.
SAVES = """
save() { mkdir step_70; head -c 9000 /dev/zero >x; sleep 1; mv x step_70/model; }
trap '[ "$SAVES" = no ] || save; exit 0' TERM
cd "$OUT"
echo up
while :; do sleep 0.1; done
"""


@pytest.mark.promise(
    "the end of an attempt says whether the program has saved after SIGTERM",
    control="a program that saves nothing",
)
@pytest.mark.parametrize("saves", ["yes", "no"])
def test_a_stopped_job_says_whether_it_has_saved(cluster: Make, saves: str) -> None:
    job = cluster(2, slots=1)
    out = job.folder / "out"
    out.mkdir()
    env = {"ENTRYPOINT_RESTARTS_PROGRESS": str(out), "OUT": str(out), "SAVES": saves}
    job.start_all("sh", "-c", f"[ $NODE = 1 ] && exec sleep 600; {SAVES}", env=env)
    up(job, 1)
    until(lambda: "2 ranks on 2 nodes" in job.err(0), "all: before, mpirun sends SIGTERM, too")
    job.signal(0, signal.SIGTERM)
    assert job.ends() == {0: 143, 1: 143}, job.both()
    nothing = "EP653 nothing was finished in .* within the grace of 600s | there is no checkpoint |"
    expected = r"saved step_70 [\d.]+m?s after SIGTERM" if saves == "yes" else nothing
    assert re.search(expected.replace("|", r"\|"), job.err(0)), job.both()
    for rank in range(2):
        record = json.loads(Path(f"{job.run_dir(rank)}-state.json").read_text())
        assert record["result"]["saved"]["name"] == ("step_70" if saves == "yes" else "")


@pytest.mark.promise("a stop gives every program SIGTERM, then the grace, then SIGKILL")
def test_ranks_that_use_up_their_grace_are_shown(cluster: Make) -> None:
    job = cluster(2, slots=1)
    stubborn = f"import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n{STUCK}"
    env = {"ENTRYPOINT_TIMEOUTS_GRACE": "1", "ENTRYPOINT_STALL_MINUTES": "60"}
    job.start_all(sys.executable, "-c", stubborn, env=env)
    up(job, 2)
    job.signal(1, signal.SIGTERM)
    assert job.ends() == {0: 143, 1: 143}, job.both()
    for rank in range(2):
        assert "EP615 not all programs stopped within the grace period of 1s" in job.err(rank), (
            job.both()
        )
        assert "waits_for_nobody" in job.err(rank), job.both()
    assert job.survivors() == []


@pytest.mark.control("restarts are counted once for all nodes, and only retriable ends restart")
def test_a_program_s_own_failure_is_not_tried_again(cluster: Make) -> None:
    job = cluster(2, slots=1)
    job.start_all("sh", "-c", "echo up; exit 7", env={"ENTRYPOINT_RESTARTS": "3"})
    assert job.ends() == {0: 7, 1: 7}, job.both()
    assert "attempt" not in job.err(0)


# Only the last node crashes: the others may end before they have said anything.
CRASH = """
echo "attempt $ENTRYPOINT_ATTEMPT $TORCHELASTIC_RESTART_COUNT"
[ "$NODE" = 1 ] || exec sleep 600
sleep 1
exit 3
"""


def crashing(
    job: Cluster, restarts: str, program: str, launcher: str = "plain", **env: str
) -> None:
    (job.folder / "job.yaml").write_text(f"restarts: {restarts}\nlogs: {{files: ranks}}\n")
    words = (*RUN, "--spec", str(job.folder / "job.yaml"), "--log-dir", str(job.folder / "logs"))
    for rank in range(job.nodes):
        argv = (*words, "--launcher", launcher, "--", "sh", "-c", program)
        job.start(rank, argv=argv, env=env)


def attempts(job: Cluster, rank: int) -> list[str]:
    return re.findall(r"attempt \d+ \d+", job.out(rank))


@pytest.mark.promise("restarts without progress end the job with 79, which nobody retries")
@pytest.mark.promise("ranks know the attempt, and each attempt has log files of its own")
def test_crashes_without_progress_end_at_the_third(cluster: Make) -> None:
    job = cluster(2, slots=1)
    crashing(job, "{most: 50, without_progress: 3, on: any}", CRASH, "mpirun")
    assert job.ends() == {0: 79, 1: 79}, job.both()
    reason = "EP640 no progress in the last 3 attempts | none ran for 10 min | the last one: EP600"
    for rank in range(2):
        assert reason in job.err(rank).splitlines()[-1], job.both()
    assert "attempt 2 of 51 is over (no progress in 2 of 3 attempts): EP600" in job.err(0)
    printed = sorted(attempts(job, 0) + attempts(job, 1))
    assert printed == sorted(["attempt 1 0", "attempt 2 1", "attempt 3 2"] * 2), job.both()
    ends = ["", "-attempt-2", "-attempt-3"]
    names = [f"job-worker-{rank}-rank-{rank}{end}.log" for rank in range(2) for end in ends]
    assert sorted(path.name for path in (job.folder / "logs").glob("*.log")) == sorted(names)
    record = json.loads(Path(f"{job.run_dir(0)}-state.json").read_text())
    assert (record["result"]["status"], record["result"]["attempts"]) == (79, 3)


@pytest.mark.control("restarts without progress end the job with 79, which nobody retries")
@pytest.mark.control("ranks know the attempt, and each attempt has log files of its own")
def test_crashes_with_a_checkpoint_go_on_up_to_the_most(cluster: Make) -> None:
    """Only worker-1 writes one, and in every second attempt."""
    job = cluster(2, slots=1)
    saves = f"[ $NODE = 1 ] && [ $((ENTRYPOINT_ATTEMPT % 2)) = 0 ] && date +%N >{job.folder}/ckpt/x"
    (job.folder / "ckpt").mkdir()
    most = f"{{most: 3, without_progress: 2, on: any, progress: {job.folder}/ckpt}}"
    crashing(job, most, f"{saves}\n{CRASH}")
    assert job.ends() == {0: 3, 1: 3}, job.both()
    assert len(attempts(job, 0)) == 4
    assert "EP640" not in job.err(0)


@pytest.mark.promise("ranks know the attempt, and each attempt has log files of its own")
def test_attempts_count_on_from_the_scheduler_s(cluster: Make) -> None:
    job = cluster(1, slots=1)
    program = CRASH.replace('"$NODE" = 1', '"$NODE" = 0')
    crashing(job, "{most: 1, on: any}", program, SLURM_RESTART_COUNT="2")
    assert job.ends() == {0: 3}, job.both()
    assert attempts(job, 0) == ["attempt 3 2", "attempt 4 3"]
    assert "attempt 3 of 4 is over" in job.err(0)
    names = sorted(path.name for path in (job.folder / "logs").glob("*.log"))
    assert names == ["job-worker-0-rank-0-attempt-3.log", "job-worker-0-rank-0-attempt-4.log"]
    record = json.loads(Path(f"{job.run_dir(0)}-state.json").read_text())
    assert record["result"]["attempts"] == 4


@pytest.mark.promise(
    "nothing of an attempt is left when the next one starts",
    control="the same look finds the process while its attempt runs",
)
def test_what_an_attempt_leaves_is_gone_before_the_next(cluster: Make) -> None:
    job = cluster(1, slots=1)
    look = "look() { cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n' | grep -q"
    program = f"""{look} LEFT_OF_{os.getpid()}; }}
        look && echo left
        LEFT_OF_{os.getpid()}=1 setsid sleep 600 &
        sleep 0.5
        look && echo runs
        exit 3"""
    crashing(job, "{most: 2, on: any}", program)
    assert job.ends() == {0: 3}, job.both()
    assert job.err(0).count("is over") == 2
    assert job.out(0).split() == ["runs"] * 3, job.both()
    assert job.survivors() == []


def stacks(job: Cluster, rank: int) -> subprocess.CompletedProcess[str]:
    """`entrypoint stacks`, next to a node of a running job."""
    words = [sys.executable, "-m", "entrypoint", "stacks", "--run-dir", str(job.run_dir(rank))]
    return captured(words)


@pytest.mark.promise("`entrypoint stacks` says what the ranks of a running job do, which goes on")
def test_the_ranks_of_all_nodes_are_compared(cluster: Make) -> None:
    job = cluster(2, slots=1)
    job.start_all(sys.executable, "-c", STUCK, env={"ENTRYPOINT_STALL_MINUTES": "60"})
    up(job, 2)
    everyone = stacks(job, 0)
    assert everyone.returncode == 0, everyone.stderr
    assert everyone.stdout.startswith(
        "all 2 ranks are in waits_for_nobody(), <string>:3: no rank differs from the others\n"
    ), everyone.stdout
    assert "  rank 0 on worker-0 (node-0), rank 1 on worker-1 (node-1): is in" in everyone.stdout
    own = stacks(job, 1)
    assert own.stdout.startswith("the only rank is in waits_for_nobody(), <string>:3"), own.stdout
    assert all(process.poll() is None for process in job.processes.values())
    assert "EP6" not in job.err(0), "nothing is said of it in the log"
    job.signal(0, signal.SIGTERM)
    assert job.ends() == {0: 143, 1: 143}


@pytest.mark.control("`entrypoint stacks` says what the ranks of a running job do, which goes on")
def test_a_job_without_ranks_has_none(cluster: Make) -> None:
    """The control: one whose other node is not there, and one that has ended."""
    job = cluster(2, slots=1)
    job.start(0, "sleep", "600")
    until(lambda: "1 of 1" in job.err(0) or "peer" in job.err(0), "the roll call")
    early = stacks(job, 0)
    assert early.returncode == 69, early
    assert "EP038 stacks cannot be read | no rank runs yet" in early.stderr
    job.start(1, "sleep", "600")
    until(lambda: "started" in job.err(0) or "all 2 nodes" in job.err(0), "the start")
    job.signal(0, signal.SIGTERM)
    assert job.ends() == {0: 143, 1: 143}
    late = stacks(job, 0)
    assert late.returncode in (66, 69), late
    assert re.search("EP03[08]", late.stderr)


# Rank 1 is told by its file, in the first attempt, that another node may help.
VERDICT = """
[ "$NODE" = 1 ] && [ $ENTRYPOINT_ATTEMPT = 1 ] || exec sleep 600
printf 'retry: %s\\nwhy: SDC check failed\\n' "$RETRY" >"$ENTRYPOINT_VERDICT"
exit 9
"""


@pytest.mark.promise(
    "a rank's own word is its cause, if it fails", control="a rank that says `retry: no`"
)
@pytest.mark.parametrize("launcher", ["plain", "mpirun"])
@pytest.mark.parametrize("retry", ["elsewhere", "no"])
def test_a_rank_s_own_word_decides_about_a_restart(
    cluster: Make, launcher: str, retry: str
) -> None:
    job = cluster(2, slots=1)
    (job.folder / "job.yaml").write_text("restarts: 1\n")
    words = (*RUN, "--spec", str(job.folder / "job.yaml"), "--launcher", launcher)
    for rank in range(2):
        argv = (*words, "--", "sh", "-c", VERDICT)
        job.start(rank, argv=argv, env={"RETRY": retry})
    if retry == "elsewhere":
        until(lambda: "is over" in job.err(0) and "starting again" in job.err(0), "a restart")
        job.signal(0, signal.SIGTERM)
        assert job.ends() == {0: 143, 1: 143}, job.both()
        return
    assert job.ends() == {0: 9, 1: 9}, job.both()
    words = "cause: SDC check failed in .* on worker-1 .*program; a retry does not help"
    assert re.search(words, job.err(0)), job.both()
