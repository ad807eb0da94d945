"""The network check as values: which pairs of nodes measure when, their results, and which node or pair is slow."""
