"""The judge of failures: finds the most decisive signature of the output, and weighs it with what
the node measured.

A root wins over what may be one, and that over a consequence. Of several the smallest weight wins
(table.py), then the certain one, then the first in the output.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import NamedTuple

from entrypoint.base.cause import LINE, Cause
from entrypoint.base.text import escaped, one_line, signal_name
from entrypoint.causes import clean, measured, numbers
from entrypoint.causes.clean import Output
from entrypoint.causes.evidence import Evidence
from entrypoint.causes.table import (
    ENDS,
    HARDWARE,
    LAST_EXCEPTION,
    WARNED,
    Signature,
    of_kind,
    signatures,
)

_Rows = dict[str, list[int]]
_TRIES = 20  # lines with a needle that are compared with its pattern
# Characters that are compared with our patterns, and as much again with a site's, in one judgement:
# a usual output needs a tenth of them.
_MOST_COMPARED = 300_000
_MOST_SHOWN = 3
_MOST_WORDS = 100  # characters of a line in the words of its cause: an exception and 80 of its text
_EXCEPTION = (
    r"^(?:[\w.-]{1,80}: )?(?:[A-Za-z_][\w.]{0,200}\.)?"
    r"(?P<name>(?:_?[A-Z]\w{0,80})?(?:Error|Exception|Interrupt|Failure|Exit|Timeout))(?=:|\(|$)"
)
# Wrappers: the exception that they pass on stands above or below.
_WRAPPERS = frozenset(
    ("ChildFailedError", "RayTaskError", "CalledProcessError", "ProcessRaisedException",
     "WorkerGroupError", "TrainingFailedError", "InstantiationException", "RemoteError")
)  # fmt: skip
_OWN_USE = 0.6  # share of a device's memory below which others hold the rest
_AMOUNT = r"(\d{1,9}(?:\.\d{1,9})?) ?([KMGT])i?B"
_TOTAL = rf"(?:capacity of {_AMOUNT})|{_AMOUNT} total capacity"
_OWN = rf"{_AMOUNT} reserved in total|this process has {_AMOUNT} memory in use"
_FREE = rf"{_AMOUNT} free|of which {_AMOUNT} is free"
_UNITS = " KMGT"  # each is 1024 times the one before


_UNKNOWN = of_kind(
    "user-code", says="the program failed, and its output does not say why", certainty="low"
)


class Match(NamedTuple):
    """A signature that was found: in which line, and how decisive it is there."""

    signature: Signature
    line: int
    weight: int
    groups: Mapping[str, str]
    # whether the line reports it, rather than mentions it
    is_report: bool = True

    @property
    def order(self) -> tuple[int, bool, int, str, str]:
        """Return what it is compared by; the last two only make the answer always the same."""
        row = self.signature
        return self.weight, row.certainty == "low", self.line, row.slug, row.needle

    @property
    def is_own_mistake(self) -> bool:
        """Return whether it certainly shows a mistake of the program."""
        row = self.signature
        is_sure = row.certainty == "high" and self.is_report
        about = row.role, row.blame, row.retry
        return is_sure and self.weight < WARNED and about == ("root", "program", "no")


class _Comparison:
    """Compares lines with signatures, as long as one judgement may."""

    def __init__(self) -> None:
        self._compared = [0, 0]  # characters: with our patterns, with a site's

    def __call__(self, signature: Signature, line: str) -> dict[str, str] | None:
        """Return the groups of a line that matches; None if it does not, or no time is left."""
        if signature.pattern:
            whose = signature.cost > 0
            self._compared[whose] += len(line) * max(1, signature.cost)
            if self._compared[whose] > _MOST_COMPARED:
                return None
        return signature.match(line)


def judge(
    lines: Sequence[str],
    status: int | None = None,
    signal: str = "",
    evidence: Evidence | None = None,
) -> Cause:
    """Return why a rank or program failed.

    `lines` is the end of its output; `status` is its exit status (negative, or 128 + n, for a
    signal), `signal` the name of the signal that ended it, such as `SIGKILL`.
    """
    output = Output(lines)
    number = status if status is not None else 0
    signal = signal or signal_name(-number if number < 0 else number - 128)
    matches = sorted(_weighed(list(_matches(output)), output), key=lambda match: match.order)
    best = matches[0] if matches else None
    if status == 0 and not signal and (best is None or best.signature.slug != "nan-loss"):
        return _cause(of_kind("harmless"), output)
    by_end = ENDS.get(signal) or ENDS.get(str(status))
    if best is None or (by_end and by_end.weight < best.weight):
        cause = _cause(by_end or _UNKNOWN, output)
    else:
        cause = _of(best, matches, output)
    return measured.weighed(cause, output.text, signal, evidence) if evidence else cause


def _weighed(matches: Sequence[Match], output: Output) -> Iterator[Match]:
    """Yield the matches; what was mentioned before the program's own mistake is no more than a
    warning. If that is a plain exception with which the program ended, the same holds for what a
    device or scheduler reported before it: the program went on after it, or has quoted it."""
    mistakes = [match.line for match in matches if match.is_own_mistake]
    last = max(mistakes, default=-1)
    end = max((line for line in mistakes if _is_plain_end(line, output)), default=-1)
    for match in matches:
        is_before = match.line < last
        if match.is_report:
            is_quoted = match.line < end and not output.is_chained(match.line, end)
            is_before = is_quoted and _is_device_s(match.signature)
        if is_before and match.weight < WARNED:
            yield match._replace(weight=WARNED, is_report=False)
        else:
            yield match


def _is_plain_end(number: int, output: Output) -> bool:
    """Return whether the line is a plain exception that ended the program, and not one thread, nor
    one that Python ignored."""
    found = clean.compiled(_EXCEPTION).match(output.lines[number][:400])
    is_plain = found is not None and found["name"] in clean.PLAIN
    return is_plain and not output.is_of_a_part(number)


def _matches(output: Output) -> Iterator[Match]:
    """Yield every signature that is found, each at the line where it is most decisive."""
    compare = _Comparison()
    for signature in sorted(_candidates(output.text), key=lambda signature: signature.weight):
        best: Match | None = None
        for number, line in _lines_with(signature.needle, output):
            groups = compare(signature, line)
            if groups is None:
                continue
            is_mistake = signature.retry in ("no", "unknown") and not _is_device_s(signature)
            is_report = clean.reports(output.lines[number], signature.needle, is_mistake)
            weight = _weight(signature, number, output, is_report)
            match = Match(signature, number, weight, groups, is_report)
            if best is None or match.order < best.order:
                best = match
            if match.weight <= signature.weight:
                break
        if best:
            yield best
    yield from _exceptions(output, compare)


@cache
def _by_probe() -> tuple[_Rows, _Rows]:
    """Return the signatures, as places in the table, by a part of their needle: those with a whole
    word, which has a space on both sides, and the others by their longest part without a space."""
    whole: _Rows = defaultdict(list)
    part: _Rows = defaultdict(list)
    for row, signature in enumerate(signatures()):
        words = signature.needle.split(" ")
        inner = max(words[1:-1], key=len) if len(words) > 2 else ""
        if inner:
            whole[inner].append(row)
        else:
            part[max(words, key=len)].append(row)
    return whole, part


def _candidates(text: str) -> Iterator[Signature]:
    """Yield the signatures whose needle may be in the text. To search it for every needle would
    take ten times as long as to search its different words."""
    rows: list[int] = []
    words = set(text.split())
    joined = "\n".join(words)
    whole, part = _by_probe()
    for probe in whole.keys() & words:
        rows += whole[probe]
    for probe, found in part.items():
        if probe in joined:
            rows += found
    for row in sorted(rows):
        signature = signatures()[row]
        if signature.needle in text and signature.also in text:
            yield signature


def _lines_with(needle: str, output: Output) -> Iterator[tuple[int, str]]:
    """Yield the first lines with the needle: number, and the part around the needle."""
    at = output.text.find(needle)
    tries = 0
    while at >= 0 and tries < _TRIES:
        number = bisect_right(output.starts, at) - 1
        line = output.lines[number]
        if len(line) > clean.LONGEST:
            here = at - output.starts[number]
            begin = max(0, here - clean.LONGEST // 2)
            line = line[begin : here + clean.LONGEST // 2]
        elif clean.compiled(_EXCEPTION).match(line[:400]):
            line = output.statement(number)[: clean.LONGEST]
        yield number, line
        tries += 1
        at = output.text.find(needle, output.starts[number] + len(output.lines[number]))


def _is_device_s(signature: Signature) -> bool:
    """Return whether a device, the kernel or a scheduler prints it."""
    return signature.weight <= HARDWARE + 5


def _weight(signature: Signature, number: int, output: Output, is_report: bool) -> int:
    """Return how decisive a signature is in this line: a warning, what progress followed, or what
    is not reported by the device itself, is only better than a consequence."""
    if _is_device_s(signature):
        return signature.weight if is_report else WARNED
    if signature.weight < WARNED and _is_only_warned_of(number, output):
        return WARNED
    return signature.weight


def _exceptions(output: Output, compare: _Comparison) -> Iterator[Match]:
    """Yield the program's last exception that no signature names."""
    if not any(word in output.text for word in ("Error", "Exception", "Failure", "Exit")):
        return
    tries = 0
    for number in range(len(output.lines) - 1, -1, -1):
        line = output.lines[number]
        match = clean.compiled(_EXCEPTION).match(line[:400])
        if match is None or match["name"] in _WRAPPERS:
            continue
        tries += 1
        short = line[: clean.LONGEST]
        rows = (row for row in signatures() if row.needle in short)
        if any(compare(row, short) is not None for row in rows) and tries < _TRIES:
            continue
        signature = _unnamed(match["name"], number, output)
        usual = max(LAST_EXCEPTION, signature.weight)
        weight = max(WARNED, usual) if number < output.last_progress else usual
        words = output.statement(number, line[match.start("name") :])
        yield Match(signature, number, weight, {"name": words})
        if signature.role == "root":
            return


