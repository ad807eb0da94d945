"""Timeouts of heartbeats: when a silent peer counts as lost. Pure: the caller gives every time, in
seconds of a monotonic clock.

A peer sends something every fifth of the heartbeat timeout, so its silence may be a fifth shorter
than it looks. In a job of thousands of nodes it is three fifths: a third of the messages.
"""

from __future__ import annotations

_AT_ONCE = 500  # peers that get their heartbeat at the same time: a hundredth of a second
_BEATS = 5  # in one timeout: a node that is cut off is lost within six fifths of it
_MANY = 5000  # nodes from which a peer sends a third as often


def interval(limit: float, nodes: int = 1) -> float:
    """Seconds between two heartbeats, for a heartbeat timeout of `limit` seconds in a job of so
    many nodes."""
    return limit / _BEATS * (3 if nodes >= _MANY else 1)


def parts(nodes: int) -> int:
    """Into how many parts so many nodes are divided, which get their heartbeats one after the
    other."""
    return 1 + nodes // _AT_ONCE


def patience(limit: float, nodes: int = 1) -> float:
    """Seconds without a message until a peer is lost. One that was silent for less than the timeout
    never is."""
    return limit + interval(limit, nodes)


def forgiven(heard: float, due: float, now: float) -> float:
    """Return when a peer was last heard, moved on by the time for which this node itself was
    suspended: it meant to wake at `due`.

    What the peer sent meanwhile is still unread in our socket.
    """
    return min(now, heard + max(0.0, now - due))
