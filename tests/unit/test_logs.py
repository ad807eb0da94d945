"""Output as lines: what JSON keeps of any bytes, and that pieces of many ranks are whole lines
again."""

from __future__ import annotations

import base64
import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from entrypoint.base.kept import OutputForm
from entrypoint.base.model import Device, Node, Topology
from entrypoint.output import framing, lines
from entrypoint.output.framing import tag
from entrypoint.spec.logs import LogsSpec

pieces = st.lists(
    st.binary(max_size=60)
    | st.sampled_from([b"a\r\n", b"\r", b"\n", b" ", b"\x1e\x1f\x10<[1,0]<stdout>: "])
)

ENDS = re.compile(rb"[\r\n]+")
OPEN_MPI = tag("tags")


def plain(prefix: bytes = b"") -> lines.Lines:
    return lines.Lines(lines.text(prefix, timestamps=False))


def through(maker: framing.Framer, given: list[bytes]) -> bytes:
    """What is written."""
    return b"".join([maker.take(data) for data in given]) + maker.rest()


@pytest.mark.promise("a line cut anywhere is whole again, and JSON returns every byte")
@given(given=pieces)
def test_json_lines_are_what_was_printed(given: list[bytes]) -> None:
    maker = lines.Lines(lines.json(lines.origin("job", "worker-1", "w1", 2), "3", "stdout"))
    text = b"".join([maker.take(data) for data in given]) + maker.rest()
    back = b""
    for line in text.splitlines():
        found = json.loads(line)
        assert (found["node"], found["rank"], found["stream"]) == ("worker-1", 3, "stdout")
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", found["time"])
        body = base64.b64decode(found["base64"]) if "base64" in found else found["text"].encode()
        assert ("base64" in found) == (body.decode(errors="replace").encode() != body)
        back += body + (b"" if found.get("partial") else b"\n")
    assert back == b"".join(given)


@pytest.mark.parametrize(
    ("text", "level", "id"),
    [
        ("EP600 rank 3 exited with 1; exit 1", "error", "EP600"),
        ("warning: EP609 no more processes", "warning", "EP609"),
        ("warning: something", "warning", ""),
        ("started: mpirun", "info", ""),
        ("EPOCH 3", "info", ""),
        ("", "info", ""),
    ],
)
def test_a_message_has_a_level_and_an_id(text: str, level: str, id: str) -> None:
    assert lines.level_and_id(text) == (level, id)


def test_each_line_has_its_prefix() -> None:
    maker = plain(b"[3] ")
    assert maker.take(b"one\ntw") == b"[3] one\n"
    assert maker.take(b"o\n1%\r2%\r") == b"[3] two\n[3] 1%\r[3] 2%\r"
    assert maker.take(b"last") + maker.rest() == b"[3] last\n"


def test_a_line_end_whose_halves_come_apart_is_one() -> None:
    maker = plain(b"[3] ")
    assert maker.take(b"one\r") + maker.take(b"\ntwo\r\n") == b"[3] one\r\n[3] two\r\n"


def test_a_megabyte_stays_one_line_and_no_end_is_cut() -> None:
    maker = plain(b"> ")
    parts = [maker.take(b"x" * 65536) for _ in range(16)]
    assert b"".join(parts) + maker.take(b"\n") == b"> " + b"x" * (1 << 20) + b"\n"
    endless = b"".join([maker.take(b"x" * 65536) for _ in range(100)]) + maker.rest()
    assert endless.replace(b"> ", b"").replace(b"\n", b"") == b"x" * 6553600
    assert max(map(len, endless.split(b"\n"))) < lines.LONGEST + 70000


# An MPI, and how it begins each piece of a rank.
TAGS = [("tags", b"[1,%d]<stdout>:"), ("spaced-tags", b"[1,%d]<stdout>: ")]


@pytest.mark.promise(
    "a line cut anywhere is whole again, and JSON returns every byte",
    control="bare mpirun, in loopback/test_logs.py",
)
@pytest.mark.parametrize(("mpi", "begin"), TAGS)
@given(
    given=st.lists(pieces, min_size=2, max_size=2), cut=st.integers(1, 50), read=st.integers(1, 90)
)
def test_what_an_mpi_cuts_and_tags_is_whole_again(
    mpi: str, begin: bytes, given: list[list[bytes]], cut: int, read: int
) -> None:
    streams = [
        through(framing.for_mpirun(plain(b"%d " % rank)), each) for rank, each in enumerate(given)
    ]
    whole = b"".join(
        through(framing.Framer(plain(b"%d " % rank)), each) for rank, each in enumerate(given)
    )
    mixed = b""
    for at in range(0, max(map(len, streams)), cut):
        mixed += b"".join(
            begin % rank + each[at : at + cut] for rank, each in enumerate(streams) if each[at:]
        )
    united = framing.TaggedInput(plain(b"? "), tag(mpi))
    came = through(united, [mixed[at : at + read] for at in range(0, len(mixed), read)])
    assert sorted(came) == sorted(whole), "no byte is lost"
    assert sorted(filter(None, ENDS.split(came))) == sorted(filter(None, ENDS.split(whole)))


