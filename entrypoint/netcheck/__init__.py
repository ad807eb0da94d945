"""The network check: which pairs of nodes measure when, their results, and which node or pair is
slow."""

EFFECTS = ("helper", "link", "measure", "process", "sweep")
"""Modules with effects; all others of this package are pure."""
