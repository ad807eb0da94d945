"""A JobSet on Kubernetes: several Jobs of one shape, whose Pods count from 0 in each of them.

Sources: jobset.sigs.k8s.io, "Concepts" and the API's JobSetSpec (network) for the host names
`<jobset>-<replicated job>-<job>-<pod>` and their Service `<jobset>`. A container gets only
JOB_COMPLETION_INDEX, which is <pod>; everything else is in labels and annotations. A plain Job may
have a name of this form, so for both the node's index is the place of its host name among the
spec's hosts.
"""

from __future__ import annotations

from entrypoint.base.model import Facts
from entrypoint.platforms._clues import INDEX, POD_SECRET, Clues, job_of, may_be_jobset

LAYER = 6
MARKS = (INDEX,)
STARTS_ANY_PROGRAM = True
SECRET = POD_SECRET
ROWS = """
`jobset` | `JOB_COMPLETION_INDEX`, with a host name of four parts | none | its host name among
    `hosts` | the devices | `hosts`: `entrypoint deploy kubernetes --kind jobset` gives them
"""


def matches(facts: Facts) -> bool:
    """Return whether this is a Pod whose host name can be that of a JobSet's."""
    return "KUBERNETES_SERVICE_HOST" in facts.env and may_be_jobset(facts)


def read(clues: Clues) -> None:
    """Note what the spec has to set."""
    front = job_of(clues.facts).rpartition("-")[0] or "JOBSET-JOBS"
    clues.no_hosts(
        "a JobSet does not say which Pods it has, and neither does a Job",
        f"host name {clues.facts.hostname[:80]!r}",
        f"set ENTRYPOINT_HOSTS to {front}-0-0.SERVICE,{front}-0-1.SERVICE,... alike in all Pods,"
        f" or, for one Pod, {front}-0-0",
    )
