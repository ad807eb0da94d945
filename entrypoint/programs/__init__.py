"""Processes: their supervisor, output and stacks, and what they leave running."""
