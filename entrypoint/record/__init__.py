"""What a node records of its boot, and its views: status, metrics, timeline, result, health."""

EFFECTS = ("file", "health", "live", "server", "status", "timeline")
"""Modules with effects; all others of this package are pure."""
