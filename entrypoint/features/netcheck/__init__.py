"""The network check: which nodes reduce together when, their results, and which node or pair is
slow."""

EFFECTS = ("process",)
"""Modules with effects; all others of this package are pure."""
