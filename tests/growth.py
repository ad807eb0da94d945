"""How the time of some work grows with its size: that of two sizes is compared, never with a number
of seconds, which would depend on the machine."""

import gc
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
GROWTH = 10  # times as long for four times as much: 4 is linear, 16 is the square
BRIEF = 0.01  # seconds of processor time that may be noise
ROUNDS = 3


def grows_too_fast(work: Callable[[T], object], short: T, long: T) -> bool:
    """Return whether `long`, which is four times as much as `short`, takes more than GROWTH times
    as long.

    In turn, several times: what else this machine does makes some of them longer, never shorter.
    """
    brief = lengthy = float("inf")
    for _ in range(ROUNDS):
        brief, lengthy = min(brief, _seconds(work, short)), min(lengthy, _seconds(work, long))
        if lengthy <= max(BRIEF, GROWTH * brief):
            return False
    return True


def _seconds(work: Callable[[T], object], given: T) -> float:
    gc.disable()  # a collection takes long in the process of all tests
    try:
        begun = time.process_time()
        work(given)
        return time.process_time() - begun
    finally:
        gc.enable()
