"""The ports of tests that run side by side."""

from __future__ import annotations

import random

import pytest

from tests.cluster import CLAIMS, free_port


class Drawn:
    """Draws the same port twice, then others."""

    left = (24001, 24001, *range(24002, 24032))

    def __init__(self) -> None:
        self.ports = iter(self.left)

    def randrange(self, _first: int, _end: int) -> int:
        return next(self.ports)


def test_a_port_that_was_given_is_not_given_again(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = Drawn()
    monkeypatch.setattr(random, "SystemRandom", lambda: drawn)
    first = free_port()
    assert free_port() != first


def test_old_claims_are_closed() -> None:
    """A claim that is only dropped is a ResourceWarning, which fails the test that comes next."""
    assert len({free_port() for _ in range(2 * CLAIMS)}) > CLAIMS
