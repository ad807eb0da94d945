"""When silence is a loss: the limit is a limit, and our own time out is nobody's silence."""

from __future__ import annotations

import pytest

from entrypoint import heartbeat


@pytest.mark.parametrize("limit", [1.0, 4.0, 15.0])
def test_who_is_silent_for_less_than_the_limit_is_never_lost(limit: float) -> None:
    # Its last word was heard just after it was due, and the next would have been, just before it
    # fell silent.
    oldest = heartbeat.interval(limit)
    assert oldest + limit <= heartbeat.patience(limit)


@pytest.mark.control("time for which this host was suspended is not held against its peers")
def test_fifteen_seconds_mean_fifteen_to_eighteen() -> None:
    assert (heartbeat.interval(15.0), heartbeat.patience(15.0)) == (3.0, 18.0)


@pytest.mark.promise("time for which this host was suspended is not held against its peers")
@pytest.mark.parametrize(
    ("due", "now", "heard"),
    [
        (105.0, 105.0, 100.0),  # in time: nothing is forgiven
        (105.0, 104.0, 100.0),  # woken for something else
        (105.0, 135.0, 130.0),  # frozen for thirty seconds: five of silence were ours to hear
        (90.0, 135.0, 135.0),  # heard since: never in the future
    ],
)
def test_the_time_that_we_stood_still_is_not_counted(due: float, now: float, heard: float) -> None:
    assert heartbeat.forgiven(100.0, due, now) == heard
