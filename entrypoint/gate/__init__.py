"""The health gate: what a node checks of itself before an attempt. Which results the leader waits
for, and what follows, is in job/gate.py."""

EFFECTS = ("admission", "checks")
"""Modules with effects; all others of this package are pure."""
