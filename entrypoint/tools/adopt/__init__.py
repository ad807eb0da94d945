"""Writes a job.yaml for somebody who has none yet, from what is found here (`init`)."""

EFFECTS = ("init",)
"""Modules with effects."""
