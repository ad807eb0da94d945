"""What the keeper does with programs, their output, what they leave running, and ranks that a
launcher starts."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from entrypoint.base.kept import KeptForm, OutputForm, RanksForm
from entrypoint.base.values import replace
from entrypoint.ranks import orders
from entrypoint.ranks.keeping import KeeperProcess
from entrypoint.system import proc
from tests import table
from tests.process.bench import executable
from tests.process.keeps import PLAIN, Keeper, Make
from tests.waits import until

WHOLE = KeptForm(OutputForm(lines="whole"), grace=600.0)
# A launcher that starts one rank, and ends with its status.
STARTS = 'export LAUNCHER=$$; sh "$0/rank.sh" "$@"; s=$?; sleep ${STAYS:-0}; exit $s'
LAUNCHER = ("sh", "-c", STARTS)


def gone(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    try:
        return ") Z " in stat.read_text()
    except OSError:
        return True


# --------------------------------------------------------------------------------------------------
# Starts


@pytest.mark.parametrize(("program", "status"), [("/no/such", 127), ("/tmp", 126)])
def test_what_cannot_be_started(program: str, status: int, keeper: Make) -> None:
    kept = keeper()
    kept.start(program)
    assert kept.ended()[-2:] == [f"end {status}", "done 0"]
    assert kept.tail.startswith(f"EP440 cannot start {program}: ".encode())


def test_a_variable_that_is_too_long_is_named(keeper: Make) -> None:
    kept = keeper()
    kept.start("true", env={"LARGE": "x" * (32 * os.sysconf("SC_PAGESIZE"))})
    assert "end 126" in kept.ended()
    why = b"the variable LARGE has 131079 bytes, and the kernel takes 131072"
    assert b"EP440 cannot start true: " + why in kept.tail


@pytest.mark.parametrize(("script", "status"), [("missing.py", 127), ("there.py", 3)])
def test_a_script_that_python_is_to_read(
    script: str, status: int, tmp_path: Path, keeper: Make
) -> None:
    """Alone, Python ends with 2, as for a wrong option."""
    (tmp_path / "there.py").write_text("raise SystemExit(3)")
    kept = keeper()
    kept.start(sys.executable, "-u", script, cwd=str(tmp_path))
    assert f"end {status}" in kept.ended()


def test_a_log_that_cannot_be_opened_is_the_reason(tmp_path: Path, keeper: Make) -> None:
    log = f"{tmp_path}/none/log"
    kept = keeper(stderr=subprocess.PIPE)
    kept.start("echo", "ran", form=replace(PLAIN, output=OutputForm(log=log)))
    assert kept.ended() == ["start", "log 2", "end 73", "done 0"]
    assert kept.tail == f"cannot keep echo | {log}: No such file or directory\n".encode()


@pytest.mark.control("a program runs whichever standard streams are closed")
def test_a_program_has_the_standard_streams_alone(keeper: Make) -> None:
    kept = keeper()
    kept.start("ls", "/proc/self/fd")
    kept.ended()
    assert kept.over().split() == [b"0", b"1", b"2", b"3"], "3 is the folder that ls reads"


def test_how_it_was_started_is_told(keeper: Make) -> None:
    kept = keeper()
    kept.start("env", "-0", "A=", env={"PATH": os.environ["PATH"], "MINE": "\udcff\n=1"})
    kept.ended()
    (started,) = [each for each in kept.reports if isinstance(each, orders.StartedAs)]
    assert started.words == (b"env", b"-0", b"A=")
    assert b"MINE=\xff\n=1" in started.env
    assert {*started.env, b"A="} == {*kept.over().split(b"\0")[:-1]}


@pytest.mark.parametrize(
    ("form", "size"),
    [(replace(PLAIN, is_launcher=True), 0), (PLAIN, 70_000)],
    ids=["a launcher", "too long"],
)
def test_what_is_not_told(form: KeptForm, size: int, keeper: Make) -> None:
    kept = keeper()
    kept.start("true", env={"A": "a" * size}, form=form)
    kept.ended()
    assert not [each for each in kept.reports if isinstance(each, orders.StartedAs)]


# --------------------------------------------------------------------------------------------------
# Output


@pytest.mark.promise("stdout is the program's, byte for byte")
def test_every_byte_passes(tmp_path: Path, keeper: Make) -> None:
    data = bytes(range(256)) * 4096
    (tmp_path / "data").write_bytes(data)
    with (tmp_path / "out").open("wb") as out:
        kept = keeper(stdout=out)
    kept.start("cat", "data", cwd=str(tmp_path))
    kept.ended()
    assert (tmp_path / "out").read_bytes() == data


def test_the_order_of_two_streams_that_are_one(keeper: Make) -> None:
    kept = keeper(stderr=subprocess.STDOUT)
    kept.start("sh", "-c", "for i in 1 2 3; do echo out $i; echo err $i >&2; done")
    kept.ended()
    assert kept.over() == b"".join(b"out %d\nerr %d\n" % (i, i) for i in (1, 2, 3))


def test_a_terminal_stays_one(keeper: Make) -> None:
    ours, theirs = os.openpty()
    kept = keeper(stdout=theirs, stderr=subprocess.PIPE)
    os.close(theirs)
    kept.start("sh", "-c", "[ -t 1 ] && [ ! -t 2 ] && printf 'one\\ntwo\\n'")
    assert "end 0" in kept.ended()
    assert os.read(ours, 100) == b"one\r\ntwo\r\n", "this terminal adds the \r"
    os.close(ours)


@pytest.mark.control("stdout is the program's, byte for byte")
def test_lines_get_a_label_and_a_copy(tmp_path: Path, keeper: Make) -> None:
    log = tmp_path / "log"
    log.write_text("from before\n")
    kept = keeper()
    form = replace(PLAIN, output=OutputForm(label="[rank 3] ", log=str(log)))
    kept.start("printf", "one\\ntwo\\n1%%\\r2%%\\rlast", form=form)
    kept.ended()
    assert kept.over() == (b"[rank 3] one\n[rank 3] two\n[rank 3] 1%\r[rank 3] 2%\r[rank 3] last\n")
    assert log.read_bytes() == b"from before\none\ntwo\n1%\r2%\rlast"


# What a line of a rank comes in, and seconds between its pieces.
APART = (
    "for i in 1 2 3 4 5 6 7 8 9; do printf 'a%.0s' 1 2 3; sleep 0.05; printf '%0{0}d\\nb' 0; sleep"
    " 0.05; echo; done"
)


@pytest.mark.promise(
    "lines of several ranks are whole by default, and prompts are shown",
    control="its case `control`",
)
@pytest.mark.parametrize("zeros", [1, 50_000], ids=["short", "long"])
@pytest.mark.parametrize("form", [WHOLE, PLAIN], ids=["", "control"])
def test_lines_that_come_in_pieces_do_not_mix(
    form: KeptForm, zeros: int, tmp_path: Path, keeper: Make
) -> None:
    with (tmp_path / "out").open("wb") as out:
        kept = keeper(stdout=out)
    for number, wait in enumerate(("", "sleep 0.02; ")):
        kept.start("sh", "-c", wait + APART.format(zeros), form=form, number=number)
    until(lambda: kept.told().count("done 0") == 2, "their ends")
    lines = (tmp_path / "out").read_bytes().split(b"\n")
    right = {b"aaa" + b"0" * zeros, b"b", b""}
    assert (set(lines) == right) == (form is WHOLE)
    assert form is PLAIN or lines.count(b"b") == 18


@pytest.mark.promise("lines of several ranks are whole by default, and prompts are shown")
@pytest.mark.parametrize("form", [PLAIN, WHOLE], ids=["alone", "several"])
def test_a_prompt_is_shown(form: KeptForm, keeper: Make) -> None:
    kept = keeper()
    kept.start("sh", "-c", "printf 'name? '; exec sleep 600", form=form)
    assert kept.process.stdout is not None
    assert kept.process.stdout.read(6) == b"name? "


def test_a_second_line_begins_behind_a_prompt_of_another(keeper: Make) -> None:
    kept = keeper()
    kept.start("sh", "-c", "printf 'name? '; exec sleep 600", form=WHOLE)
    assert kept.process.stdout is not None
    assert kept.process.stdout.read(6) == b"name? "
    kept.start("echo", "other", form=WHOLE, number=1)
    assert kept.process.stdout.read(7) == b"\nother\n"


def test_output_that_nobody_takes_holds_up_no_report(keeper: Make) -> None:
    kept = keeper()
    kept.start("sh", "-c", "head -c 110000 /dev/zero; exit 7")
    until(lambda: "end 7" in kept.told(), "its end")
    assert kept.process.stdout is not None
    assert len(kept.process.stdout.read(110000)) == 110000


def test_success_is_told_when_a_reader_has_it(keeper: Make) -> None:
    kept = keeper()
    kept.start("head", "-c", "300000", "/dev/zero")
    with pytest.raises(AssertionError):
        until(lambda: "end 0" in kept.told(), "an end that must not come", 1)
    assert kept.process.stdout is not None
    kept.process.stdout.read(300000)
    assert kept.ended()[-2:] == ["end 0", "done 0"]


def test_the_last_output_is_told_where_the_program_fails(keeper: Make) -> None:
    kept = keeper(stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    kept.start("sh", "-c", "seq 100000; sleep 0.5; printf '\\377why\n' >&2; exit 3")
    assert kept.ended()[-2:] == ["end 3", "done 0"]
    assert kept.tail.endswith(b"99999\n100000\n\xffwhy\n")
    assert len(kept.tail) == 16384


# --------------------------------------------------------------------------------------------------
# What is left running, and stops


def test_a_failure_is_told_at_once_and_what_is_left_is_heard_out(
    tmp_path: Path, keeper: Make
) -> None:
    go = tmp_path / "go"
    kept = keeper()
    program = f"(until [ -e {go} ]; do echo; sleep 0.02; done; echo late) & echo early; exit 3"
    kept.start("sh", "-c", program)
    until(lambda: "end 3" in kept.told(), "its end")
    assert "done 0" not in kept.told()
    go.touch()
    assert kept.ended()[-2:] == ["end 3", "done 0"]
    assert kept.over().split() == [b"early", b"late"]


def test_what_stays_gets_term_then_the_grace_then_kill(tmp_path: Path, keeper: Make) -> None:
    notes = tmp_path / "notes"
    saves = f"trap 'echo saved >>{notes}; exit' TERM; while :; do sleep 0.02; done"
    ignores = f"trap 'echo TERM >>{notes}' TERM; touch {notes}; while :; do sleep 0.02; done"
    program = f'(setsid bash -c "{saves}" &); (bash -c "{ignores}" &); until [ -e {notes} ]; do sleep 0.02; done'
    kept = keeper()
    begun = time.monotonic()
    kept.start("bash", "-c", program, form=replace(PLAIN, grace=0.5))
    assert kept.ended()[-2:] == ["end 0", "done 0"]
    assert sorted(notes.read_text().split()) == ["TERM", "saved"]
    assert time.monotonic() - begun >= 1.0, "half a second by themselves, then half a second"


def test_what_stays_is_recognised_late(tmp_path: Path, keeper: Make) -> None:
    """In execve(2) a process has no environment for a moment, which would say whose it is."""
    kept = keeper()
    late = f'echo $$ >{tmp_path}/pid; sleep 0.2; exec env ENTRYPOINT_KEPT="$0" sleep 600'
    program = f"setsid env -i PATH=$PATH sh -c '{late}' $ENTRYPOINT_KEPT & until [ -s {tmp_path}/pid ]; do :; done"
    kept.start("sh", "-c", program, form=replace(PLAIN, grace=5.0))
    kept.ended()
    assert proc.has_ended(int((tmp_path / "pid").read_text()))


@pytest.mark.parametrize(
    ("prints", "seconds", "is_said"), [(True, 9, True), (True, 0.6, False), (False, 9, False)]
)
def test_what_is_ended_while_it_prints_is_named(
    prints: bool, seconds: float, is_said: bool, tmp_path: Path, keeper: Make
) -> None:
    line = "echo up; sleep 0.1" if prints else "sleep 0.1"
    lasts = f"until (( SECONDS >= {seconds:.0f} )); do {line}; done"
    upload = executable(tmp_path / "upload", lasts, "/bin/bash")
    kept = keeper(stderr=subprocess.STDOUT)
    kept.start("sh", "-c", f"{upload} & exit 0", form=replace(PLAIN, grace=2.0))
    kept.ended()
    summary = b"warning: EP629 processes that the program left running still print; ending them"
    assert (summary + b" | upload (" in kept.over()) == is_said


def test_a_stop_reaches_every_process_and_the_status_is_the_program_s(keeper: Make) -> None:
    kept = keeper()
    kept.start("sh", "-c", "trap 'echo told; exit 9' TERM; echo up; while :; do sleep 0.02; done")
    until(lambda: "output 0" in kept.told(), "its output")
    kept.send(orders.SignalAll(orders.PROGRAM, signal.SIGTERM))
    assert kept.ended()[-2:] == ["end 9", "done 0"]


@pytest.mark.parametrize("round_", range(5))
def test_a_stop_ends_the_program_whenever_it_comes(round_: int, keeper: Make) -> None:
    kept = keeper()
    kept.start("sleep", "600")
    time.sleep(0.004 * round_)
    kept.send(orders.SignalAll(orders.PROGRAM, signal.SIGTERM))
    assert kept.ended()[-2:] == ["end 143", "done 0"]


def test_a_signal_while_it_starts_does_not_end_it() -> None:
    """Ctrl-C reaches all processes of a terminal."""
    started = KeeperProcess()
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(started.pid, signum)
    started.socket.setblocking(True)
    started.socket.sendall(orders.encoded(orders.EndAttempt(1.0)))
    assert [*orders.decoded(bytearray(started.socket.recv(4096)))] == [orders.AttemptEnded(0)]
    started.close()


def test_killed_it_takes_all_programs_with_it(keeper: Make) -> None:
    kept = keeper()
    kept.start("sleep", "600")
    pid = kept.pid()
    kept.process.kill()
    until(lambda: gone(pid), "its end")


def test_it_ends_with_all_programs_when_the_entrypoint_is_gone(keeper: Make) -> None:
    kept = keeper()
    kept.start("sh", "-c", "trap '' TERM; (setsid sleep 600 &); exec sleep 600")
    pid = kept.pid()
    kept._socket.close()
    assert kept.process.wait() == 137
    assert gone(pid)


# --------------------------------------------------------------------------------------------------
# Ranks of a launcher


def ranks(form: KeptForm, **how: Any) -> RanksForm:
    return RanksForm(form, ("NUMBER",), **how)


def launch(kept: Keeper, folder: Path, *words: str, **env: str) -> None:
    """Start a launcher with one rank."""
    variables = {"PATH": os.environ["PATH"], "NUMBER": "3", **env}
    form = replace(PLAIN, is_launcher=True)
    kept.start(*LAUNCHER[:3], str(folder), *words, form=form, env=variables, cwd=str(folder))


@pytest.mark.parametrize("status", [0, 7])
def test_a_launcher_has_its_rank_s_status(status: int, tmp_path: Path, keeper: Make) -> None:
    kept = keeper(ranks=ranks(replace(PLAIN, is_apart=True)))
    launch(kept, tmp_path, "sh", "-c", f"echo $NUMBER; pwd; exit {status}")
    assert kept.ended()[-2:] == [f"end {status}", "done 0"]
    assert f"end {status}" in kept.told(orders.RANK)
    assert kept.over().decode() == f"3\n{tmp_path}\n"


def test_a_node_s_own_environment_wins_but_for_what_is_kept(tmp_path: Path, keeper: Make) -> None:
    form = ranks(
        PLAIN,
        env=(b"A=file", b"B=file", b"a.b=odd\nname", b"C=\xff"),
        each=(("RANK", "NUMBER"), ("A", "NUMBER")),
        colons=True,
    )
    kept = keeper(ranks=form)
    own = {"A": "own", "B": "the launcher's", "ENTRYPOINT_KEEP": "B Z ", "USER": "login"}
    code = "import os, sys; os.write(1, b'\\0'.join([*map(os.fsencode, sys.argv[1:]), *map(b'='.join, os.environb.items()), b'']))"
    launch(kept, tmp_path, sys.executable, "-c", code, "\\:", "\\\\:", **own)
    kept.ended()
    first, second, *pairs = kept.over().split(b"\0")[:-1]
    assert (first, second) == (b":", b"\\:")
    got = dict(pair.split(b"=", 1) for pair in pairs)
    assert (got[b"A"], got[b"B"], got[b"C"]) == (b"file", b"the launcher's", b"\xff")
    assert (got[b"a.b"], got[b"RANK"], b"USER" in got) == (b"odd\nname", b"3", False)


@pytest.mark.promise("ranks of MPICH and Intel MPI that end without MPI_Finalize cost no grace")
@pytest.mark.parametrize("told", [False, True], ids=["failed", "told-to-end"])
def test_one_that_ended_under_an_mpi_stays_until_it_is_let_go(
    told: bool, tmp_path: Path, keeper: Make
) -> None:
    kept = keeper(ranks=ranks(replace(PLAIN, by_mpi=True)))
    ends = "trap 'exit 0' TERM; echo up; while :; do sleep 0.02; done"
    launch(kept, tmp_path, "sh", "-c", ends if told else "echo up; exit 7")
    until(lambda: "output 0" in kept.told(orders.RANK), "its output")
    if told:
        kept.send(orders.SignalAll(orders.RANK, signal.SIGTERM))
    kept.ended(orders.RANK)
    assert kept.told(orders.RANK)[-2:] == [f"end {0 if told else 7}", "done 0"]
    assert not [each for each in kept.told() if each.startswith("end")], "its launcher waits"
    kept.send(orders.ReleaseRanks())
    assert "end 0" in kept.ended()


def test_a_line_s_end_is_noted_of_what_this_node_prints(tmp_path: Path, keeper: Make) -> None:
    """What a rank prints for its launcher is not on the node's stdout yet."""
    noted = tmp_path / "last-output"
    noted.write_text("0" * 20 + "\n\n\n")
    kept = keeper(ranks=ranks(replace(PLAIN, is_apart=True)))
    form = replace(PLAIN, is_launcher=True)
    words = ("sh", "-c", 'x=$(sh rank.sh printf 50%%); echo "$x done"')
    kept.start(*words, form=form, env={**os.environ, "NUMBER": "3"}, cwd=str(tmp_path))
    kept.ended()
    assert kept.over() == b"50% done\n"
    assert noted.read_text()[20:] == "\n\n\n"


