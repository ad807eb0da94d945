"""Distinguishes Kubeflow Trainer from training-operator: both set torchrun's own variables.

Users may set these variables by hand, too, so the form of the host names decides.
"""

from __future__ import annotations

from collections.abc import Mapping

from entrypoint.base.errors import ConfigError
from entrypoint.platforms._clues import Clues, Reason, label

# of a TrainJob's first node, by its runtime
ADDRESSES = (
    "PET_MASTER_ADDR",
    "JAX_COORDINATOR_ADDRESS",
    "DMLC_TRACKER_URI",
)
_FIRST_NODE = "-node-0-0"
_BY_DEVICE = ("", "auto", "cpu", "gpu")  # torchrun counts the accelerators, or the processors


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


def take_slots(clues: Clues) -> None:
    """Take the ranks of each node, unless the platform leaves that to the devices.

    Raises ConfigError if it is no number, or 0.
    """
    name = "PET_NPROC_PER_NODE"
    if clues.env.get(name, "").strip() in _BY_DEVICE:
        return
    if clues.number(name) == 0:
        raise ConfigError(
            f"EP207 {name} is not a number of ranks", "0", "set it to 1 or more, or to auto"
        )
    clues.take_slots(name)


def not_counted(name: str, env: Mapping[str, str]) -> Reason:
    """Return why the hosts are unknown if the variable with their number has none."""
    return (
        "the platform does not count its nodes",
        f"{name} is {env.get(name, '')!r}",
        "set ENTRYPOINT_HOSTS",
    )
