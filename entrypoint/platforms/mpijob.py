"""Kubeflow's MPIJob (mpi-operator v2beta1).

Source: mpi-operator, pkg/controller/mpi_job_controller.go: K_MPI_JOB_ROLE in every container;
/etc/mpi/hostfile in the launcher's, as `host slots=N` for Open MPI and `host:N` for Intel MPI and
MPICH; the host names `<job>-launcher` and `<job>-worker-<index>`; the ConfigMap `<job>-config`,
which the hostfile is from.

The launcher is in the hostfile, as its first line, only with `runLauncherAsWorker: true`. Workers
do not know the other nodes, nor whether the launcher is one, so the number at the end of their name
is no rank: a node is found by its name in the hostfile, or in ENTRYPOINT_HOSTS. The job's name is
not documented: it is derived from the host names.
"""

from __future__ import annotations

from entrypoint.base.errors import ConfigError
from entrypoint.platforms import _hostfile
from entrypoint.platforms._clues import POD_SECRET, Clues, Reason, job_name, label, numbered
from entrypoint.platforms._hostfile import HOSTFILE, Hostfile

_ROLE = "K_MPI_JOB_ROLE"
_LAUNCHER = "-launcher"
LAYER = 1
MARKS = (_ROLE,)
FILES = (HOSTFILE,)
SECRET = POD_SECRET
ROWS = """
`mpijob` | `K_MPI_JOB_ROLE` | `/etc/mpi/hostfile` | its host name | `slots=` |
    `runLauncherAsWorker: true`; on workers `hosts`, or ConfigMap `<job>-config` at `/etc/mpi`:
    [`entrypoint deploy kubernetes --kind mpijob`](../how-to/kubernetes.md#other-kinds)
"""


def read(clues: Clues) -> None:
    """Take the hosts of the hostfile, and this node's place and slots in it.

    Raises ConfigError if the role is unknown, or a line of the hostfile cannot be parsed.
    """
    role = clues.env.get(_ROLE, "")
    if role not in ("launcher", "worker"):
        raise ConfigError(
            f"EP207 {_ROLE} is not a role of an MPIJob",
            repr(role[:60]),
            "set it to launcher or worker",
        )
    file = _hostfile.read(clues.facts)
    hostname = clues.facts.hostname
    job = job_name(_job(file.hosts[0] if file.hosts else hostname)) or ""
    _hostfile.take(clues, file, job, _unknown(role, file, job or "JOB", hostname))


def _unknown(role: str, file: Hostfile, job: str, hostname: str) -> Reason | None:
    """Return why the nodes of the job are unknown, if they are."""
    if not file.hosts:
        names = f"ENTRYPOINT_HOSTS={job}-launcher.{job},{job}-worker-0.{job},..."
        return (
            "an MPIJob names its nodes to the launcher alone",
            f"{HOSTFILE} is not here, or empty",
            f"mount the ConfigMap {job}-config at /etc/mpi in the workers, or set {names} on"
            " all nodes",
        )
    if role == "launcher" and file.index is None:
        return (
            "this launcher is not a node of the job",
            f"{HOSTFILE} does not name {hostname}",
            "set runLauncherAsWorker: true in the MPIJob, or name it in ENTRYPOINT_HOSTS on all"
            " nodes",
        )
    return None


def _job(host: str) -> str:
    """Return the job's name, with which its host names begin; empty if they have another form."""
    name = label(host)
    if name.endswith(_LAUNCHER):
        return name.removesuffix(_LAUNCHER)
    worker = numbered(name, "-worker-")
    return worker[0] if worker else ""
