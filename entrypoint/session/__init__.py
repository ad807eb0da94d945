"""Connections between nodes: name resolution, the leader's sessions, a worker's control endpoint,
the codec."""
