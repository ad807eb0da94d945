"""NVIDIA GPUs, counted without a driver tool: /dev/nvidia0, /dev/nvidia1, ..., narrowed by
CUDA_VISIBLE_DEVICES.

Source of the variable's rules: CUDA C++ Programming Guide, "CUDA Environment Variables" (a list
ends at the first invalid entry; an empty list or -1 hides all).
"""

from __future__ import annotations

import re

from entrypoint.base.model import Access, Device, Facts

ALSO = ("gpu", "gpus", "cuda")  # other names
ACCESS = Access(resource="nvidia.com/gpu", driver="nvidia", visible="CUDA_VISIBLE_DEVICES")


def matches(facts: Facts) -> bool:
    """Return whether the container has a GPU's device file."""
    return bool(_cards(facts))


def device(facts: Facts) -> Device:
    """Return the GPUs that a process of this container can use."""
    cards = _cards(facts)
    visible = facts.env.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return Device(kind="nvidia", count=len(cards), origin=f"{len(cards)} /dev/nvidia*")
    count = 0
    for entry in visible.split(","):
        entry = entry.strip()
        if not (
            entry.startswith(("GPU-", "MIG-")) or (entry.isdigit() and int(entry) < len(cards))
        ):
            break
        count += 1
    return Device(kind="nvidia", count=count, origin="CUDA_VISIBLE_DEVICES")


def _cards(facts: Facts) -> list[str]:
    return [name for name in facts.device_files if re.fullmatch(r"nvidia\d+", name)]
