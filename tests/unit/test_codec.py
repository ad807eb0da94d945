"""What may arrive from another node: kinds, types, ranges, sizes; everything else is refused with
what was seen."""

from __future__ import annotations

import json
import re
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from entrypoint.base.cause import Cause
from entrypoint.base.text import one_line
from entrypoint.base.wire import Invalid
from entrypoint.job import messages
from entrypoint.session import codec
from entrypoint.session.codec import BY_LEADER, BY_WORKER, TO_LEADER, Intake, pack, unpack
from tests.extending import blocks

FACTS: dict[str, Any] = {
    "slots": 8,
    "mpi": "4.1.4",
    "toolkit": "1.2",
    "clock": 1e9,
    "history": {"attempt": 1, "without_progress": 0, "step": -1, "leaves": 0, "earlier": 0},
    "not_ready": None,
}
FACTS |= {"interface": ["eth0", "10.0.0.7", "10.0.0.0/24"], "interfaces": ["eth0", "docker0"]}
FACTS |= {"ports": [6060, 20007], "holder": "", "unhealthy": False, "checking": False}
FACTS |= {"cpu_pool": "6321ed15-049f-42c0-abff-89da57874226 0-1/2 0", "leader_lost": 20.5}
RANK: dict[str, Any] = {"rank": 3, "status": 7, "tail": ["a", "b"], "why": ""}
ENDED: dict[str, Any] = {
    "status": 1,
    "what": "torchrun",
    "reason": "it ended",
    "tail": [],
    "last": True,
}
HELLO: dict[str, Any] = {
    "toolkit": "1.2",
    "hosts": ["a", "b"],
    "digest": "",
    "rank": 1,
    "launcher": "plain",
    "env": {"A": "\udcff"},
}
PHASES: dict[str, Any] = {"phases": [["keys", 1.5, 2.0, ""], ["run", 3.0, 4.0, "rank 0"]]}
PHASES |= {"answered": 1.0, "started": 2.0, "released": 0.0, "reported": 5.0}
PONG = pack(messages.Pong(1.0, 0))
HELLO |= {"job": "4711.0", "heartbeat": 15.0, "leader": "a4", "token": "b5", "address": "10.0.0.7"}

CAUSE = {
    "slug": "gpu-ecc",
    "role": "root",
    "blame": "device",
    "retry": "elsewhere",
    "certainty": "high",
    "says": "{device} reported an ECC error",
    "fix": "",
    "device": "GPU 2",
    "lines": ["ECC"],
    "rank": "rank 3",
    "node": "",
}


def line(kind: str, **fields: Any) -> bytes:
    """A message as it comes over the network, good or not."""
    return json.dumps({"kind": kind, **fields}).encode()


def worker(kind: str, **fields: Any) -> Any:
    """What is understood of it, as it would be passed on."""
    return json.loads(pack(unpack(line(kind, **fields), BY_WORKER)))


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("node_info", FACTS),
        ("node_info", {**FACTS, "not_ready": [73, "disk full", False], "clock": 0, "interface": None}),
        ("rank_end", RANK),
        ("rank_start", {"rank": 3, "pid": 4_000_000}),
        ("ended", ENDED),
        ("failed", {"status": 143, "reason": "SIGTERM", "program": False, "stop": True}),
        ("pong", {"idle": 0.25, "number": 0, "failed": 2, "memory": [31 << 30, 32 << 30]}),
        ("pong", {"idle": 0.25, "number": 0, "failed": 2, "memory": None}),
        ("reject", {"summary": "a", "detail": "b", "hint": "c"}),
        ("stopped", {"saved": {"name": "step_70", "seconds": 4.0}}),
        ("force_stop", {}),
        ("signal", {"name": "SIGUSR1"}),
        ("taken", {"why": "another leader has it"}),
        ("checking", {"why": "the memory of GPU 0"}),
        ("checked", {"problem": ""}),
        ("phases", PHASES),
        ("diagnosis", {"cause": CAUSE}),
    ],
)  # fmt: skip
def test_what_a_worker_says_arrives_as_it_is(kind: str, fields: dict[str, Any]) -> None:
    assert worker(kind, **fields) == {"kind": kind, **fields}


def test_what_a_leader_says_arrives_byte_for_byte() -> None:
    assert json.loads(pack(unpack(line("hello", **HELLO), BY_LEADER, "1.2"))) == {
        "kind": "hello",
        **HELLO,
    }
    release = {"status": 0, "reason": "", "program": True, "again": False}
    assert unpack(line("release", **release), BY_LEADER) == messages.Release(0, "", True, False)
    failure = messages.Release(1, "", True, False, Cause(**(CAUSE | {"lines": ("ECC",)})))
    assert unpack(pack(failure), BY_LEADER) == failure


