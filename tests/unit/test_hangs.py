"""Which rank hangs: groups of stacks, steps of ranks, and stacks as tools print them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from entrypoint.base.errors import SpecError
from entrypoint.base.values import replace
from entrypoint.job import actions, messages
from entrypoint.job.stacks import FRAMES, Frame, ProcessStack, chosen
from entrypoint.job.stall.judge import LINES, HangReport, judge, position
from entrypoint.job.stall.steps import StepTable
from entrypoint.output.steps import StepWatch, pattern_of
from entrypoint.ranks.stall.reader import frame_of, parsed_dump
from entrypoint.spec import load
from tests import table as cases
from tests.unit.machine import Node, logged

TABLE = cases("tests/tables/hangs.yaml")

C10D = "torch/distributed/distributed_c10d.py"
MAIN = Frame("main", "/w/train.py", 88, False)
REDUCE = (Frame("all_reduce", C10D, 1, True), Frame("wrapper", C10D, 2, True), MAIN)
BROADCAST = (Frame("broadcast", C10D, 3, True), replace(MAIN, line=90))
READ = (Frame("read", "/w/data.py", 31, False), MAIN)
LATER = (Frame("read", "/w/data.py", 35, False), MAIN)
NEXT = (
    Frame("wait", "multiprocessing/connection.py", 9, True),
    Frame("__next__", "site-packages/torch/utils/data/dataloader.py", 7, True),
    replace(MAIN, line=80),
)
IDLE = (Frame("_worker_loop", "site-packages/torch/utils/data/_utils/worker.py", 5, True),)


def rank(number: int, frames: tuple[Frame, ...] = REDUCE, state: str = "S") -> ProcessStack:
    return ProcessStack(number, f"rank {number}", 100 + number, False, state, "", "", frames)


def child(number: int, frames: tuple[Frame, ...], state: str = "S") -> ProcessStack:
    return replace(rank(number, frames, state), is_child=True, pid=900 + number)


BLIND = replace(rank(0, ()), note="its Python prints no stack on a signal (see stall.minutes)")


# What ranks do, by the names that the table has for it.
FRAMES_OF = {
    "reduces": REDUCE, "broadcasts": BROADCAST, "reads": READ, "reads-later": LATER, "next": NEXT,
    "idles": IDLE, "reads-idle": (READ[0], *IDLE), "blank": (),
}  # fmt: skip
# Why it has no stack.
NOTES = {"ended": "exited with 0", "left": "exited with 1", "blind": BLIND.note}


def stacks_of(words: str) -> list[ProcessStack]:
    """Return the stacks of words such as "0-2 reads state=T": ranks, what they do, and more fields.
    `3 child in=idles` is a data worker of rank 3."""
    numbers, does, *more = words.split()
    given = dict(each.split("=") for each in more)
    first, _, last = numbers.partition("-")
    made = child if does == "child" else rank
    frames = FRAMES_OF.get(given.pop("in", does), ())
    note = {"note": NOTES[does]} if does in NOTES else {}
    state = {"state": does} if does in ("ended", "left") else {}
    return [
        replace(made(number, frames), **state, **note, **given)
        for number in range(int(first), int(last or first) + 1)
    ]


def report(*changed: ProcessStack, ranks: int = 4, of: tuple[Frame, ...] = REDUCE) -> HangReport:
    """The report on so many ranks that all do the same but for these; two on each node."""
    numbers = {stack.rank for stack in changed if not stack.is_child}
    everyone = [rank(number, of) for number in range(ranks) if number not in numbers]
    nodes: dict[int, list[ProcessStack]] = {}
    for stack in (*everyone, *changed):
        nodes.setdefault(stack.rank // 2, []).append(stack)
    return judged(nodes)


def judged(nodes: Mapping[int, Sequence[ProcessStack]], silent: Sequence[int] = ()) -> HangReport:
    return judge(nodes, lambda node: f"worker-{node} (node-{node})", silent)


THREE = "3 of 4 ranks wait in all_reduce, train.py:88; rank 3 on worker-1 (node-1) "


@pytest.mark.promise("of ranks that hang, the one that the others wait for is named")
@pytest.mark.parametrize(("changed", "words"), TABLE["behind"])
def test_the_rank_that_the_others_wait_for(changed: list[str], words: str) -> None:
    verdict = report(*(stack for each in changed for stack in stacks_of(each)))
    assert verdict.lines[0] == words
    assert words.endswith(verdict.blamed)
    assert verdict.blamed


@pytest.mark.control("of ranks that hang, the one that the others wait for is named")
@pytest.mark.parametrize(("stacks", "words"), TABLE["alike"])
def test_nobody_is_blamed_where_none_is_behind(stacks: list[str], words: str) -> None:
    verdict = judged({0: [stack for each in stacks for stack in stacks_of(each)]})
    assert verdict.lines[0].startswith(words)
    assert verdict.blamed == ""


def test_a_line_of_a_loop_does_not_make_a_rank_different() -> None:
    """Ranks that work are compared by function."""
    stacks = [rank(n, (replace(READ[0], line=n), MAIN)) for n in range(4)]
    assert judged({0: stacks}).blamed == ""


def test_ranks_that_wait_at_two_lines_are_two_groups() -> None:
    """Two calls of one collective in a function: whoever waits in the second has passed the
    first."""
    ahead = (*REDUCE[:2], replace(MAIN, line=95))
    blamed = report(rank(3, ahead)).blamed
    assert blamed == "rank 3 on worker-1 (node-1) waits in all_reduce, train.py:95"


@pytest.mark.promise("stacks of 128 ranks are shown in 40 lines at most")
@pytest.mark.parametrize("kinds", [1, 2, 128])
def test_the_report_is_short(kinds: int) -> None:
    long = "x" * 100
    deep = tuple(Frame(long, long, n, False) for n in range(FRAMES))
    stacks = [rank(n, (replace(deep[0], function=f"f{n % kinds}"), *deep[1:])) for n in range(128)]
    nodes = {node: stacks[8 * node : 8 * node + 8] for node in range(16)}
    lines = judged(nodes, silent=range(16, 500)).lines
    assert 1 < len(lines) <= LINES
    assert all(len(line) <= 700 for line in lines)


def test_the_verdict_is_cut_at_600_characters() -> None:
    verdict = report(rank(3, (Frame("x" * 1000, "/w/data.py", 31, False), MAIN)))
    assert verdict.lines[0].startswith(f"{THREE}is in xxx")
    assert [len(verdict.lines[0]), len(verdict.blamed)] == [600, 600]


@pytest.mark.control("stacks of 128 ranks are shown in 40 lines at most")
def test_each_place_is_shown() -> None:
    lines = "\n".join(report(rank(3, READ), ranks=128).lines)
    assert lines.startswith("127 of 128 ranks wait in all_reduce, train.py:88; rank 3 on worker-1")
    assert "127 ranks (0-2, 4-127): waits in all_reduce, train.py:88" in lines
    assert "    | read (/w/data.py:31)" in lines


def test_what_is_missing_is_said_once() -> None:
    lines = judged({0: [BLIND, replace(BLIND, rank=1)]}, silent=[4]).lines
    assert "no stacks from worker-4 (node-4)" in lines
    assert "  2 ranks: its Python prints no stack on a signal (see stall.minutes)" in lines


def test_the_operations_of_the_flight_recorder_are_shown_the_rarest_first() -> None:
    first, last = "all_reduce 41 of default_pg, started", "all_reduce 40 of default_pg, complete"
    stacks = [replace(rank(n), operation=last if n == 3 else first) for n in range(128)]
    lines = judge({0: stacks[:64], 1: stacks[64:]}, str).lines
    assert [line for line in lines if "recorder" in line] == [
        f"  torch's flight recorder: rank 3 on 0: {last}",
        f"  torch's flight recorder: 127 ranks (0-2, 4-127): {first}",
    ]
    different = [replace(stack, operation=f"send {stack.rank}") for stack in stacks]
    lines = judge({0: different}, str).lines
    assert sum("recorder" in line for line in lines) == 6


def test_a_program_that_is_no_rank_has_its_name() -> None:
    program = replace(rank(-1), what="ray")
    assert judged({0: [program]}).lines[1].startswith("  ray on worker-0 (node-0): ")


def test_a_deep_stack_keeps_the_program_s_own_frames() -> None:
    inner = [Frame(f"i{n}", "site-packages/x.py", n, True) for n in range(30)]
    called = Frame("all_reduce", C10D, 1, True)
    kept = chosen((*inner, called, MAIN, *inner))
    assert len(kept) <= FRAMES
    assert kept[:2] == tuple(inner[:2])
    assert kept[-2:] == (called, MAIN)
    assert position(rank(0, kept)).words == "waits in all_reduce, train.py:88"


# --------------------------------------------------------------------------------------------------
# Steps


def host(node: int) -> str:
    return f"worker-{node}"


def table(*rows: tuple[int, int, float], now: float = 100.0) -> StepTable:
    steps = StepTable()
    for number, step, age in rows:
        steps.take(number, [(number, step, age)], now)
    return steps


def test_ranks_that_are_behind_are_named_with_their_step() -> None:
    steps = table((0, 57, 1.0), (1, 41, 90.0), (2, 57, 2.0))
    assert steps.idle(100.0, 0.0) == 90.0
    assert steps.words(100.0, 60.0, 0.0, host) == (
        "1 of 3 ranks printed no line that stall.line matches for 1m30s; rank 1 on worker-1 is at"
        " 41; the others are at 57"
    )


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        (table(), "no rank has printed a line that stall.line matches for 1m40s"),
        (table((0, 7, 80.0), (1, 7, 90.0)), "no rank has printed a line that stall.line matches for 1m30s; all are at 7"),
        (
            table((0, 42, 90.0), (1, 41, 90.2), (2, 42, 90.1)),
            "no rank has printed a line that stall.line matches for 1m30s; all are at 41 to 42",
        ),
        (
            table((0, 10**14, 90.0), (1, 41, 1.0), (2, 41, 1.2)),
            "1 of 3 ranks printed no line that stall.line matches for 1m30s; all are at 41 to"
            " 100000000000000",
        ),
        (
            table(*((n, n, 90.0 - 3 * n) for n in range(8))),
            "no rank has printed a line that stall.line matches for 1m30s; rank 0 on worker-0 is at"
            " 0, rank 1 on worker-1 is at 1, rank 2 on worker-2 is at 2, rank 3 on worker-3 is at 3,"
            " 2 more are behind; the others are at 7",
        ),
    ],
)  # fmt: skip
def test_what_is_said_of_steps(steps: StepTable, words: str) -> None:
    assert steps.words(100.0, 60.0, 0.0, host) == words


@pytest.mark.control("a rank that shows no step for stall.minutes has stalled")
def test_a_rank_that_shows_none_does_not_count() -> None:
    """Such as all ranks but the first one in many programs."""
    assert table((0, 9, 1.0)).idle(100.0, 0.0) == 1.0


def test_a_node_replaces_what_it_has_said() -> None:
    steps = table((0, 9, 1.0), (1, 9, 90.0))
    steps.take(1, [], 100.0)
    assert steps.idle(100.0, 0.0) == 1.0
    steps.take(0, (), 90.0)
    assert steps.idle(100.0, 40.0) == 10.0, "once all have ended, the time counts anew"


def test_a_step_from_the_future_is_now() -> None:
    assert table((0, 1, -500.0)).idle(100.0, 0.0) == 0.0


@pytest.mark.promise("one rank that prints a wrong step does not count as the job's progress")
@pytest.mark.parametrize(
    ("steps", "reached"),
    [
        ([], -1),
        ([7], 7),
        ([7, 10**14], 7),
        ([7, 8, 10**14], 8),
        ([0, 8, 8], 8),
        ([7, 7, 10**14, 10**14], 7),
        ([9, 9, 9, 7, 0], 9),
    ],
)
def test_the_step_of_a_job_is_that_of_most_ranks(steps: list[int], reached: int) -> None:
    assert table(*((n, step, 1.0) for n, step in enumerate(steps))).reached() == reached


class Noted(StepWatch):
    """A watch that keeps the steps."""

    def __init__(self, text: str) -> None:
        super().__init__(pattern_of(text), -1)
        self.steps: list[int] = []

    def note(self, step: int) -> None:
        self.steps.append(step)


@pytest.mark.promise("a rank that shows no step for stall.minutes has stalled")
@pytest.mark.parametrize(
    ("pieces", "steps"),
    [
        ([b"step 1\n", b"step 2\nother\n"], [1, 2]),
        ([b"ste", b"p 12", b"3\n"], [123]),
        ([b"step 1\rstep 2\r"], [2]),
        ([b"step 1\nstep 2\nstep 3\n"], [3]),
        ([b"\xff\xfe step 4 \xff\n"], [4]),
        ([b"x" * 256 + b"step 5\n"], []),
        ([b"y" * 10_000_000 + b"step 5\n", b"step 6\n"], [6]),
        ([b"nothing\n" * 1000], []),
    ],
)
def test_which_lines_are_steps(pieces: list[bytes], steps: list[int]) -> None:
    watch = Noted("step {step}")
    for piece in pieces:
        watch.take(piece)
    assert watch.steps == steps


@pytest.mark.parametrize(("text", "line", "steps"), TABLE["numbers"])
def test_the_number_in_place_of_step_is_taken(text: str, line: str, steps: list[int]) -> None:
    watch = Noted(text)
    watch.take(f"{line}\n".encode())
    assert watch.steps == steps
    assert load(f"stall: {{line: '{text}'}}", "job.yaml", {}, {}).stall.line == text


@pytest.mark.parametrize(
    ("text", "example"),
    [*TABLE["expressions"], ("x" * 200 + "{step}", "step {step}/")],
)
def test_a_regular_expression_is_refused_with_the_text_to_write(text: str, example: str) -> None:
    with pytest.raises(SpecError) as raised:
        load("", "job.yaml", {"ENTRYPOINT_STALL_LINE": text}, {})
    (problem,) = raised.value.problems
    assert (problem.path, problem.hint) == (
        "stall.line",
        f"write {{step}} where the number is, such as `{example}`",
    )


# --------------------------------------------------------------------------------------------------
# When a job has stalled


class Job(Node):
    """Three nodes, and a limit of two minutes: each node's ranks have printed nothing for so long,
    and one rank of each is in such a state."""

    def __init__(
        self, action: str = "stop", line: str = "", first: int = 0, **settings: Any
    ) -> None:
        stall = f"{{minutes: 2, first: {first}, action: {action}{line and f', line: {line!r}'}}}"
        super().__init__(**{"launcher": "plain", "stall": stall, **settings})
        self.start()

    def prints_nothing(self, *idle: float, seconds: float = 11.0) -> Job:
        """That is so for some seconds, in which the leader looks at it."""
        self.idle = list(idle) if len(idle) > 1 else [*idle] * 3
        self.waits(seconds)
        return self

    @property
    def shows(self) -> int:
        """How often all stacks were asked for."""
        return self.done.count(actions.Send(2, messages.Stacks()))


DIFFERS = ("S", "S", "T")


def test_who_prints_while_stacks_are_read_ends_no_job() -> None:
    job = Job()
    reply = job.reply

    def prints(node: int, message: Any) -> list[Any]:
        if isinstance(message, messages.Stacks):
            job.hears(messages.Pong(1.0, 0), sender=node)
        return reply(node, message)

    job.reply, job.states = prints, list(DIFFERS)  # type: ignore[method-assign]
    assert job.prints_nothing(150.0).shows == 1
    assert job.outcome is None


@pytest.mark.promise("a checkpoint that grows is no stall")
@pytest.mark.control("a checkpoint that grows is no stall")
@pytest.mark.parametrize("line", ["", "step {step}"])
def test_a_checkpoint_that_grows_is_no_stall(line: str) -> None:
    """One that has grown two minutes ago is no sign of life: the control."""
    job = Job("warn", line, restarts="{most: 1, without_progress: 1, progress: /ckpt}")
    job.steps = [(0, 9, 900.0), (2, 5, 910.0), (4, 9, 900.0)]
    job.hears(messages.Grew(), sender=1)
    assert job.prints_nothing(900.0, seconds=119.0).shows == 0
    assert job.prints_nothing(900.0).shows == 1
    assert ("and /ckpt has not grown, for 2m" in "\n".join(logged(job.done))) == (not line)


@pytest.mark.promise("a first step within stall.first is no stall")
@pytest.mark.control("a first step within stall.first is no stall")
@pytest.mark.parametrize("line", ["", "step {step}"])
def test_the_first_step_may_take_longer(line: str) -> None:
    """What is silent for longer than that has stalled, and the message has the whole time: the
    control."""
    job = Job("warn", line, first=10)
    for _ in range(5):
        assert job.prints_nothing(900.0, seconds=118.0).shows == 0
    assert job.prints_nothing(900.0, seconds=21.0).shows == 1
    assert f"for {'10m' if line else '15m00s'}" in "\n".join(logged(job.done))


@pytest.mark.control("a first step within stall.first is no stall")
def test_after_the_first_step_the_usual_limit_holds() -> None:
    job = Job("warn", "step {step}", first=60)
    job.hears(messages.Steps(((0, 1, 0.0),)))
    job.steps = [(0, 1, 0.0)]
    assert job.prints_nothing(0.0, seconds=60.0).shows == 0
    job.steps = [(0, 1, 125.0)]
    assert job.prints_nothing(0.0).shows == 1


# --------------------------------------------------------------------------------------------------
# What a Python prints


SITE = "/opt/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
DUMP = f"""Thread 0x00007f01 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 327 in wait
  File "/w/other.py", line 1 in beat

