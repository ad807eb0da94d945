"""No accelerator: one process a node unless the spec says otherwise."""

from __future__ import annotations

from entrypoint.model import Device, Facts


def matches(facts: Facts) -> bool:
    """Never by itself: it is what is left when nothing else matches."""
    return False


def device(facts: Facts) -> Device:
    """A node without accelerators."""
    return Device(kind="cpu", count=0, origin="no accelerator")
