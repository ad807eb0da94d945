"""Steps of Slurm: what `srun` starts."""

from __future__ import annotations

from collections.abc import Mapping

_STEP = ("SLURM_STEP_ID", "SLURM_STEPID")
# Ids of a shell of `salloc` and of a batch script, which are no steps of `srun`: they run only on
# the first node.
_SHELLS = ("4294967290", "4294967291")


def is_step(env: Mapping[str, str]) -> bool:
    """Return whether these are the variables of a task of a step that `srun` started."""
    step = next((value for name in _STEP if (value := env.get(name, "").strip())), "")
    return bool(step) and step not in _SHELLS
