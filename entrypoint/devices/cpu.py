"""No accelerator: one process a node unless the spec says otherwise."""

from __future__ import annotations

from entrypoint.base.model import Device, Facts


def device(facts: Facts) -> Device:
    """Return the device of a node without accelerators."""
    return Device(kind="cpu", count=0, origin="no accelerator")
