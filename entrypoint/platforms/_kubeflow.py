"""Distinguishes Kubeflow Trainer from training-operator: both set torchrun's own variables.

Users may set these variables by hand, too, so the form of the host names decides.
"""

from __future__ import annotations

from collections.abc import Mapping

from entrypoint.errors import ConfigError
from entrypoint.model import Facts
from entrypoint.platforms._clues import Clues, Reason
from entrypoint.platforms._hosts import label, numbered

# of a TrainJob's first node, by its runtime
ADDRESSES = (
    "PET_MASTER_ADDR",
    "JAX_COORDINATOR_ADDRESS",
    "DMLC_TRACKER_URI",
)
_FIRST_NODE = "-node-0-0"
_MASTER = "-master-0"
_BY_DEVICE = ("", "auto", "cpu", "gpu")  # torchrun counts the accelerators, or the processors
# Set by systems whose users set PET_RDZV_ENDPOINT by hand; none of their containers is of a
# PyTorchJob.
_OTHERS = ("JOB_COMPLETION_INDEX", "VC_TASK_INDEX", "VK_TASK_INDEX")
_OTHERS_FOLDER = "/etc/volcano/"


def trainjob(env: Mapping[str, str]) -> tuple[str, str]:
    """Return the name of the TrainJob and its variable, the address `<job>-node-0-0.<job>`; empty
    texts for none."""
    for name in ADDRESSES:
        host = env.get(name, "").strip().partition(":")[0]  # JAX's has a port
        first, _, service = host.partition(".")
        job = first.removesuffix(_FIRST_NODE)
        if job and first == job + _FIRST_NODE and label(service) == job:
            return job, name
    return "", ""


def pytorchjob(env: Mapping[str, str]) -> str:
    """Return the name of the PyTorchJob, from MASTER_ADDR, `<job>-master-0`; empty if it has
    another form."""
    master = env.get("MASTER_ADDR", "").strip()
    return master.removesuffix(_MASTER) if master.endswith(_MASTER) else ""


def replica(hostname: str) -> tuple[str, int] | None:
    """Return the name of the PyTorchJob and this pod's index, from the host name
    `<job>-worker-<index>`."""
    return numbered(label(hostname), "-worker-")


def is_pytorchjob(facts: Facts) -> bool:
    """Return whether training-operator started this container: not Kubeflow Trainer, nor a user
    with its variables."""
    env = facts.env
    if trainjob(env)[0]:
        return False
    if pytorchjob(env):
        return True
    elastic = bool(
        env.get("PET_RDZV_ENDPOINT")
        and env.get("KUBERNETES_SERVICE_HOST")
        and replica(facts.hostname)
    )
    others = (*map(env.get, _OTHERS), *(path.startswith(_OTHERS_FOLDER) for path in facts.files))
    return elastic and not any(others)


def take_slots(clues: Clues) -> None:
    """Take the ranks of each node, unless the platform leaves that to the devices.

    Raises ConfigError if it is no number, or 0.
    """
    name = "PET_NPROC_PER_NODE"
    if clues.env.get(name, "").strip() in _BY_DEVICE:
        return
    if clues.number(name) == 0:
        hint = "set it to 1 or more, or to auto"
        raise ConfigError(f"EP207 {name} is not a number of ranks", "0", hint)
    clues.take_slots(name)


def not_counted(name: str, env: Mapping[str, str]) -> Reason:
    """Return why the hosts are unknown if the variable with their number has none."""
    detail = f"{name} is {env.get(name, '')!r}"
    return "the platform does not count its nodes", detail, "set ENTRYPOINT_HOSTS"
