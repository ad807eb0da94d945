"""The record of a node's boot, and its views: status, metrics, timeline, result, health."""

EFFECTS = ("file", "health", "live", "metrics", "status")
"""Modules with effects; all others of this package are pure."""
