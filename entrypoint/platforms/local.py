"""No platform: docker run, compose or a bare machine. Only our own variables are used, so the site
is empty."""

from __future__ import annotations

from entrypoint.platforms._clues import Clues

STARTS_ANY_PROGRAM = True
ROWS = """
`local` | nothing else | none | its host name among `hosts` | the devices | `hosts`
"""


def read(clues: Clues) -> None:
    """Take nothing: topology finds this container among the spec's hosts by its name."""
