"""How nodes talk: names, the leader's sessions, a worker's control endpoint, and the codec."""
