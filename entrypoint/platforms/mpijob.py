"""Kubeflow's MPIJob (mpi-operator v2beta1).

Source: mpi-operator, pkg/controller/mpi_job_controller.go: K_MPI_JOB_ROLE in every container; /etc/mpi/hostfile in the
launcher's, as `host slots=N` for Open MPI and `host:N` for Intel MPI and MPICH; the host names `<job>-launcher` and
`<job>-worker-<index>`; the ConfigMap `<job>-config`, which the hostfile is from.

The launcher is in the hostfile, as its first line, only with `runLauncherAsWorker: true`. Workers are told of no other
node, and not whether the launcher is one, so the number at the end of their name is not taken for a rank: a node is
found by its own name in the hostfile, or in ENTRYPOINT_HOSTS. The platform does not promise the job's name: it is taken
from the host names.
"""

from __future__ import annotations

from entrypoint.errors import ConfigError
from entrypoint.model import Facts, Site
from entrypoint.platforms._hosts import Unknown
from entrypoint.platforms._listeners import listener
from entrypoint.platforms._names import job_name, label, numbered

_ROLE = "K_MPI_JOB_ROLE"
_HOSTFILE = "/etc/mpi/hostfile"
_LAUNCHER = "-launcher"


def site(facts: Facts) -> Site:
    """The hosts of the hostfile, and this node's place and slots in it.

    Raises ConfigError when the role is unknown, or a line of the hostfile cannot be read.
    """
    role = facts.env.get(_ROLE, "")
    if role not in ("launcher", "worker"):
        raise ConfigError(f"{_ROLE} is no role of an MPIJob", repr(role[:60]), "set it to launcher or worker")
    entries = [_entry(line) for line in facts.files.get(_HOSTFILE, "").splitlines() if _is_entry(line)]
    hosts = tuple(host for host, _ in entries)
    here = [place for place, host in enumerate(hosts) if _is_own(host, facts.hostname)]
    index = here[0] if len(here) == 1 else None
    slots = None if index is None else entries[index][1]
    job = _job(hosts[0] if hosts else facts.hostname)
    unknown = _unknown(role, hosts, index, job or "JOB", facts.hostname)
    known = {"hosts": hosts and not unknown, "node_rank": index is not None, "slots": slots}
    origins = {field: _HOSTFILE for field, value in known.items() if value}
    if job:
        origins["name"] = _HOSTFILE if hosts else "host name"
    return Site(
        platform="mpijob",
        hosts=() if unknown else hosts,
        index=index,
        slots=slots,
        job=job,
        hostname=facts.hostname,
        origins=origins,
        unknown=unknown,
    )


def _unknown(role: str, hosts: tuple[str, ...], index: int | None, job: str, hostname: str) -> Unknown:
    """Why the nodes of the job are not known."""
    if not hosts:
        names = f"ENTRYPOINT_HOSTS={job}-launcher.{job},{job}-worker-0.{job},..."
        what, seen = "an MPIJob names its nodes to the launcher alone", f"{_HOSTFILE} is not here, or empty"
        do = f"mount the ConfigMap {job}-config at /etc/mpi in the workers, or set {names} on all nodes"
    elif role == "launcher" and index is None:
        what, seen = "this launcher is not a node of the job", f"{_HOSTFILE} does not name {hostname}"
        do = "set runLauncherAsWorker: true in the MPIJob, or name it in ENTRYPOINT_HOSTS on all nodes"
    else:
        return {}
    return {"hosts": (what, seen, do)}


def _is_entry(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith("#")


def _entry(line: str) -> tuple[str, int | None]:
    """Host and slots of a line of the hostfile."""
    first, *others = line.split()
    host, slots = listener(first)
    for word in others:
        name, _, value = word.partition("=")
        if name == "slots":
            slots = int(value) if value.isascii() and value.isdigit() and len(value) < 9 else 0
    if slots == 0:
        raise ConfigError(f"{_HOSTFILE} has a line with wrong slots", repr(line.strip()[:80]), "write slots=1 or more")
    return host, slots


def _is_own(host: str, hostname: str) -> bool:
    """Whole labels are compared: worker-1 is not worker-10."""
    return bool(hostname) and label(host) == label(hostname)


def _job(host: str) -> str | None:
    name = label(host)
    if name.endswith(_LAUNCHER):
        return job_name(name.removesuffix(_LAUNCHER))
    worker = numbered(name, "-worker-")
    return job_name(worker[0]) if worker else None