Current thread 0x00007f02 (most recent call first):
  File "{SITE}", line 1 in all_reduce
  File "/w/train.py", line 88 in main
"""
EXPECTED = (Frame("all_reduce", C10D, 1, True), MAIN)


def test_the_main_thread_s_frames_are_read() -> None:
    assert parsed_dump(DUMP) == EXPECTED


@pytest.mark.parametrize(
    "text", ["", "{}", "Thread ", DUMP.partition("File")[0], "\N{REPLACEMENT CHARACTER}"]
)
def test_nonsense_shows_nothing(text: str) -> None:
    assert parsed_dump(text) == ()


def test_a_forked_process_has_no_frames_of_its_parent() -> None:
    forked = """Current thread 0x00007f02 (most recent call first):
  File "/w/data.py", line 31 in load
  File "/usr/lib/python3.11/multiprocessing/process.py", line 3 in _bootstrap
  File "/w/train.py", line 80 in main
"""
    assert [frame.function for frame in parsed_dump(forked)] == ["load", "_bootstrap"]


@pytest.mark.parametrize(
    ("file", "name", "library"),
    [
        ("/w/train.py", "/w/train.py", False),
        ("<string>", "<string>", False),
        ("<frozen runpy>", "<frozen runpy>", True),
        ("/usr/lib/python3.11/queue.py", "queue.py", True),
        ("/usr/lib/python3/dist-packages/mpi4py/run.py", "mpi4py/run.py", True),
        (SITE, "torch/distributed/distributed_c10d.py", True),
        (f"/{'a' * 200}/b.py", f"...{'a' * 92}/b.py", False),
    ],
)
def test_a_library_is_named_from_its_own_name_on(file: str, name: str, library: bool) -> None:
    frame = frame_of("f", file, 1)
    assert (frame.file, frame.library) == (name, library)
