"""What never runs in a container that trains."""
