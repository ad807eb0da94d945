"""What may only fall does (tests/size.py): a commit that needs more takes it from elsewhere."""

from __future__ import annotations

import pytest

from tests import TREE, size

pytestmark = [
    pytest.mark.textual,
    pytest.mark.skipif(not (TREE / ".git").exists(), reason="git knows what belongs to the tree"),
]


def test_no_number_rises() -> None:
    now, most = size.now(), size.most()
    risen = {
        name: f"{number} of {most[name]}" for name, number in now.items() if number > most[name]
    }
    assert risen == {}, "take it from elsewhere first"


def test_the_numbers_are_those_of_this_tree() -> None:
    """The control: figures far above would hold nothing."""
    now = size.now()
    assert {name for name, number in size.most().items() if number > 1.01 * now[name]} == set()
