"""Features: all that a job can do without. The core imports none of them: `cli` hands them in."""
