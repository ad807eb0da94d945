"""One row of the table of signatures."""

from __future__ import annotations

from typing import NamedTuple

from entrypoint.cause import Blame, Certainty, Retry, Role
from entrypoint.causes.clean import compiled


class Signature(NamedTuple):
    """Words of a program, library, kernel or scheduler, and what they say about a failure.

    What is empty has the value of its kind.
    """

    slug: str
    needle: str  # literal part of the line
    # in words; may hold `{device}` and the names of the pattern's groups
    says: str = ""
    # of a line with the needle; linear. "" means that the needle is enough
    pattern: str = ""
    role: Role | None = None
    blame: Blame | None = None
    retry: Retry | None = None
    certainty: Certainty | None = None
    fix: str = ""
    also: str = ""  # literal that must be somewhere else in the output
    weight: int = 0  # how decisive it is, as in kinds.py
    # it counts on a line that is marked as a warning, and also if progress followed it
    always: bool = False

    def match(self, line: str) -> dict[str, str] | None:
        """Return the named groups of the pattern in a line that holds the needle; None if the
        pattern does not match."""
        if not self.pattern:
            return {}
        found = compiled(self.pattern).search(line)
        return found and {name: text or "" for name, text in found.groupdict().items()}