@pytest.mark.promise("a peer that sends what no node sends has failed, and no other node suffers")
@pytest.mark.parametrize(
    ("kind", "fields", "seen"),
    [
        # A failure is never 0, nor a number that an exit status cuts to 0.
        ("node_info", {**FACTS, "not_ready": [0, "x", True]}, "node_info.not_ready[0]: not a whole number from 1 to 255: 0"),
        ("node_info", {**FACTS, "not_ready": [256, "x", True]}, "from 1 to 255"),
        ("node_info", {**FACTS, "not_ready": [True, "x", True]}, "from 1 to 255"),
        ("node_info", {**FACTS, "not_ready": "x"}, "node_info.not_ready: not a list of 3: "),
        ("node_info", {**FACTS, "not_ready": [73, "x", 0]}, "neither true nor false"),
        ("node_info", {**FACTS, "history": {"attempt": 0}}, "node_info.history.attempt: not a whole number from 1"),
        ("node_info", {**FACTS, "not_ready": [73]}, "node_info.not_ready: not a list of 3: [73]"),
        ("failed", {"status": 0, "reason": "x"}, "failed.status: not a whole number from 1 to 255: 0"),
        ("failed", {"status": 256, "reason": "x"}, "from 1 to 255: 256"),
        ("failed", {"status": -1, "reason": "x"}, "from 1 to 255: -1"),
        ("failed", {"status": 1.0, "reason": "x"}, "from 1 to 255"),
        ("failed", {"status": 1, "reason": 5}, "failed.reason: not a text: 5"),
        ("failed", {"status": 1}, "failed.reason: is missing: {"),
        ("ended", {**ENDED, "status": 256}, "from 0 to 255"),
        ("ended", {**ENDED, "last": 1}, "neither true nor false"),
        ("rank_end", {**RANK, "status": 256}, "rank_end.status: not a whole number from 0 to 255: 256"),
        ("rank_end", {**RANK, "rank": -1}, "rank_end.rank: not a whole number"),
        ("rank_end", {**RANK, "rank": 10**23}, "rank_end.rank: not a whole number"),
        ("rank_end", {**RANK, "tail": "no list"}, "not a list of at most 20"),
        ("rank_end", {**RANK, "tail": ["x"] * 21}, "not a list of at most 20"),
        ("rank_end", {**RANK, "tail": [["x"]]}, "not a text"),
        ("rank_start", {"rank": 3, "pid": -1}, "rank_start.pid: not a whole number"),
        ("signal", {"name": ["SIGUSR1"]}, "signal.name: none of SIGUSR1, SIGUSR2"),
        ("node_info", {**FACTS, "interface": ["eth0 -x", "a", "b"]}, "node_info.interface[0]: no name or address"),
        ("node_info", {**FACTS, "interface": ["eth0"]}, "node_info.interface: not a list of 3"),
        ("node_info", {**FACTS, "ports": [0]}, "node_info.ports[0]: not a whole number from 1"),
        ("node_info", {**FACTS, "ports": [65536]}, "node_info.ports[0]: not a whole number"),
        ("node_info", {**FACTS, "ports": [6060] * 65}, "not a list of at most 64"),
        ("node_info", {**FACTS, "ports": 6060}, "node_info.ports: not a list of at most 64"),
        ("node_info", {**FACTS, "slots": 0}, "node_info.slots"),
        ("node_info", {**FACTS, "slots": 10**23}, "node_info.slots"),
        ("node_info", {**FACTS, "slots": "8"}, "node_info.slots"),
        ("node_info", {**FACTS, "clock": float("nan")}, "node_info.clock: not a number"),
        ("pong", {"idle": float("inf")}, "pong.idle: not a number"),
        ("pong", {"idle": 10**400}, "pong.idle: not a number"),
        ("pong", {"idle": 0, "number": 0, "memory": [-1, 1]}, "pong.memory[0]: not a whole number from 0"),
        ("pong", {"idle": 0, "number": 0, "memory": [1, 10**400]}, "pong.memory[1]: not a whole number"),
        ("pong", {"idle": 0, "number": 0, "memory": [1.5, 2]}, "pong.memory[0]: not a whole number"),
        ("pong", {"idle": 0, "number": 0, "memory": [1]}, "pong.memory: not a list of 2"),
        ("pong", {"idle": 0, "number": 0, "memory": 7}, "pong.memory: not a list of 2"),
        ("phases", {**PHASES, "phases": [["lunch", 1.0, 2.0, ""]]}, "phases.phases[0][0]: none of container start"),
        ("phases", {**PHASES, "phases": [["run", 1.0, float("nan"), ""]]}, "phases.phases[0][2]: not a number"),
        ("phases", {**PHASES, "phases": [["run", 1.0]]}, "phases.phases[0]: not a list of 4"),
        ("phases", {**PHASES, "phases": PHASES["phases"] * 5000}, "phases.phases: not a list of at most 4096"),
        ("phases", {**PHASES, "reported": None}, "phases.reported: not a number"),
        ("hello", HELLO, "no kind of message"),
        ("", {}, "no kind of message"),
        ("diagnosis", {}, "cause: is missing"),
        ("diagnosis", {"cause": "ECC"}, "cause: not an object"),
        ("diagnosis", {"cause": CAUSE | {"slug": "witchcraft"}}, "cause: slug: no kind of cause"),
        ("diagnosis", {"cause": CAUSE | {"retry": "always"}}, "cause.retry: none of no, same"),
        ("diagnosis", {"cause": CAUSE | {"lines": ["x"] * 4}}, "cause.lines: not a list of at"),
    ],
)  # fmt: skip
def test_what_no_worker_says_is_refused(kind: str, fields: dict[str, Any], seen: str) -> None:
    with pytest.raises(Invalid) as caught:
        worker(kind, **fields)
    assert seen in str(caught.value)


