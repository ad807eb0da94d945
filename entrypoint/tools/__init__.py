"""Tools: commands that never run in a container that trains."""
