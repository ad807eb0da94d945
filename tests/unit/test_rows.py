"""What the containers' look at an example would notice of a job that went wrong."""

from __future__ import annotations

import pytest

from tests.rows import agrees

GOOD = "loss 1.5 -> 0.5\ndifference to one process: 1.0e-13 (allowed 1e-12)\n"


@pytest.mark.control("every launcher trains over several nodes as one process would")
@pytest.mark.parametrize(
    "change", [("1.0e-13", "1.0e-11"), ("1.0e-13", "nan"), ("1e-12", "1e-02"), ("0.5", "1.4")]
)
def test_disagreement_is_noticed(change: tuple[str, str]) -> None:
    agrees(GOOD, "1e-12")
    with pytest.raises(AssertionError):
        agrees(GOOD.replace(*change), "1e-12")
