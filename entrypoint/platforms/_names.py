"""Names of hosts and jobs, as platforms that run on Kubernetes build them."""

from __future__ import annotations

from entrypoint.spec import JOB_NAME


def label(host: str) -> str:
    """The first part of a host's name, which is the name of its pod."""
    return host.split(".")[0]


def numbered(name: str, before: str) -> tuple[str, int] | None:
    """`<start><before><number>` -> start and number; None where the name is not of this form."""
    start, _, number = name.rpartition(before)
    if not (start and number.isascii() and number.isdigit() and len(number) < 9):
        return None
    return start, int(number)


def job_name(name: str) -> str | None:
    """The name where it can be a job's: it is part of paths, and of what people read."""
    import re

    return name if re.fullmatch(JOB_NAME, name) else None
