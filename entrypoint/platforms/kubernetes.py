"""A Kubernetes Job whose Pods have an index (completionMode: Indexed), such as `entrypoint deploy kubernetes` writes.

Sources: kubernetes.io, "Jobs" (completion mode) and "Job with Pod-to-Pod Communication" for JOB_COMPLETION_INDEX and
the host name `<job>-<index>`. How many Pods there are, and their Service, is in no variable: ENTRYPOINT_HOSTS says it.
"""

from __future__ import annotations

from entrypoint.model import Facts, Site
from entrypoint.platforms._hosts import Unknown, job
from entrypoint.platforms._numbers import number
from entrypoint.platforms._pods import INDEX, job_of, may_be_jobset


def matches(facts: Facts) -> bool:
    """Whether this is a Pod of a Job, and cannot be one of a JobSet, where each Job counts its Pods from 0 again."""
    return not may_be_jobset(facts)


def site(facts: Facts) -> Site:
    """This Pod's index. The hosts are the spec's to say.

    Raises ConfigError when the index is not a number.
    """
    origins: dict[str, str] = {}
    index, name = number(facts.env, INDEX), job_of(facts)
    pod = name or "POD"
    seen = f"host name {facts.hostname[:80]!r}, {INDEX} is {facts.env.get(INDEX, '').strip() or 'unset'}"
    unknown: Unknown = {
        "hosts": (
            "Kubernetes does not say how many Pods this Job has",
            seen,
            f"set ENTRYPOINT_HOSTS to {pod}-0.SERVICE,{pod}-1.SERVICE,... or, for one Pod, {pod}-0;"
            " `entrypoint deploy kubernetes` does so",
        )
    }
    if index is not None and name:
        origins["node_rank"] = INDEX
    elif index is not None:
        unknown["node_rank"] = (
            "the host name does not say whether this Pod is a Job's, or a JobSet's, where each Job counts from 0",
            seen,
            f"set ENTRYPOINT_NODE_RANK; in a Job by itself it is $({INDEX})",
        )
    return Site(
        platform="kubernetes",
        index=index if name else None,
        job=job({"host name": name}, "host name", origins),
        hostname=facts.hostname,
        origins=origins,
        unknown=unknown,
    )
