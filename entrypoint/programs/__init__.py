"""Processes: what keeps each one, its output, its stacks, and what it leaves running."""
