"""Hosts as platforms name them: with ports, as `host:port`, `[address]:port`, or only a host; and
with the names of jobs, on platforms that run on Kubernetes.

Pods with an index are named `<job>-<index>`; a JobSet's Job is named
`<jobset>-<replicated job>-<n>`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from entrypoint.base.interfaces import ip
from entrypoint.base.model import Facts
from entrypoint.base.text import digits
from entrypoint.spec import JOB_NAME

Listener = tuple[str, int | None]  # host, and port if there is one

INDEX = "JOB_COMPLETION_INDEX"
_MOST = 99999  # Jobs of a JobSet; a longer number is a date or a time in a Job's own name


def listener(entry: str) -> Listener:
    """Return host and port of an entry. The last part of an IPv6 address without brackets is no
    port."""
    host, _, port = entry.rpartition(":")
    number = digits(port)
    if not host or number is None or ip(entry):
        return entry, None
    inner = host[1:-1]  # inside the brackets around an IPv6 address
    return inner if ":" in inner and ip(inner) else host, number


def is_port(text: str) -> bool:
    """Return whether this is the number of a TCP port."""
    return 1 <= (digits(text) or 0) <= 65535


def ports(listeners: Sequence[Listener]) -> tuple[int, ...]:
    """Return the port of each; nothing if one has none."""
    numbers = tuple(port for _, port in listeners if port is not None)
    return numbers if len(numbers) == len(listeners) else ()


def wrong_ports(listeners: Sequence[Listener], lists: str) -> tuple[str, str, str] | None:
    """Return why the hosts are unknown if a port cannot be one; `lists` names the variables."""
    invalid = [
        f"{host}:{port}" for host, port in listeners if port is not None and not is_port(str(port))
    ]
    if not invalid:
        return None
    return (
        f"a port is a number from 1 to 65535 ({lists})",
        ", ".join(invalid),
        "fix the list, or set ENTRYPOINT_HOSTS",
    )


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
    parts = re.split("([0-9]{1,18})", name)
    return [int(part) if place % 2 else part for place, part in enumerate(parts)]


def job_name(name: str) -> str | None:
    """Return the name if it can be a job's, which is part of paths; otherwise None."""
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
