"""The network check, as values: which pairs of nodes measure when, what was seen, and which node or pair is slow."""
