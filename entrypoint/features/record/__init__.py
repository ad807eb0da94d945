"""The observer of a boot, its record, and the views: status, metrics, timeline, result, health."""

EFFECTS = ("file", "health", "live", "metrics", "status")
"""Modules with effects; all others of this package are pure."""
