"""Names of hosts and jobs on platforms that run on Kubernetes.

Pods with an index are named `<job>-<index>`; a JobSet's Job is named
`<jobset>-<replicated job>-<n>`.
"""

from __future__ import annotations

from entrypoint.model import Facts
from entrypoint.platforms._listeners import digits
from entrypoint.spec import JOB_NAME

INDEX = "JOB_COMPLETION_INDEX"
_MOST = 99999  # Jobs of a JobSet; a longer number is a date or a time in a Job's own name


def label(host: str) -> str:
    """Return the first part of a host's name, which is the name of its pod."""
    return host.split(".")[0]


def numbered(name: str, before: str) -> tuple[str, int] | None:
    """Return start and number of `<start><before><number>`; None if the name is not of this
    form."""
    start, _, number = name.rpartition(before)
    value = digits(number)
    return None if value is None or not start else (start, value)


def by_number(name: str) -> list[str | int]:
    """Return a sort key with worker-2 before worker-10."""
    import re

    parts = re.split("([0-9]{1,18})", name)
    return [int(part) if place % 2 else part for place, part in enumerate(parts)]


def job_name(name: str) -> str | None:
    """Return the name if it can be a job's, which is part of paths; otherwise None."""
    import re

    return name if re.fullmatch(JOB_NAME, name) else None


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