@pytest.mark.parametrize("tags", ["tags", ""])
def test_a_rank_next_to_an_mpi_s_launcher_prints_past_it(
    tags: str, tmp_path: Path, keeper: Make
) -> None:
    """It has that launcher's terminal all the same. Without tags, the user's options shape it."""
    output = OutputForm("text", prefix="{stream} ", tags=tags)
    kept = keeper(ranks=ranks(replace(PLAIN, output=output, by_mpi=True)), stderr=subprocess.STDOUT)
    rank = "sh rank.sh sh -c '[ -t 1 ] && echo out; echo err >&2' 2>/dev/null"
    code = f'import os, pty; os.dup2(os.open(os.devnull, 1), 1); pty.spawn(["sh", "-c", "{rank}"])'
    form = replace(PLAIN, output=replace(output, is_of_launcher=True), is_launcher=True)
    kept.start(sys.executable, "-c", code, form=form, cwd=str(tmp_path))
    kept.ended()
    lines = [b"stderr err", b"stdout out"] if tags else []
    assert sorted(kept.over().splitlines()) == lines


def test_a_disk_without_room_costs_its_launcher_the_status(tmp_path: Path, keeper: Make) -> None:
    """It is told that the rank was killed, and the rank's own end is reported."""
    full = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (0, 0))
    kept = keeper(ranks=ranks(replace(PLAIN, is_apart=True)), preexec_fn=full)
    launch(kept, tmp_path, "sh", "-c", "exit 7")
    assert "end 137" in kept.ended()
    assert "end 7" in kept.told(orders.RANK)