def _unnamed(name: str, number: int, output: Output) -> Signature:
    """Return what an exception means that no signature names."""
    ended = of_kind("user-code", says="the program ended with {name}", certainty="low")
    if name in clean.PLAIN:
        return ended._replace(certainty="high")
    if signature := numbers.by_number(output.statement(number)):
        return signature
    if numbers.of_launcher(output.lines, number):
        return of_kind("setup", says="the launcher could not start: {name}", certainty="low")
    return ended


def _of(best: Match, matches: Sequence[Match], output: Output) -> Cause:
    """Return the cause that a match stands for, with the lines that show it."""
    signature = best.signature
    if signature.slug == "gpu-oom":
        signature = _foreign(signature, output.lines[best.line][: 4 * clean.LONGEST])
    numbers = [best.line]
    for match in matches:
        if match.signature.slug == best.signature.slug and match.line not in numbers:
            numbers.append(match.line)
    return _cause(signature, output, sorted(numbers[:_MOST_SHOWN]), best)


def _cause(
    signature: Signature, output: Output, numbers: Sequence[int] = (), match: Match | None = None
) -> Cause:
    says, certainty, retry = signature.says, signature.certainty, signature.retry
    device = node = ""
    if match:
        for name, text in match.groups.items():
            says = says.replace(f"{{{name}}}", escaped(text, _MOST_WORDS))
        if match.weight == WARNED or _is_only_warned_of(match.line, output):
            certainty = "low"
        if not match.is_report:
            # nobody boots a job again, or elsewhere, because of what is only mentioned
            certainty = "low" if retry in ("same", "elsewhere") else certainty
            retry = "unknown" if _is_device_s(signature) else retry
        device = measured.device(output.lines[match.line], signature.slug)
        node = output.address(match.line)
    return Cause(
        signature.slug,
        signature.role,
        signature.blame,
        retry,
        certainty,
        says,
        signature.fix,
        device,
        tuple(
            one_line(output.statement(number, output.raw[number].strip()), LINE)
            for number in numbers
        ),
        node=node,
    )


def _is_only_warned_of(number: int, output: Output) -> bool:
    """Return whether the line only warns, or progress followed it: what it names has perhaps not
    happened, or was not the end."""
    return output.is_warning(number) or number < output.last_progress


def _foreign(signature: Signature, line: str) -> Signature:
    """Return the signature of a full device, corrected by the numbers in the line: whose memory it
    was. Without numbers nobody can be sure."""
    total = _gibibytes(_TOTAL, line)
    own = _gibibytes(_OWN, line)
    if not total or own is None:
        return signature._replace(certainty="low")
    free = _gibibytes(_FREE, line)
    if own < _OWN_USE * total and (free is None or free < (1 - _OWN_USE) / 2 * total):
        return of_kind("gpu-oom-foreign")
    return signature


def _gibibytes(pattern: str, line: str) -> float | None:
    found = re.search(pattern, line)
    if found is None:
        return None
    number, unit = [group for group in found.groups() if group]
    return float(number) * 1024.0 ** _UNITS.index(unit)
