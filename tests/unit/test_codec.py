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
from tests import table as cases
from tests.extending import blocks

TABLE = cases("tests/tables/codec.yaml")

# A message of each kind that has many fields.
SAMPLES: dict[str, dict[str, Any]] = TABLE["samples"]
FACTS, PHASES, HELLO = (SAMPLES[kind] for kind in ("node_info", "phases", "hello"))
CAUSE = SAMPLES["diagnosis"]["cause"]
PONG = pack(messages.Pong(1.0, 0))


def with_samples(rows: list[list[Any]]) -> list[list[Any]]:
    return [[kind, {**SAMPLES.get(kind, {}), **fields}, *rest] for kind, fields, *rest in rows]


def line(kind: str, **fields: Any) -> bytes:
    """A message as it comes over the network, good or not."""
    return json.dumps({"kind": kind, **fields}).encode()


def worker(kind: str, **fields: Any) -> Any:
    """What is understood of it, as it would be passed on."""
    return json.loads(pack(unpack(line(kind, **fields), BY_WORKER)))


@pytest.mark.parametrize(("kind", "fields"), with_samples(TABLE["arrives"]))
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
        *with_samples(TABLE["refused"]),
        ("node_info", {**FACTS, "ports": [6060] * 65}, "not a list of at most 64"),
        ("pong", {"idle": 10**400}, "pong.idle: not a number"),
        ("pong", {"idle": 0, "number": 0, "memory": [1, 10**400]}, "pong.memory[1]: not a whole number"),
        ("phases", {**PHASES, "phases": PHASES["phases"] * 5000}, "phases.phases: not a list of at most 4096"),
        ("hello", HELLO, "no kind of message"),
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


@pytest.mark.parametrize(("kind", "fields"), with_samples(TABLE["of_a_leader"]))
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
