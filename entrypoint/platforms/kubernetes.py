"""A Kubernetes Job whose Pods have an index (completionMode: Indexed), such as `entrypoint deploy
kubernetes` writes.

Sources: kubernetes.io, "Jobs" (completion mode) and "Job with Pod-to-Pod Communication" for
JOB_COMPLETION_INDEX and the host name `<job>-<index>`. No variable has the number of Pods or their
Service: set ENTRYPOINT_HOSTS.
"""

from __future__ import annotations

from entrypoint.base.model import Facts
from entrypoint.platforms._clues import INDEX, POD_SECRET, Clues, job_of, may_be_jobset

ALSO = ("k8s", "k3s")  # other names
LAYER = 6
MARKS = (INDEX,)
STARTS_ANY_PROGRAM = True
SECRET = POD_SECRET
ROWS = """
`kubernetes` | `JOB_COMPLETION_INDEX` | none | `JOB_COMPLETION_INDEX` | the devices |
    `hosts`: [`entrypoint deploy kubernetes`](../how-to/kubernetes.md) gives them
"""


def matches(facts: Facts) -> bool:
    """Return whether this is a Pod of a Job, and not of a JobSet, where each Job counts its Pods
    from 0 again."""
    return "KUBERNETES_SERVICE_HOST" in facts.env and not may_be_jobset(facts)


def read(clues: Clues) -> None:
    """Take this Pod's index. The spec has to set the hosts.

    Raises ConfigError if the index is not a number.
    """
    job = job_of(clues.facts)
    pod = job or "POD"
    index = clues.env.get(INDEX, "").strip() or "unset"
    detail = f"host name {clues.facts.hostname[:80]!r}, {INDEX} is {index}"
    clues.no_hosts(
        "Kubernetes does not say how many Pods this Job has",
        detail,
        f"set ENTRYPOINT_HOSTS to {pod}-0.SERVICE,{pod}-1.SERVICE,... or, for one Pod, {pod}-0;"
        " `entrypoint deploy kubernetes` does so",
    )
    clues.take_job("host name", job)
    if job:
        clues.take_index(INDEX)
    elif clues.number(INDEX) is not None:
        clues.no_index(
            "the host name does not say whether this Pod is a Job's, or a JobSet's, where each"
            " Job counts from 0",
            detail,
            f"set ENTRYPOINT_NODE_RANK; in a Job by itself it is $({INDEX})",
        )
