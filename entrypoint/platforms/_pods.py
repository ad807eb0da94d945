"""Host names of Pods with an index: `<job>-<index>`; a JobSet's Job is named `<jobset>-<replicated
job>-<n>`."""

from __future__ import annotations

from entrypoint.model import Facts
from entrypoint.platforms._names import label, numbered

INDEX = "JOB_COMPLETION_INDEX"
_MOST = 99999  # Jobs of a JobSet; a longer number is a date or a time in a Job's own name


def job_of(facts: Facts) -> str:
    """Return the Job in this Pod's host name; empty if the host name has another form, as on the
    host's network."""
    job, index = _cut(label(facts.hostname))
    return job if str(index) == facts.env.get(INDEX, "").strip() else ""


def may_be_jobset(facts: Facts) -> bool:
    """Return whether the host name can be that of a JobSet's Pod. A Job may have such a name,
    too."""
    replicated, number = _cut(job_of(facts))
    jobset, _, name = replicated.partition("-")
    return bool(jobset and name and number <= _MOST)


def _cut(name: str) -> tuple[str, int]:
    """Return a name before its last `-`, and the number after it; empty and -1 if that is none or
    has leading zeros."""
    parts = numbered(name, "-")
    return parts if parts and name == f"{parts[0]}-{parts[1]}" else ("", -1)
