"""The forms of a job on Kubernetes: the names of their Pods, and the properties of their
controllers.

Sources: JobSet's api/jobset/v1alpha2 and its webhook (names of Pods); Volcano's pkg/controllers/job
(plugins svc and env, policies); mpi-operator's pkg/controller/mpi_job_controller.go (Service,
runLauncherAsWorker); Kubeflow Trainer's pkg/apis/trainer/v1alpha1 and pkg/runtime/framework/plugins
(names as JobSet's; RuntimePatches since 2.2).
"""

from __future__ import annotations

from collections.abc import Callable

from entrypoint.base.errors import ConfigError
from entrypoint.base.values import dataclass

_LABEL = 63  # characters that DNS allows
_OF_JOBSET = "JOBSET_RESTART_ATTEMPT", "jobset.sigs.k8s.io/restart-attempt"


@dataclass(frozen=True)
class Kind:
    """One form of a job."""

    host: Callable[[str, int], str]  # the host name of a job's Pod, by its rank
    label: str  # of every Pod, with the job's name, for kubectl's selectors
    has_index: bool = False  # Pods are annotated with their index, which is their rank
    # the headless Service is rendered; otherwise the controller creates one
    own_service: bool = False
    has_probes: bool = True
    whole_pod: bool = True  # it takes a Pod template; otherwise parts of one
    counts_slots: bool = False  # the controller counts the ranks, so the spec has to set them
    restarts: tuple[str, str] = ("", "")  # variable of every Pod, and the annotation that it is
    generated: int = 0  # characters that the controller appends to a Pod's name
    notes: tuple[str, ...] = ()  # properties that it cannot express: summary | detail | hint


KINDS = {
    "job": Kind(
        lambda job, rank: f"{job}-{rank}",
        "batch.kubernetes.io/job-name",
        has_index=True,
        own_service=True,
    ),
    "jobset": Kind(
        lambda job, rank: f"{job}-node-0-{rank}",
        "jobset.sigs.k8s.io/jobset-name",
        has_index=True,
        restarts=_OF_JOBSET,
        generated=6,
    ),
    "mpijob": Kind(
        lambda job, rank: f"{job}-worker-{rank - 1}" if rank else f"{job}-launcher",
        "training.kubeflow.org/job-name",
        has_probes=False,
        counts_slots=True,
        notes=(
            (
                "EP808 an MPIJob ignores exit statuses | after 69, 71, 75 and 143 it ends, too"
                " | add restarts: 3 to the spec, or use --kind job or jobset"
            ),
            (
                "EP808 an MPIJob gets no probes"
                " | older releases of its operator hide Pods that are not ready from each other"
                " | ask `entrypoint health` in a Pod"
            ),
        ),
    ),
    "trainjob": Kind(
        lambda job, rank: f"{job}-node-0-{rank}",
        "jobset.sigs.k8s.io/jobset-name",
        has_index=True,
        whole_pod=False,
        counts_slots=True,
        restarts=_OF_JOBSET,
        generated=6,
        notes=(
            (
                "EP808 a TrainJob ignores exit statuses | its runtime decides what is started"
                " again | give a TrainingRuntime of your own a failure policy, or use --kind jobset"
            ),
            (
                "EP808 a TrainJob cannot express all settings of a Pod | left out: restartPolicy,"
                " terminationGracePeriodSeconds, enableServiceLinks, automountServiceAccountToken,"
                " envFrom, ports, startupProbe, readinessProbe, terminationMessagePolicy | put what"
                " you need into a TrainingRuntime of your own, or use --kind jobset"
            ),
        ),
    ),
    "volcano": Kind(
        lambda job, rank: f"{job}-node-{rank}",
        "volcano.sh/job-name",
        restarts=("VC_RETRY_COUNT", "volcano.sh/job-retry-count"),
        notes=(
            (
                "EP808 Volcano starts the job again when any Pod ends with 69, 71, 75 or 143, or is"
                " evicted | evictions count, and a Pod that was killed (137) does not end the job:"
                " its peers' 75 starts it again | change maxRetry with kustomize:"
                " docs/how-to/kustomize.md"
            ),
        ),
    ),
}


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
    names = [form.host(job, rank) for rank in range(nodes)]
    longest = max(names, key=len) + "-xxxxx"[: form.generated]
    if len(longest) > _LABEL:
        detail = f"{longest} has {len(longest)} characters, DNS allows {_LABEL}"
        raise ConfigError(
            "EP820 the job's name is too long for its Pods' host names", detail, "shorten name"
        )
    return [f"{name}.{job}" for name in names] if nodes > 1 else names
