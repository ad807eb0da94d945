"""The judgement on the log of any job, for `entrypoint explain FILE`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from entrypoint.base.cause import BLAMES, LINE, Cause
from entrypoint.base.tables import rows, table
from entrypoint.base.text import from_json, is_utf16, one_line
from entrypoint.base.values import replace
from entrypoint.causes import clean
from entrypoint.causes.evidence import DeviceFault
from entrypoint.causes.judge import judge
from entrypoint.causes.measured import shown_by
from entrypoint.causes.phrase import BLAMES_IN_WORDS, RETRIES_IN_WORDS, phrase
from entrypoint.causes.table import ENDS, KINDS, signatures
from entrypoint.features.explain.layout import LONG, row

_ROLES = table("""
    root    | these lines show the first failure
    cascade | these lines show a consequence: the cause is in the output of another rank or node
    unclear | these lines may show the first failure, or a consequence of it
""")
_CERTAINTIES = {"high": "sure", "low": "likely; other causes print the same"}
_OWN = r".{0,120}\[entrypoint[^\]]{0,200}\] (?P<text>.{1,2000})"
_HEAD = r"last \d{1,9} lines? of (?P<place>.{1,300}):"  # of a failed rank's output
_END = r"(?:EP60[01] (?P<place>.{1,300}) exited with )?.*; exit (?P<status>\d{1,3})"
# Words for causes that no table has: what a node measures, and what the leader knows.
_OTHER_WORDS = rows("""
    host-oom   | the memory of this container was used up, and the kernel killed a process
    disk-full  | no space was left in {folder}
    proc-limit | the container's limit of processes was reached
    gpu-lost   | {device} is missing
    gpu-lost   | {device} reported a fault ({detail})
    node-lost  | {node} is lost: {why}
""")
_TEXT_FIELDS = ("text", "log", "message", "msg")  # of a line that is a JSON object


def lines_of(data: bytes) -> list[str]:
    """Return the lines of a log: what replaced a line in a terminal is a line of its own, and of a
    line that is a JSON object, as Docker and others write, the text."""
    text = data.decode("utf-8", "replace")
    if is_utf16(text):
        text = data.decode("utf-16", "replace")
    lines = re.split(r"\r\n|\n|\r", text)
    return [_unpacked(line) if line.startswith("{") else line for line in lines]


def _unpacked(line: str) -> str:
    if len(line) > clean.LONGEST * 4:
        return line
    try:
        fields = from_json(line)
    except ValueError:
        return line
    texts = map(fields.get, _TEXT_FIELDS)
    return next((text.rstrip("\n") for text in texts if isinstance(text, str)), line)


def text(cause: Cause, width: int) -> str:
    """Return the judgement for a terminal of `width` columns."""
    role = [("role", _ROLES[cause.role])] if cause.lines else []
    certain = ("certain", _CERTAINTIES[cause.certainty])
    lines = [("" if number else "shown by", line) for number, line in enumerate(cause.lines)]
    rows = [("cause", phrase(cause)), *role, certain, *lines, ("fix", cause.fix)]
    return "\n".join([cause.slug, *(row(name, words, width) for name, words in rows)]) + "\n"


def about(words: str, width: int) -> str:
    """Return the causes that words name, for a terminal of `width` columns: what the judge makes of
    them, or the kinds or signatures that contain them; "" if there are none."""
    cause = judge([words])
    word = words.lower()
    rows = [
        kind
        for kind in ([KINDS[word]] if word in KINDS else KINDS.values())
        if word in f"{kind.slug} {kind.meaning}".lower()
    ]
    if cause.lines and not rows:
        return text(cause, width)
    rows = rows or [one for one in signatures() if word in f"{one.needle} {one.says}".lower()]
    causes = dict.fromkeys(
        Cause(one.slug, one.role, one.blame, one.retry, one.certainty, one.says, one.fix)
        for one in rows
    )
    if len(causes) > LONG:
        return "".join(f"  {cause.slug:<20}{phrase(cause)}\n"[:width] for cause in causes)
    return "\n".join(text(cause, width) for cause in causes)


def explained(lines: Sequence[str], status: int | None = None, signal: str = "") -> Cause:
    """Return why the job of this log failed: what this toolkit has said of it, or else what its
    output shows."""
    own = dict(_own_lines(lines))
    ends = [found for text in own.values() if (found := re.fullmatch(_END, text))]
    if ends and status is None and not signal:
        status = int(ends[-1]["status"])
    if status == 0:
        return judge(lines, status, signal)
    for text in reversed(own.values()):
        if text.startswith("cause: ") and (said := read_phrase(text.removeprefix("cause: "))):
            return replace(said, lines=(one_line(text, LINE),))
    if ends and (said := judge([ends[-1][0]])).lines:
        return said
    cause = judge(lines, status, signal)
    rank, node = _origin(cause, lines, own, ends[-1]["place"] if ends else "")
    return replace(cause, rank=rank, node=node or cause.node)


def _own_lines(lines: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Yield the lines of this toolkit without what names it: number and text. In a line of JSON
    nothing does."""
    for number, line in enumerate(lines):
        found = re.match(_OWN, line) if "[entrypoint" in line[:200] else None
        if found:
            yield number, found["text"]
        elif line.startswith(("cause: ", "EP6")):
            yield number, line[:2000]


def _origin(
    cause: Cause, lines: Sequence[str], own: Mapping[int, str], place: str | None
) -> tuple[str, str]:
    """Return the rank and the node that failed: as the toolkit names them, or the prefix of the
    first line that shows the cause. `place` is that of the job's end."""
    shown = cause.lines[0] if cause.lines else ""
    rank, node = clean.origin(shown)
    rank = f"rank {rank}" if rank else ""
    # of an exception that goes on below, the judge shows more than its first line
    begins = {at: one_line(lines[at].strip(), LINE) for at in own if shown}
    number = next((at for at, line in begins.items() if line and shown.startswith(line)), None)
    if number is not None:  # it is in the output that the leader repeats
        heads = (re.fullmatch(_HEAD, own[at]) for at in own if at < number)
        rank, node = "", ""
        place = next((head["place"] for head in reversed([*heads]) if head), place)
    if not place:
        return rank, node
    name, _, where = place.partition(" on ")
    return (rank, node) if rank and rank != name else (name if "rank" in name else "", where)


def read_phrase(text: str) -> Cause | None:
    """Return the cause that was said in these words; None if they are those of none."""
    says, _, about = text.removesuffix(")").rpartition(" (")
    parts = about.split("; ")
    retry = next((name for name, words in RETRIES_IN_WORDS.items() if words in parts), None)
    if retry is None:
        return None
    xid = re.search(r" reported Xid (\d{1,4})\b", says)
    slug = shown_by(DeviceFault("", "xid", "", int(xid[1]))) if xid else "user-code"
    rows = (*KINDS.values(), *signatures(), *ENDS.values())
    words = (*_OTHER_WORDS, *((row.slug, row.says) for row in rows))
    fitting = [  # with something in place of their fields
        (len(said), name)
        for name, said in words
        if all(part in says for part in re.split(r"{\w{1,20}}", said))
    ]
    _, slug = max(fitting, default=(0, slug))
    kind = KINDS[slug]
    return Cause(
        slug,
        kind.role,
        next((name for name in BLAMES if BLAMES_IN_WORDS.get(name, name) == parts[0]), "unknown"),
        retry,
        "low" if "not certain" in parts else "high",
        says,
        kind.fix,
    )
