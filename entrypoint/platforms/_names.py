"""Names of hosts and jobs on platforms that run on Kubernetes."""

from __future__ import annotations

from entrypoint.spec import JOB_NAME


def label(host: str) -> str:
    """Return the first part of a host's name, which is the name of its pod."""
    return host.split(".")[0]


def numbered(name: str, before: str) -> tuple[str, int] | None:
    """Return start and number of `<start><before><number>`; None if the name is not of this
    form."""
    start, _, number = name.rpartition(before)
    if not (start and number.isascii() and number.isdigit() and len(number) < 9):
        return None
    return start, int(number)


def job_name(name: str) -> str | None:
    """Return the name if it can be a job's, which is part of paths; otherwise None."""
    import re

    return name if re.fullmatch(JOB_NAME, name) else None
