"""How well failures are judged: by the table of signatures, by the exit status alone, by keywords.

`python -m tests.failures.score` prints the table; `--misses` also lists what was judged wrongly.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from entrypoint.base.text import columns
from entrypoint.causes.judge import judge

FOLDER = Path(__file__).parent
SETS = ("first", "second", "third")
RETRY_WHERE_SURE = 0.95  # least macro-F1 of `retry` where the label's certainty is high
RETRIED = ("same", "elsewhere")  # values of `retry` for which a job boots again
CAUSE = 0.90  # least macro-F1 of the cause


@dataclass(frozen=True)
class Failure:
    """One output with its labels."""

    id: str
    source: str
    lines: Sequence[str]
    labels: Mapping[str, str]
    launcher: str = "unknown"
    exit_status: int | None = None
    signal: str = ""
    kind: str = ""
    form: str = ""


@dataclass(frozen=True)
class Answer:
    """What a judge says: the slug of the cause, and whether a retry helps."""

    cause: str
    retry: str


Judge = Callable[[Failure], Answer]


@dataclass
class Score:
    """The result of one judge on one set."""

    right: int = 0
    count: int = 0
    cause: float = 0.0  # macro-F1
    retry: float = 0.0  # macro-F1
    retry_where_sure: float = 0.0  # macro-F1, where the label's certainty is high
    retried_mistakes: list[str] = field(default_factory=list)
    blamed_decoys: list[str] = field(default_factory=list)
    missed_retries: list[str] = field(default_factory=list)
    misses: list[str] = field(default_factory=list)


def failures(name: str) -> list[Failure]:
    """Return the outputs of a set, `first` or `second`."""
    text = (FOLDER / f"{name}.jsonl").read_text(encoding="utf-8")
    return [Failure(**json.loads(line)) for line in text.splitlines()]


# --------------------------------------------------------------------------------------------------
# The judges


def by_signatures(failure: Failure) -> Answer:
    """Return what the toolkit says."""
    cause = judge(failure.lines, failure.exit_status, failure.signal)
    return Answer(cause.slug, cause.retry)


_OF_SIGNALS = {
    "SIGKILL": Answer("killed-unknown", "unknown"),
    "SIGSEGV": Answer("native-crash", "unknown"),
    "SIGABRT": Answer("native-crash", "unknown"),
    "SIGBUS": Answer("shm-full", "no"),
    "SIGILL": Answer("arch-mismatch", "no"),
    "SIGINT": Answer("stopped-outside", "no"),
    "SIGHUP": Answer("stopped-outside", "same"),
    "SIGTERM": Answer("stopped-outside", "unknown"),
}
_OF_STATUSES = {
    0: Answer("harmless", "no"),
    2: Answer("user-args", "no"),
    9: Answer("killed-unknown", "unknown"),
    75: Answer("gpu-init", "elsewhere"),
    127: Answer("file-missing", "no"),
    139: Answer("native-crash", "unknown"),
    255: Answer("setup", "no"),
    None: Answer("launcher-stop", "unknown"),
}


def by_status(failure: Failure) -> Answer:
    """Return what the exit status or signal alone says."""
    if failure.signal:
        return _OF_SIGNALS[failure.signal]
    return _OF_STATUSES.get(failure.exit_status, Answer("user-code", "no"))


_KEYWORDS = (
    ("out of memory", "gpu-oom", "no"),
    ("ecc", "gpu-ecc", "elsewhere"),
    ("xid", "gpu-lost", "elsewhere"),
    ("nvlink", "nvlink", "elsewhere"),
    ("no space", "disk-full", "no"),
    ("already in use", "addr-in-use", "same"),
    ("modulenotfound", "user-import", "no"),
    ("permission denied", "permission", "no"),
    ("no such file", "file-missing", "no"),
    ("segmentation fault", "native-crash", "unknown"),
    ("timeout", "collective-timeout", "same"),
    ("timed out", "collective-timeout", "same"),
    ("connection", "peer-lost", "same"),
    ("killed", "host-oom", "same"),
    ("nan", "nan-loss", "no"),
    ("nccl", "peer-lost", "same"),
    ("cuda error", "cuda-kernel-fault", "elsewhere"),
    ("error", "user-code", "no"),
)


def by_keywords(failure: Failure) -> Answer:
    """Return what a search for keywords says."""
    text = "\n".join(failure.lines).lower()
    for word, cause, retry in _KEYWORDS:
        if word in text:
            return Answer(cause, retry)
    return Answer("user-code", "no")


JUDGES: Mapping[str, Judge] = {
    "signatures": by_signatures,
    "exit status": by_status,
    "keywords": by_keywords,
}

# --------------------------------------------------------------------------------------------------
# The score


def measures(pairs: Sequence[tuple[str, str]]) -> dict[str, tuple[float, float, float, int]]:
    """Return precision, recall, F1 and count of each label, of pairs (expected, actual)."""
    hits = Counter(expected for expected, actual in pairs if expected == actual)
    wanted = Counter(expected for expected, _ in pairs)
    given = Counter(actual for _, actual in pairs)
    found = {}
    for label in sorted(wanted.keys() | given.keys()):
        precision = hits[label] / given[label] if given[label] else 0.0
        recall = hits[label] / wanted[label] if wanted[label] else 0.0
        total = precision + recall
        f1 = 2 * precision * recall / total if total else 0.0
        found[label] = (precision, recall, f1, wanted[label])
    return found


def macro_f1(pairs: Sequence[tuple[str, str]]) -> float:
    """Return the mean F1 of all labels that are expected or given."""
    rows = measures(pairs)
    return sum(row[2] for row in rows.values()) / len(rows) if rows else 1.0


def score(entries: Sequence[Failure], judge_of: Judge) -> Score:
    """Return how well a judge does on a set."""
    made = Score()
    causes, retries, sure = [], [], []
    for failure in entries:
        label, answer = failure.labels, judge_of(failure)
        causes.append((label["cause"], answer.cause))
        retries.append((label["retry"], answer.retry))
        sure += retries[-1:] * (label["certainty"] == "high")
        is_right, is_retried = label["cause"] == answer.cause, answer.retry in RETRIED
        made.right += is_right
        if failure.kind == "user-mistake" and is_retried:
            made.retried_mistakes.append(failure.id)
        if (failure.kind == "decoy" or label["cause"] == "harmless") and not is_right:
            made.blamed_decoys.append(failure.id)
        if label["retry"] in RETRIED and not is_retried:
            made.missed_retries.append(failure.id)
        if not is_right or label["retry"] != answer.retry:
            made.misses.append(
                f"{failure.id}: {label['cause']}, {label['retry']} ({label['certainty']});"
                f" judged {answer.cause}, {answer.retry}"
            )
    made.count = len(entries)
    made.cause, made.retry, made.retry_where_sure = map(macro_f1, (causes, retries, sure))
    return made


def _pair(title: str, failure: Failure) -> tuple[str, str]:
    answer = by_signatures(failure)
    return failure.labels[title], answer.cause if title == "cause" else answer.retry


def table() -> Iterator[str]:
    """Yield the lines of the table."""
    entries = {name: failures(name) for name in SETS}
    for title in ("cause", "retry"):
        rows: list[list[str]] = [[title, *(f"{name}: n  prec.  recall" for name in SETS)]]
        found = {
            name: measures([_pair(title, failure) for failure in entries[name]]) for name in SETS
        }
        for label in sorted({label for rates in found.values() for label in rates}):
            cells = [found[name].get(label) for name in SETS]
            rows.append(
                [label, *(f"{c[3]:>9}  {c[0]:5.2f}  {c[1]:6.2f}" if c else "" for c in cells)]
            )
        yield from columns(rows)
        yield ""
    head = ["set", "judge", "outputs", "cause right", "F1 cause", "F1 retry", "F1 retry, sure",
            "mistakes retried", "decoys blamed", "retries missed"]  # fmt: skip
    rows = [head]
    for name in SETS:
        for judge_name, judge_of in JUDGES.items():
            result = score(entries[name], judge_of)
            right = f"{result.right} ({result.right / result.count:.0%})"
            rates = (result.cause, result.retry, result.retry_where_sure)
            wrong = (result.retried_mistakes, result.blamed_decoys, result.missed_retries)
            cells = [*(f"{rate:.3f}" for rate in rates), *(str(len(ids)) for ids in wrong)]
            rows.append([name, judge_name, str(result.count), right, *cells])
    yield from columns(rows, right=range(2, 10))


def main() -> None:
    """Print the table, and with `--misses` what was judged wrongly."""
    print("\n".join(table()))
    if "--misses" in sys.argv:
        for name in SETS:
            print(f"\n{name}:")
            print("\n".join(score(failures(name), by_signatures).misses))


if __name__ == "__main__":
    main()
