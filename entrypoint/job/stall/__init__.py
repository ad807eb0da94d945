"""A job that has stalled: when that is so, and which rank the others wait for."""
