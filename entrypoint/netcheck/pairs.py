"""Chooses which pairs of nodes measure at the same time: rounds of pairs that share no node and so do not disturb
each other.
"""

from __future__ import annotations

Pair = tuple[int, int]  # two nodes by rank, the lower first

MOST_NODES = 32  # up to this number of nodes every pair is measured
_SAMPLED = 16  # rounds for more nodes, so each node measures with this many peers


def rounds(nodes: int) -> list[list[Pair]]:
    """Return every pair once, in the fewest rounds: a round-robin tournament (the circle method)."""
    players = [*range(nodes), *([-1] if nodes % 2 else [])]  # the opponent of -1 rests
    half, result = len(players) // 2, []
    for _ in range(len(players) - 1):
        pairs = zip(players[:half], reversed(players[half:]), strict=True)
        result.append(sorted((min(pair), max(pair)) for pair in pairs if -1 not in pair))
        players = [players[0], players[-1], *players[1:-1]]
    return result if nodes > 1 else []


def chosen(nodes: int) -> list[list[Pair]]:
    """Return the rounds to measure: all, or for many nodes a sample in which all nodes have equally many peers."""
    everything = rounds(nodes)
    if nodes <= MOST_NODES:
        return everything
    return [everything[number * len(everything) // _SAMPLED] for number in range(_SAMPLED)]
