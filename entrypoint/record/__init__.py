"""The record of a node's boot, and its views: status, metrics, timeline, result, health."""

EFFECTS = ("file", "health", "live", "server", "status", "timeline")
"""Modules with effects; all others of this package are pure."""