@pytest.mark.parametrize(
    "line",
    [b"", b"\xff\xfe", b"words", b"[1]", b"null", b'{"kind": {}}', b'{"kind": ["pong"]}', b'{"a": 1}', b"[" * 100_000,
     b'{"kind":' * 50_000, b'{"kind": "pong", "idle": ' + b"9" * 100_000 + b"}"],
)  # fmt: skip
def test_what_is_no_message_is_refused(line: bytes) -> None:
    with pytest.raises(Invalid) as caught:
        unpack(line, BY_WORKER)
    assert len(str(caught.value)) < 200
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("release", {"status": 256, "reason": "", "program": False, "again": False}),
        ("stop", {"grace": -1}),
        ("signal", {"name": "SIGKILL"}),
        ("stop", {"grace": "30"}),
        ("hello", {**HELLO, "env": {"A": 1}}),
        ("hello", {**HELLO, "env": {"A=": "s3cret"}}),
        ("hello", {**HELLO, "env": {"A": "s3cret\0"}}),
        ("hello", {**HELLO, "heartbeat": 0}),
        ("hello", {**HELLO, "hosts": "a"}),
    ],
)
def test_what_no_leader_says_is_refused_and_not_shown(kind: str, fields: dict[str, Any]) -> None:
    with pytest.raises(Invalid) as caught:
        unpack(line(kind, **fields), BY_LEADER, "1.2")
    assert "s3cret" not in str(caught.value)


def test_a_hello_of_another_version_is_one_whatever_else_is_in_it() -> None:
    hello = unpack(line("hello", toolkit="9", hosts=5), BY_LEADER, "1.2")
    assert (hello.toolkit, hello.hosts, hello.leader) == ("9", (), "")
    with pytest.raises(Invalid):
        unpack(line("hello", toolkit="1.2", hosts=5), BY_LEADER, "1.2")


def test_fields_that_nobody_knows_are_left_out() -> None:
    assert worker("force_stop", more=[1]) == {"kind": "force_stop"}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain words, \u5b57 \U0001f600", "plain words, \u5b57 \U0001f600"),
        ("a\nb\r\nc\td", "a b  c d"),
        ("\x1b[31mred\x1b[0m and \x1b]0;title\x07on", "red and on"),
        ("x\x00\x07\x08\x7f\x9b", "x" + "\ufffd" * 5),
        ("\u202eback\u2028line \udcff", "\ufffdback line \ufffd"),
        ("x" * 5000, "x" * 3997 + "..."),
        ("\x1b[0m" * 100_000, "..."),
    ],
)
def test_text_is_one_line_without_control_characters(text: str, shown: str) -> None:
    assert one_line(text) == shown
    assert worker("failed", status=1, reason=text, program=False, stop=False)["reason"] == shown


# --------------------------------------------------------------------------------------------------
# Bytes


