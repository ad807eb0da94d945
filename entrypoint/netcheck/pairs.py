"""Chooses which pairs of nodes measure at the same time: rounds of pairs that share no node and so
do not disturb each other.
"""

from __future__ import annotations

Pair = tuple[int, int]  # two nodes by rank, the lower first

MOST_NODES = 32  # up to this number of nodes every pair is measured
_SAMPLED = 16  # rounds for more nodes, so each node measures with this many peers


def rounds(nodes: int) -> list[list[Pair]]:
    """Return every pair once, in the fewest rounds: a round-robin tournament (the circle
    method)."""
    return [_round(nodes, number) for number in range(_needed(nodes))]


def chosen(nodes: int) -> list[list[Pair]]:
    """Return the rounds to measure: all, or for many nodes a sample in which all nodes have equally
    many peers."""
    if nodes <= MOST_NODES:
        return rounds(nodes)
    return [_round(nodes, number * _needed(nodes) // _SAMPLED) for number in range(_SAMPLED)]


def _needed(nodes: int) -> int:
    """Return the number of rounds in which every pair meets once."""
    return nodes - 1 + nodes % 2 if nodes > 1 else 0


def _round(nodes: int, number: int) -> list[Pair]:
    """Return the pairs of one round: the first player stays, and the others move on by one place
    each round."""
    others = [*range(1, nodes), *([-1] if nodes % 2 else [])]  # the opponent of -1 rests
    start = len(others) - number
    players = [0, *others[start:], *others[:start]]
    half = len(players) // 2
    pairs = zip(players[:half], reversed(players[half:]), strict=True)
    return sorted((min(pair), max(pair)) for pair in pairs if -1 not in pair)
