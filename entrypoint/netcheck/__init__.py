"""The network check as values: which pairs of nodes measure when, their results, and which node or pair is slow."""

EFFECTS = ("coordinator", "helper", "link", "measure", "sweep")
"""Modules with effects; all others of this package are pure."""
