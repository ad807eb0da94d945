"""Host names of Pods with an index: `<job>-<index>`, where a JobSet's Job is called `<jobset>-<replicated job>-<n>`."""

from __future__ import annotations

from entrypoint.model import Facts
from entrypoint.platforms._names import label

INDEX = "JOB_COMPLETION_INDEX"
_DIGITS = 5  # of a Job's number within its JobSet; more are a date or a time in a Job's own name


def job_of(facts: Facts) -> str:
    """The Job that this Pod's host name begins with; empty where the host name is another, as on the host's network."""
    job, _, index = _cut(label(facts.hostname))
    return job if index == facts.env.get(INDEX, "").strip() else ""


def may_be_jobset(facts: Facts) -> bool:
    """Whether the host name can be that of a JobSet's Pod. A Job may have such a name: nothing tells them apart."""
    replicated, _, number = _cut(job_of(facts))
    jobset, _, name = replicated.partition("-")
    return bool(jobset and name and len(number) <= _DIGITS)


def _cut(name: str) -> tuple[str, str, str]:
    """A name before its last `-`, and the number after it; empty where there is none, or one with leading zeros."""
    front, dash, end = name.rpartition("-")
    is_number = front and end.isascii() and end.isdigit() and (end == "0" or not end.startswith("0"))
    return (front, dash, end) if is_number else ("", "", "")
