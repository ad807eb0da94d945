"""How slow this machine is, for limits on CPU time: the clock of a virtual machine's processor may
change by half within minutes."""

import time

USUAL = 0.03  # seconds of CPU for the sum below on the machine on which the limits were measured


def slowness() -> float:
    """Return how many times slower this machine is now than the usual one; at least 1."""
    begin = time.process_time()
    sum(len(str(n)) for n in range(200_000))
    return max(1.0, (time.process_time() - begin) / USUAL)
