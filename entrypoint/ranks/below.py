"""Gets a signal to every process of a rank, once. Each rank's supervisor imports this: keep it fast."""

from __future__ import annotations

import os
import time

from entrypoint.system import proc

_TERM = 15
_GROUP, _START = 2, 19  # among the fields of `stat`
# They only wait for their child, pass signals on to it, and have put themselves or it into another process group.
_WRAPPERS = ("timeout", "tini", "dumb-init", "catatonit")


class Below:
    """The processes below this one, in whatever process group or session, and which of them have had SIGTERM."""

    def __init__(self) -> None:
        self._had: set[tuple[int, str]] = set()  # pid and time of start

    def terminate(self, everywhere: bool) -> None:
        """This process's group was sent SIGTERM. Note that; if `everywhere`, send it to processes in other groups.

        What starts from now on is started by a program that knows of the stop, for example to save: it gets nothing.
        """
        now = time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK")
        while True:  # until nothing is found that was forked meanwhile
            found = {pid: (name, fields) for pid, name, fields in proc.below(os.getpid())}
            new = {
                pid
                for pid, (_, fields) in found.items()
                if (pid, fields[_START]) not in self._had and int(fields[_START]) <= now
            }
            if not everywhere:
                new = {pid for pid in new if int(found[pid][1][_GROUP]) == os.getpgrp()}
            if not new:
                return
            self._had |= {(pid, found[pid][1][_START]) for pid in new}
            proc.kill(outside(found, new, os.getpgrp()), _TERM)

    def tell_the_rest(self) -> None:
        """SIGTERM to all that have not had it."""
        found = proc.below(os.getpid())
        new = [(pid, fields[_START]) for pid, _, fields in found if (pid, fields[_START]) not in self._had]
        self._had |= {*new}
        proc.kill([pid for pid, _ in new], _TERM)

    def tell_user_signal(self, signum: int) -> None:
        """This process's group was sent SIGUSR1 or SIGUSR2: send it to those in other groups that have a handler.

        Others would be ended by it.
        """
        found = {pid: (name, fields) for pid, name, fields in proc.below(os.getpid())}
        proc.kill([pid for pid in outside(found, set(found), os.getpgrp()) if _catches(pid, signum)], signum)


def terminate_tree(leader: int) -> set[int]:
    """Send SIGTERM to the process group that this process leads, and to what it has started in other groups, once each.

    Returns the processes below it, which may take longer than itself to end.
    """
    found = {pid: (name, fields) for pid, name, fields in proc.below(leader)}
    proc.kill((-leader, *outside(found, set(found), leader)), _TERM)
    return set(found)


def outside(found: dict[int, tuple[str, list[str]]], pids: set[int], group: int) -> list[int]:
    """Those of the processes that are in another process group than this one, and that no wrapper tells.

    A wrapper in another group is left out, so that its program is told once; it ends with its program.
    """
    chosen = []
    for pid in pids:
        name, fields = found[pid]
        parent, of_parent = found.get(int(fields[1]), ("", fields))
        told = parent in _WRAPPERS and int(of_parent[_GROUP]) == group
        if not (int(fields[_GROUP]) == group or name in _WRAPPERS or told):
            chosen.append(pid)
    return chosen


def _catches(pid: int, signum: int) -> bool:
    return bool((proc.number(f"/proc/{pid}/status", "SigCgt:", 16) or 0) >> (signum - 1) & 1)