def test_messages_may_come_in_any_pieces() -> None:
    data = b"bash: words\n" + line("node_info", **FACTS) + b"\n" + PONG
    for size in (1, 7, len(data)):
        intake, heard = Intake(BY_WORKER, TO_LEADER, 0.0), []
        for at in range(0, len(data), size):
            heard += intake.feed(data[at : at + size], 0.0)
        assert [type(message) for message in heard] == [messages.NodeInfo, messages.Pong]


def refused(intake: Intake, data: bytes, times: int, now: float = 0.0) -> str:
    try:
        for _ in range(times):
            intake.feed(data, now)
    except Invalid as error:
        return str(error)
    return "nothing"


def test_a_line_without_end_is_refused() -> None:
    assert (
        refused(Intake(BY_WORKER, 1 << 20, 0.0), b"x" * 65536, 18)
        == "a line of more than 1048576 bytes"
    )
    assert Intake(BY_WORKER, 1 << 20, 0.0).feed(b"x" * 65536, 0.0) == []


def test_words_are_for_before_the_first_message_and_have_an_end() -> None:
    intake = Intake(BY_WORKER, TO_LEADER, 0.0)
    assert intake.feed(b"welcome\n\n{}\n" + pack(messages.Stopped()), 0.0) == [messages.Stopped()]
    assert refused(intake, b"welcome\n", 1) == "no message: welcome"
    assert (
        refused(Intake(BY_WORKER, TO_LEADER, 0.0), b"welcome\n", 50_000)
        == "a line without an end that is no message: welcome"
    )


@pytest.mark.control("a peer that sends what no node sends has failed, and no other node suffers")
def test_a_flood_of_good_messages_is_refused_and_a_busy_node_is_not() -> None:
    assert (
        refused(Intake(BY_WORKER, TO_LEADER, 0.0), PONG * 1000, 1000)
        == "more messages than any node has a reason to send"
    )
    busy = Intake(BY_WORKER, TO_LEADER, 0.0)
    for second in range(300):  # 1000 a second, for five minutes
        assert len(busy.feed(PONG * 1000, float(second))) == 1000


# --------------------------------------------------------------------------------------------------
# One message more


def with_heat(monkeypatch: pytest.MonkeyPatch, in_table: bool = True) -> tuple[Any, Any]:
    """The messages with the sample of docs/extending/message.md, and the codec, as new modules."""
    block, row, *_ = blocks("message")
    text = Path(messages.__file__).read_text()
    text = text.replace(
        "# Every message that a worker", f"{block}\n\n# Every message that a worker"
    )
    table = "WORKER_SAYS: Mapping[type, tuple[str, ...]] = {\n"
    text = text.replace(table, table + row * in_table)
    made = []
    for module, source in ((messages, text), (codec, Path(codec.__file__).read_text())):
        made.append(types.ModuleType(module.__name__))
        monkeypatch.setitem(sys.modules, module.__name__, made[-1])
        exec(compile(source, str(module.__file__), "exec", dont_inherit=True), vars(made[-1]))
    return made[0], made[1]


@pytest.mark.promise("a new message is one type")
def test_a_message_is_one_type(monkeypatch: pytest.MonkeyPatch) -> None:
    messages, codec = with_heat(monkeypatch)
    heat = messages.Heat((40, 95))
    assert codec.pack(heat) == b'{"kind": "heat", "degrees": [40, 95]}\n'
    intake = codec.Intake(codec.BY_WORKER, codec.TO_LEADER, 0)
    assert intake.feed(codec.pack(messages.Stopped()) + codec.pack(heat), 0) == [
        messages.Stopped(),
        heat,
    ]
    for degrees, why in (
        ([201], "heat.degrees[0]: not a whole number from 0 to 200: 201"),
        ("hot", "not a list"),
    ):
        with pytest.raises(Invalid, match=re.escape(why)):
            codec.unpack(line("heat", degrees=degrees), codec.BY_WORKER)
    with pytest.raises(Invalid, match=r"heat\.degrees: is missing"):
        codec.unpack(line("heat"), codec.BY_WORKER)
    with pytest.raises(Invalid, match="no kind of message"):  # no leader says it
        codec.unpack(codec.pack(heat), codec.BY_LEADER)


@pytest.mark.control("a new message is one type")
def test_a_type_that_no_node_says_is_no_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control."""
    messages, codec = with_heat(monkeypatch, in_table=False)
    with pytest.raises(KeyError):
        codec.pack(messages.Heat((40,)))
    with pytest.raises(Invalid, match="no kind of message"):
        codec.unpack(line("heat", degrees=[40]), codec.BY_WORKER)
