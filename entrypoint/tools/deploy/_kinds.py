"""The forms of a job on Kubernetes: the names of their Pods, and the properties of their
controllers.

Sources: JobSet's api/jobset/v1alpha2 and its webhook (names of Pods); Volcano's pkg/controllers/job
(plugins svc and env, policies); mpi-operator's pkg/controller/mpi_job_controller.go (Service,
runLauncherAsWorker); Kubeflow Trainer's pkg/apis/trainer/v1alpha1 and pkg/runtime/framework/plugins
(names as JobSet's; RuntimePatches since 2.2).
"""

from __future__ import annotations

from entrypoint.base.errors import ConfigError
from entrypoint.base.tables import rows
from entrypoint.base.values import frozen

_LABEL = 63  # characters that DNS allows


@frozen
class Kind:
    """One form of a job."""

    first: str  # the host name of a job's first Pod
    others: str  # that of another Pod: `{rank}` is its rank, `{before}` the rank before
    label: str  # of every Pod, with the job's name, for kubectl's selectors
    # variable of every Pod that counts the controller's restarts, and the annotation that it is
    restarts: list[str]
    has_index: bool = False  # Pods are annotated with their index, which is their rank
    # the headless Service is rendered; otherwise the controller creates one
    own_service: bool = False
    has_probes: bool = False
    whole_pod: bool = False  # it takes a Pod template; otherwise parts of one
    counts_slots: bool = False  # the controller counts the ranks, so the spec has to set them
    has_suffix: bool = False  # the controller appends six characters to a Pod's name


# Kind | host name of the first Pod | of the others | label | restarts | what else is true of it
KINDS = {
    name: Kind(first, others, label, restarts.split(), **dict.fromkeys(more.split(), True))
    for name, first, others, label, restarts, more in rows("""
        job      | {job}-0        | {job}-{rank}          | batch.kubernetes.io/job-name | | \
            whole_pod has_index own_service has_probes
        jobset   | {job}-node-0-0 | {job}-node-0-{rank}   | jobset.sigs.k8s.io/jobset-name | \
            JOBSET_RESTART_ATTEMPT jobset.sigs.k8s.io/restart-attempt | \
            whole_pod has_index has_probes has_suffix
        mpijob   | {job}-launcher | {job}-worker-{before} | training.kubeflow.org/job-name | | \
            whole_pod counts_slots
        trainjob | {job}-node-0-0 | {job}-node-0-{rank}   | jobset.sigs.k8s.io/jobset-name | \
            JOBSET_RESTART_ATTEMPT jobset.sigs.k8s.io/restart-attempt | \
            has_index has_probes counts_slots has_suffix
        volcano  | {job}-node-0   | {job}-node-{rank}     | volcano.sh/job-name | \
            VC_RETRY_COUNT volcano.sh/job-retry-count | \
            whole_pod has_probes
    """)
}
# Kind | what it cannot express: summary | detail | hint
_NOTES = rows("""
    mpijob | an MPIJob ignores exit statuses | after 69, 71, 75 and 143 it ends, too | \
        add restarts: 3 to the spec, or use --kind job or jobset
    mpijob | an MPIJob gets no probes | \
        older releases of its operator hide Pods that are not ready from each other | \
        ask `entrypoint health` in a Pod
    trainjob | a TrainJob ignores exit statuses | \
        its runtime decides what is started again | \
        give a TrainingRuntime of your own a failure policy, or use --kind jobset
    trainjob | a TrainJob cannot express all settings of a Pod | \
        left out: restartPolicy, terminationGracePeriodSeconds, enableServiceLinks, \
        automountServiceAccountToken, envFrom, ports, startupProbe, readinessProbe, \
        terminationMessagePolicy | \
        put what you need into a TrainingRuntime of your own, or use --kind jobset
    volcano | Volcano starts the job again when any Pod ends with 69, 71, 75 or 143, or is \
        evicted | evictions count, and a Pod that was killed (137) does not end the job: its \
        peers' 75 starts it again | change maxRetry with kustomize: docs/how-to/kustomize.md
""")


def notes(kind: str) -> list[str]:
    """Return warnings: the properties of a job that this kind cannot express."""
    return [f"EP808 {' | '.join(note)}" for name, *note in _NOTES if name == kind]


def host_names(kind: str, job: str, nodes: int) -> list[str]:
    """Return the host names of all Pods, in the order of their ranks. A single Pod needs no
    Service.

    Raises ConfigError if one derived from the job's name is no valid name of a host or a Pod.
    """
    if not job[0].isalpha():
        raise ConfigError(
            "EP820 a Service's name must begin with a letter",
            f"name: {job}",
            f"use for example j{job}",
        )
    form = KINDS[kind]
    forms = (form.first, *[form.others] * (nodes - 1))
    names = [name.format(job=job, rank=at, before=at - 1) for at, name in enumerate(forms)]
    longest = max(names, key=len) + "-xxxxx" * form.has_suffix
    if len(longest) > _LABEL:
        detail = f"{longest} has {len(longest)} characters, DNS allows {_LABEL}"
        raise ConfigError(
            "EP820 the job's name is too long for its Pods' host names", detail, "shorten name"
        )
    return [f"{name}.{job}" for name in names] if nodes > 1 else names