def test_what_no_rank_has_sent_is_told_apart() -> None:
    united = framing.TaggedInput(plain(b"[-] "), OPEN_MPI)
    came = united.take(
        b"mpirun: a warning\n[1,0]<stderr>:sh: not found\n[1,1]<stderr>:\x1eours\x1f"
    )
    assert came == b"[-] mpirun: a warning\n[-] sh: not found\nours\n"


def whole() -> lines.Lines:
    return lines.Lines(lines.as_it_is)


def test_a_launcher_s_text_loses_its_control_bytes() -> None:
    """A rank's own stay, and colours do."""
    text = b"\x1b[31mprterun\x1b[0m noticed\t\0\n\x07\0[entrypoint] EP601\r\n"
    shown = b"\x1b[31mprterun\x1b[0m noticed\t\n[entrypoint] EP601\r\n"
    rank = b"of a rank\0\x07\n"
    united = framing.TaggedInput(whole(), OPEN_MPI)
    piece = b"[1,0]<stdout>:" + framing.for_mpirun(whole()).take(rank)
    assert united.take(text) + united.rest() == shown
    assert united.take(piece) == rank


@given(given=pieces)
def test_whole_lines_are_what_was_printed(given: list[bytes]) -> None:
    maker = whole()
    came = [maker.take(data) for data in given]
    assert all(each.endswith((b"\n", b"\r")) for each in came if each)
    assert b"".join(came) + maker.rest() == b"".join(given)


@given(given=pieces, cut=st.integers(1, 90))
def test_a_line_that_is_passed_on_without_its_end(given: list[bytes], cut: int) -> None:
    """What the keeper of a rank passes on after some time comes out at once behind an MPI."""
    printed = b"".join(given)
    sender, united = framing.for_mpirun(whole()), framing.TaggedInput(whole(), OPEN_MPI)
    sent = through(sender, [printed])
    tagged = [b"[1,0]<stdout>:" + sent[at : at + cut] for at in range(0, len(sent), cut)]
    assert b"".join(map(united.take, tagged)) == printed
    assert united.rest() == b""


def test_mpirun_s_own_message_behind_a_rank_s_line_is_a_line() -> None:
    united = framing.TaggedInput(whole(), OPEN_MPI)
    came = united.take(b"[1,0]<stderr>:\x1eone\x1f") + united.take(b"---\nmpirun: a warning\n---\n")
    came += united.take(b"[1,0]<stderr>:two\x1fthr") + united.take(b"[1,0]<stderr>:ee\x1f")
    assert came == b"one\n---\nmpirun: a warning\n---\ntwo\nthree\n"


def test_what_has_no_end_is_not_continued_by_another() -> None:
    """A prompt, or the last words of a rank: its own sender may go on with it, others begin a new
    line."""

    def sent(number: int, text: bytes) -> bytes:
        return b"[1,%d]<stdout>:" % number + framing.for_mpirun(whole()).coded(text)

    def read(*pieces: bytes) -> bytes:
        return through(framing.TaggedInput(whole(), OPEN_MPI), [*pieces])

    assert read(sent(1, b"name? "), sent(1, b"x\n")) == b"name? x\n"
    assert read(sent(1, b"last"), sent(2, b"line\n"), sent(1, b"x\n")) == b"last\nline\nx\n"
    assert read(sent(1, b"last"), b"mpirun's own\n") == b"last\nmpirun's own\n"
    assert read(sent(2, b"line\n"), sent(1, b"last")) == b"line\nlast"


@pytest.mark.parametrize(
    ("logs", "given", "expected"),
    [
        (LogsSpec(), {}, {}),
        (LogsSpec(), {"is_one_of_several": True}, {"lines": "whole"}),
        (LogsSpec(format="json"), {}, {"lines": "json", "node": "worker-0", "job": "job", "host": "a"}),
        (
            LogsSpec(timestamps="utc", prefix="{job}-{host}-{rank}"),
            {"rank": "3"},
            {"lines": "text", "node": "worker-0", "job": "job", "host": "a", "timestamps": True, "prefix": "job-a-{rank}", "rank": "3"},
        ),
        (
            LogsSpec(files="ranks"),
            {"rank": "3"},
            {"rank": "3", "log": "/logs/job-worker-0-rank-3.log", "max_size": 10485760, "max_files": 5},
        ),
    ],
)  # fmt: skip
def test_the_form_of_an_output(
    logs: LogsSpec, given: dict[str, Any], expected: dict[str, Any]
) -> None:
    device = Device("cpu", 0, "")
    here = Topology("job", (Node(0, "a", 1),), 0, "local", device, "/r", "u", log_dir="/logs")
    assert logs.copied(here, logs.output(here, **given)) == OutputForm(**expected)
