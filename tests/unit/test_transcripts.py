"""A machine answers as the stories in tests/transcripts/ say."""

from __future__ import annotations

import pytest

from tests.unit.transcripts import play, stories

STORIES = {name: told for name, *told in stories()}


@pytest.mark.promise("a node of an elastic job counts once its launcher has met the others")
@pytest.mark.control("a node of an elastic job counts once its launcher has met the others")
@pytest.mark.promise("a node that does not pass its gate never gets a rank")
@pytest.mark.control("a node that does not pass its gate never gets a rank")
@pytest.mark.promise("a job ends by a stall only if a rank differs, or after five times the limit")
@pytest.mark.control("a job ends by a stall only if a rank differs, or after five times the limit")
@pytest.mark.promise("a worker leaves when worker-0 has read its goodbye, or 2 s after it")
@pytest.mark.control("a worker leaves when worker-0 has read its goodbye, or 2 s after it")
@pytest.mark.promise(
    "a node whose own program has failed believes no success", control="a story with 0"
)
@pytest.mark.parametrize("name", STORIES)
def test_the_machine_answers_as_written(name: str) -> None:
    """`make golden` writes the answers anew: read the diff."""
    head, story = STORIES[name]
    assert play(head, story) == story


def test_another_answer_is_noticed() -> None:
    head, story = STORIES["elastic: worker-0 counts always"]
    wrong = story.replace("ends with 7", "ends with 0")
    assert play(head, wrong) == play(head, story) != wrong != story
