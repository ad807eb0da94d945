"""Which pairs of nodes measure at the same time: rounds of pairs that share no node, so that none disturbs another."""

from __future__ import annotations

Pair = tuple[int, int]  # two nodes by rank, the lower first

MOST_NODES = 32  # up to so many, every pair is measured
_SAMPLED = 16  # rounds where there are more: so many peers of each node


def rounds(nodes: int) -> list[list[Pair]]:
    """Every pair once, in the fewest rounds: a round-robin tournament (the circle method)."""
    players = [*range(nodes), *([-1] if nodes % 2 else [])]  # who plays against -1 rests
    half, made = len(players) // 2, []
    for _ in range(len(players) - 1):
        pairs = zip(players[:half], reversed(players[half:]), strict=True)
        made.append(sorted((min(pair), max(pair)) for pair in pairs if -1 not in pair))
        players = [players[0], players[-1], *players[1:-1]]
    return made if nodes > 1 else []


def chosen(nodes: int) -> list[list[Pair]]:
    """The rounds that are measured: all, or of many nodes a sample in which each node has as many peers as another."""
    every = rounds(nodes)
    if nodes <= MOST_NODES:
        return every
    return [every[number * len(every) // _SAMPLED] for number in range(_SAMPLED)]
