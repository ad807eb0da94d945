"""When a peer that says nothing is lost. No clock runs here: every time is given, in seconds on one that is not set.

A peer speaks every fifth of the heartbeat limit, so what was heard of it last may be that much older than its silence.
"""

from __future__ import annotations

_BEATS = 5  # in one limit: a node that is cut off is lost within six fifths of it


def interval(limit: float) -> float:
    """Between two words of a peer."""
    return limit / _BEATS


def patience(limit: float) -> float:
    """After the last word, until its peer is lost: nobody is who was silent for less than the limit."""
    return limit + interval(limit)


def forgiven(heard: float, due: float, now: float) -> float:
    """When a peer was heard last, less the time in which we ourselves stood still: we meant to wake when it was `due`.

    What the peer said meanwhile still lies in our socket.
    """
    return min(now, heard + max(0.0, now - due))
