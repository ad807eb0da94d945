"""Writes a job.yaml for somebody who has none yet, from what is found here (`init`)."""

EFFECTS = ("document", "init")
"""Modules with effects; all others of this package are pure."""
