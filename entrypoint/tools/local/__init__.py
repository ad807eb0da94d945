"""All nodes of a job on this machine, with faults (`entrypoint local`)."""

EFFECTS = ("cluster", "fixture")
"""Modules with effects; all others of this package are pure."""
