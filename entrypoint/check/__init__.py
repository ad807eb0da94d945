"""`entrypoint check`: from what nodes see of themselves to findings, and to the table that people
read. Pure."""

EFFECTS = ("kernel", "probe", "programs")
"""Modules with effects; all others of this package are pure."""