def test_signals_of_a_launcher_reach_the_rank(tmp_path: Path, keeper: Make) -> None:
    kept = keeper(ranks=ranks(replace(PLAIN, is_apart=True)))
    program = "trap 'echo usr1' USR1; trap 'exit 5' TERM; echo up; while :; do sleep 0.02; done"
    launch(kept, tmp_path, "sh", "-c", program)
    until(lambda: "output 0" in kept.told(orders.RANK), "its output")
    placeholder = kept.pid(orders.RANK, "placeholder")
    os.kill(placeholder, signal.SIGUSR1)
    assert kept.process.stdout is not None
    assert kept.process.stdout.read(8) == b"up\nusr1\n"
    os.kill(placeholder, signal.SIGTERM)
    assert "end 5" in kept.ended()


def test_a_placeholder_that_is_killed_takes_the_rank_with_it(tmp_path: Path, keeper: Make) -> None:
    kept = keeper(ranks=ranks(replace(PLAIN, is_apart=True)))
    launch(kept, tmp_path, "sleep", "600")
    pid = kept.pid(orders.RANK)
    os.kill(kept.pid(orders.RANK, "placeholder"), signal.SIGKILL)
    until(lambda: gone(pid), "its end")
    assert "end 137" in kept.ended()


# --------------------------------------------------------------------------------------------------
# What a rank may try

