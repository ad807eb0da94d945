"""What the entrypoint owes a running job: its status, its signals, its grace, and nothing left
behind."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path
from shlex import split

import pytest

from tests.process.bench import Bench, marked, until

# A rank that notes its SIGTERM and goes on.
STUBBORN = 'trap \'echo TERM >>"$NOTES"\' TERM; echo ready >>"$NOTES"; while :; do sleep 0.02; done'
# A rank that saves when it is told to stop, which takes a while.
SAVES = (
    'trap \'sleep 0.3; echo saved >>"$NOTES"; exit 0\' TERM; echo ready >>"$NOTES"; while :; do'
    " sleep 0.02; done"
)
WAITS = 'echo ready >>"$NOTES"; exec sleep 600'


def stop(process: subprocess.Popen[str], signum: int = signal.SIGTERM) -> int:
    """Its status after the signal."""
    process.send_signal(signum)
    return process.wait(60)


def nothing_left(bench: Bench) -> bool:
    until(lambda: not bench.left(), f"the end of {bench.left()}")
    return not bench.run_dir.exists()


# --------------------------------------------------------------------------------------------------
# The bench itself


@pytest.mark.control("no process of a job stays")
def test_the_bench_sees_what_is_left(bench: Bench) -> None:
    """The control of every `nothing_left`: a process in a session of its own is found."""
    process = bench.popen(["sh", "-c", "setsid sleep 600 & exit 0"])
    assert process.wait(60) == 0
    (stray,) = until(
        lambda: [pid for pid, line in bench.left().items() if "sleep 600" in line], "a stray"
    )
    os.kill(stray, signal.SIGKILL)
    until(lambda: not marked(bench.mark), "its end")


# --------------------------------------------------------------------------------------------------
# Exit statuses


def test_the_launcher_s_status_is_the_job_s(bench: Bench) -> None:
    statuses = (1, 7, 137, 255)  # tests/process/test_exit_tables.py has more
    benches = dict(zip(statuses, bench.others(len(statuses)), strict=True))
    started = {status: benches[status].start("prog", FAKE_EXIT=str(status)) for status in statuses}
    assert {status: process.wait(60) for status, process in started.items()} == {
        status: status for status in statuses
    }
    assert {benches[status].out for status in statuses} == {""}
    said = {status: benches[status].err.splitlines() for status in (7, 137)}
    assert all(
        lines[0].startswith("[entrypoint] started: mpirun with 2 ranks | whole line: ")
        for lines in said.values()
    )
    assert said[7][1:] == ["[entrypoint] EP600 mpirun exited with 7; exit 7"]
    assert said[137][1:] == ["[entrypoint] EP601 mpirun was ended by SIGKILL (137); exit 137"]


@pytest.mark.parametrize(
    ("fake", "seen"),
    [
        ({"FAKE_EXIT": "0"}, "0 of 2 ranks | none ran"),  # as for --version or --do-not-launch
        ({"FAKE_NP": "1"}, "1 of 2 ranks | 1 rank on 1 node: "),
    ],
)
def test_a_launcher_that_starts_too_few_ranks_is_no_success(
    fake: dict[str, str], seen: str, bench: Bench
) -> None:
    assert bench.run("true", **fake) == 78
    assert f"EP606 mpirun exited with 0 and has started {seen}" in bench.err
    assert "-np is 2 by the slots of all nodes: see that OPENMPI_EXTRA_ARGS" in bench.err
    assert nothing_left(bench)


def test_a_launcher_that_starts_too_few_ranks_and_stays(bench: Bench) -> None:
    assert bench.run("sleep", "600", FAKE_NP="1", ENTRYPOINT_TIMEOUTS_LAUNCH="1") == 75
    assert "EP605 mpirun has started 1 of 2 ranks | 1 rank on 1 node: " in bench.err
    assert " within 1s | see that" in bench.err
    assert nothing_left(bench)


def test_a_launcher_that_sleeps_when_every_rank_has_ended_well_is_ended(bench: Bench) -> None:
    """But not one that still passes on what ranks said, which takes longer here."""
    asleep, talks = bench.others(2)
    talking = talks.start("true", slots=1, FAKE_HANG="talk")
    sleeping = asleep.start("echo", "said", FAKE_HANG="after")
    assert sleeping.wait(60) == 0
    assert asleep.out == "said\nsaid\n"
    assert "EP613 mpirun did not end, though every rank did: it is ended" in asleep.err
    assert talking.wait(60) == 0
    assert talks.out.split() == ["0", "1", "2", "3"]
    assert "did not end" not in talks.err
    assert nothing_left(asleep)


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGSEGV])
def test_a_launcher_that_is_killed(signum: int, bench: Bench) -> None:
    assert bench.run("prog", FAKE_KILL=str(int(signum))) == 128 + signum
    assert (
        f"mpirun was ended by {signal.Signals(signum).name} ({128 + signum}); exit {128 + signum}\n"
        in bench.err
    )


@pytest.mark.control("a launcher that starts too few ranks is no success")
def test_all_ranks_well(bench: Bench) -> None:
    assert bench.run("sh", "-c", 'echo "$OMPI_COMM_WORLD_RANK"') == 0
    assert sorted(bench.out.splitlines()) == ["0", "1"]
    assert nothing_left(bench)


def test_the_first_failure_is_the_job_s(bench: Bench) -> None:
    """Rank 1 exits 7, and mpirun ends the others for it: 7, and whose it was, not their 143."""
    script = 'test "$OMPI_COMM_WORLD_RANK" = 1 && exit 7; exec sleep 600'
    assert bench.run("sh", "-c", script, slots=3) == 7
    assert "rank 1 on " in bench.err
    assert "exited with 7; exit 7" in bench.err
    assert nothing_left(bench)


@pytest.mark.promise("a program cannot report for its supervisor, and its failure is never 0")
@pytest.mark.parametrize("how", ["write", "connect"])
def test_a_rank_s_own_words_do_not_hide_its_failure(how: str, bench: Bench) -> None:
    """The status was 0: a program could write where its supervisor reports (issue 25, row 3)."""
    connect = (
        "import os, socket; s = socket.socket(socket.AF_UNIX);"
        " s.connect(os.environ['ENTRYPOINT_RUN_DIR'] + '/ranks')"
    )
    told = {
        "write": 'for rank in 0 1; do echo; echo end $rank 0; done >"$ENTRYPOINT_RUN_DIR/ranks"',
        "connect": f"{sys.executable} -c \"{connect}; s.sendall(b'end 0 0\\nend 1 0\\n')\"",
    }
    assert (
        bench.run(
            "sh", "-c", f'test "$OMPI_COMM_WORLD_RANK" = 0 && sleep 1 && exit; {told[how]}; exit 7'
        )
        == 7
    )
    assert "rank 1 on " in bench.err
    assert nothing_left(bench)


@pytest.mark.promise("a program runs whichever standard streams are closed")
@pytest.mark.parametrize("closed", ["<&- >&-", ">&- 2>&-", "<&- 2>&-", "<&- >&- 2>&-"])
def test_standard_streams_that_are_closed(closed: str, bench: Bench) -> None:
    """The program did not run, and 71 was said to be its own (issue 25, row 14)."""
    run = [
        sys.executable,
        *split("-m entrypoint run --launcher pytorch -- sh -c"),
        'echo x >"$NOTES"; exit 3',
    ]
    assert bench.popen(["sh", "-c", f'exec "$@" {closed}', "sh", *run]).wait(60) == 3
    assert bench.notes == ["x"]


def test_a_failure_counts_more_than_an_end_that_was_heard_first(bench: Bench) -> None:
    """Rank 0 is ended by SIGTERM, as launchers end ranks when another fails, and rank 1 tells of
    its 7 only then."""
    ended = 'test "$OMPI_COMM_WORLD_RANK" = 0 && { echo $$ >"$NOTES"; kill -TERM $$; }'
    failed = 'until test -s "$NOTES" && ! kill -0 "$(cat "$NOTES")"; do sleep 0.02; done; exit 7'
    assert bench.run("sh", "-c", f"{ended}; {failed}") == 7
    assert "rank 1 on " in bench.err
    assert nothing_left(bench)


def test_a_program_that_is_killed(bench: Bench) -> None:
    """As the kernel does when memory is short."""
    assert bench.run("sh", "-c", "kill -KILL $$; exec sleep 600", slots=1) == 137
    assert "rank 0 on " in bench.err
    assert "was ended by SIGKILL (137); exit 137" in bench.err
    assert nothing_left(bench)


def test_a_wrapper_that_is_killed(bench: Bench) -> None:
    """It can tell nothing any more, and a launcher that hangs does not either."""
    assert (
        bench.run("sh", "-c", "kill -KILL $PPID; exec sleep 600", slots=1, FAKE_HANG="after") == 137
    )
    assert "rank 0 on " in bench.err
    assert "was ended by SIGKILL (137); exit 137" in bench.err
    assert nothing_left(bench)


@pytest.mark.parametrize(("program", "status"), [("no-such-program", 127), ("/etc/passwd", 126)])
def test_a_program_that_cannot_start(program: str, status: int, bench: Bench) -> None:
    assert bench.run(program) == status
    assert nothing_left(bench)


def test_no_launcher_here(bench: Bench) -> None:
    (bench.folder / "bin" / "mpirun").write_text("#!/no/such/shell\n")
    status = bench.run("prog")
    assert status in (126, 127)
    assert "Traceback" not in bench.err


# --------------------------------------------------------------------------------------------------
# What reaches a rank


def test_arguments_reach_the_rank_as_they_are(bench: Bench) -> None:
    words = [
        "a b",
        "it's",
        '"q"',
        *split("$HOME $(id) `id` *"),
        "\\",
        "",
        "one\ntwo",
        *split("-x -- ; ä"),
    ]
    assert bench.run("printf", "%s\\0", *words, slots=1) == 0
    assert bench.out.split("\0")[:-1] == words


def test_values_reach_the_rank_as_they_are(bench: Bench) -> None:
    values = {
        "JSON": '[{"name": "data url", "value": "s3://b/x y;z"}]',
        "EQUALS": "c2VjcmV0==",
        "LINES": "one\ntwo\n",
        "QUOTES": 'it\'s "so" $HOME `id`',
        "LARGE": "x" * 100_000,
    }
    assert bench.run("env", "-0", slots=1, flags=("-e", "FLAG=a b"), **values) == 0
    got = dict(entry.split("=", 1) for entry in bench.out.split("\0") if entry)
    assert {name: got.get(name) for name in (*values, "FLAG")} == {**values, "FLAG": "a b"}
    assert "ENTRYPOINT_KEEP" not in got
    assert "ENTRYPOINT_STAGE" not in got


def test_the_secret_is_in_no_rank_and_on_no_command_line(bench: Bench) -> None:
    secret = secrets.token_hex(32)
    process = bench.start("sh", "-c", f"env; {WAITS}", slots=1, ENTRYPOINT_SECRET=secret)
    bench.await_notes("ready")
    assert [line for line in bench.left().values() if secret in line] == []
    assert stop(process) == 143
    assert secret not in bench.out + bench.err


def test_no_core_of_ours_is_written_and_a_rank_s_is(bench: Bench) -> None:
    """The secret is in our memory; a rank's core is its user's, where its limit allows one."""
    if Path("/proc/sys/kernel/core_pattern").read_text().startswith(("|", "/")):
        pytest.skip("this machine's cores do not lie where a test would find them")
    program = f'sh -c "kill -ABRT \\$\\$"; ulimit -c; {WAITS}'
    run = [
        sys.executable,
        *split("-m entrypoint run --launcher mpirun --slots 1 -- sh -c"),
        program,
    ]
    process = bench.popen(["sh", "-c", 'ulimit -c unlimited && exec "$@"', "sh", *run])
    bench.await_notes("ready")
    (core,) = (bench.folder / "cwd").glob("core*")
    until(lambda: bench.out == "unlimited\n", "the rank's own limit")
    core.unlink()
    process.send_signal(signal.SIGABRT)
    assert process.wait(60) == -signal.SIGABRT
    assert list((bench.folder / "cwd").glob("core*")) == []
    until(lambda: not bench.left(), "the end of all")


# --------------------------------------------------------------------------------------------------
# Stopping


def test_ranks_that_do_not_stop_get_the_whole_grace(bench: Bench) -> None:
    process = bench.start("sh", "-c", STUBBORN, ENTRYPOINT_TIMEOUTS_GRACE="1.5")
    bench.await_notes("ready", "ready")
    begun = time.monotonic()
    assert stop(process) == 143
    assert time.monotonic() - begun >= 1.5, bench.err
    # Once each from us; the launcher may add one when the first of them is killed.
    assert bench.notes.count("TERM") >= 2, bench.err
    assert nothing_left(bench)


def test_ranks_that_save_are_not_kept_waiting(bench: Bench) -> None:
    process = bench.start("sh", "-c", SAVES, ENTRYPOINT_TIMEOUTS_GRACE="600")
    bench.await_notes("ready", "ready")
    assert stop(process) == 143
    assert bench.notes == ["ready", "ready", "saved", "saved"]
    assert "SIGTERM: stopping\n" in bench.err
    assert "the job was ended by SIGTERM (143); exit 143\n" in bench.err
    assert nothing_left(bench)


@pytest.mark.control("a stop gives every program SIGTERM, then the grace, then SIGKILL")
def test_no_grace_at_all(bench: Bench) -> None:
    process = bench.start("sh", "-c", STUBBORN, ENTRYPOINT_TIMEOUTS_GRACE="0")
    bench.await_notes("ready", "ready")
    assert stop(process) == 143
    assert nothing_left(bench)


def test_a_second_signal_skips_the_grace(bench: Bench) -> None:
    process = bench.start("sh", "-c", STUBBORN, ENTRYPOINT_TIMEOUTS_GRACE="600")
    bench.await_notes("ready", "ready")
    process.terminate()
    bench.await_notes("TERM", "TERM", "ready", "ready")
    assert stop(process) == 143
    assert "SIGTERM again: not waiting for the grace to end\n" in bench.err
    assert nothing_left(bench)


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGHUP, signal.SIGQUIT])
def test_other_signals_stop_too(signum: int, bench: Bench) -> None:
    process = bench.start("sh", "-c", WAITS)
    bench.await_notes("ready", "ready")
    assert stop(process, signum) == 128 + signum
    assert nothing_left(bench)


def test_a_stop_before_any_rank(bench: Bench) -> None:
    process = bench.start("prog", FAKE_HANG="before", ENTRYPOINT_TIMEOUTS_GRACE="600")
    until(lambda: (bench.folder / "record").exists(), f"mpirun; {bench.err}")
    assert stop(process) == 143
    assert nothing_left(bench)


def test_a_rank_s_own_children_stop_too(bench: Bench) -> None:
    """A data loader's worker is in the rank's group, or has left it."""
    process = bench.start(
        "sh", "-c", f"sleep 600 & setsid sleep 600 & {WAITS}", ENTRYPOINT_TIMEOUTS_GRACE="600"
    )
    bench.await_notes("ready", "ready")
    assert stop(process) == 143
    assert nothing_left(bench)


# --------------------------------------------------------------------------------------------------
# Nothing left


def test_a_child_that_holds_stdout_keeps_nobody(bench: Bench) -> None:
    assert bench.run("sh", "-c", "sleep 600 & exit 0") == 0
    assert nothing_left(bench)


@pytest.mark.promise("no process of a job stays")
def test_a_daemon_is_ended_too(bench: Bench) -> None:
    assert bench.run("sh", "-c", "setsid sh -c 'sleep 600 & sleep 600' & exit 0") == 0
    assert nothing_left(bench)


def test_a_failing_job_leaves_no_file(bench: Bench) -> None:
    assert bench.run("false") == 1
    assert nothing_left(bench)


def test_two_jobs_do_not_share_a_run_directory(bench: Bench) -> None:
    first = bench.start("sh", "-c", WAITS)
    bench.await_notes("ready", "ready")
    second = bench.start("true")
    assert second.wait(60) == 78
    assert "EP414 another entrypoint is at work in this run directory | " in bench.err
    assert first.poll() is None
    assert stop(first) == 143
    assert nothing_left(bench)


# --------------------------------------------------------------------------------------------------
# What ranks know of themselves

TORCH = "$RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $NODE_RANK $MASTER_ADDR $MASTER_PORT"


def test_a_rank_is_told_in_torch_s_words_too(bench: Bench) -> None:
    """Else many a script is a job of one process, as often as there are ranks; what the spec's env
    sets stays, and the container's own numbers don't."""
    ours, theirs = bench.others(2)
    spec = bench.folder / "job.yaml"
    spec.write_text("env: {RANK: '9'}\nplatform: local\n")
    env = {"RANK": "1", "WORLD_SIZE": "3", "MASTER_ADDR": "other", "MASTER_PORT": "7", "HOME": ""}
    started = [
        ours.start("sh", "-c", f'echo "{TORCH}"'),
        theirs.start("sh", "-c", f'echo "{TORCH}"', flags=("--spec", str(spec)), **env),
    ]
    assert [each.wait(60) for each in started] == [0, 0]
    assert sorted(ours.out.splitlines()) == ["0 2 0 2 0 127.0.0.1 6060", "1 2 1 2 0 127.0.0.1 6060"]
    assert sorted(theirs.out.splitlines()) == ["9 2 0 2 0 127.0.0.1 7", "9 2 1 2 0 127.0.0.1 7"]