# Many that connect where descriptors are passed, and say nothing.
CALLS = """
import socket, time
held = [socket.socket(socket.AF_UNIX) for _ in range(100)]
for each in held:
    each.connect("keeper.fds")
time.sleep(30)
"""

LIES = {
    **table("tests/tables/keeper.yaml")["lies"],
    "a silent caller": f"{sys.executable} -c '{CALLS}' & sleep 0.5",
}


@pytest.mark.promise("a program cannot report for its supervisor, and its failure is never 0")
@pytest.mark.parametrize("lie", LIES)
def test_a_rank_has_no_part_in_its_reports(lie: str, tmp_path: Path, keeper: Make) -> None:
    """It ends with 7, whatever it tries, and nothing is reported of others. Its launcher ends with
    that, too, or with what is no success either."""
    kept = keeper(ranks=ranks(replace(PLAIN, is_apart=True)), stderr=subprocess.DEVNULL)
    begin = "read SHELL_ _ </proc/$LAUNCHER/task/$LAUNCHER/children; kill -0 $SHELL_ || exit 0"
    is_killed = lie in ("its shell is killed", "many such words")
    lie = f"{begin}; {LIES[lie]}; exit 7"
    launch(kept, tmp_path, "sh", "-c", lie, STAYS=f"{is_killed:d}")  # its shell is missed first
    end = next(each for each in kept.ended() if each.startswith("end"))
    assert end != "end 0", kept.reports
    ends = [each for each in kept.told(orders.RANK) if each.startswith("end")]
    assert ends == ["end 137" if is_killed else "end 7"], kept.reports


@pytest.mark.control("a program cannot report for its supervisor, and its failure is never 0")
def test_one_that_a_launcher_starts_is_a_rank(tmp_path: Path, keeper: Make) -> None:
    kept = keeper(ranks=ranks(replace(PLAIN, is_apart=True)))
    two = 'NUMBER=0 sh rank.sh true & NUMBER=1 sh rank.sh sh -c "exit 7"; wait'
    kept.start("sh", "-c", two, form=replace(PLAIN, is_launcher=True), cwd=str(tmp_path))
    kept.ended()
    ends = [each for each in kept.told(orders.RANK) if each.startswith("end")]
    assert sorted(ends) == ["end 0", "end 7"]
