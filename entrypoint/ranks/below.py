"""Sends a signal to every process of a rank, once."""

from __future__ import annotations

import os
import time

from entrypoint.system import proc

if False:  # only for type checkers: importing it is slow
    from collections.abc import Callable

    Family = dict[int, tuple[str, list[str]]]  # pid -> name and the fields of proc.stat

_TERM = 15
_GROUP = 2  # index among the fields of `stat`
_START = 19
# These only wait for their child and pass signals on to it, and move themselves or it to another
# process group.
WRAPPERS = ("timeout", "tini", "dumb-init", "catatonit")


class Below:
    """The processes of a rank in any process group or session, besides its own, and which of them
    were sent SIGTERM. `family` looks for them."""

    def __init__(self, family: Callable[[], Family]) -> None:
        self._family = family
        self._signalled: set[tuple[int, str]] = set()  # pid and start time

    def terminate(self, group: int, everywhere: bool) -> None:
        """Note that this group, the rank's or 0 for none, was sent SIGTERM; if `everywhere`, send
        it to processes in other groups.

        A process that starts later gets no signal: a program that knows of the stop starts it, for
        example to save.
        """
        now = time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK")
        while True:  # until no process was forked meanwhile
            processes = self._family()
            new = {
                pid
                for pid, (_, fields) in processes.items()
                if (pid, fields[_START]) not in self._signalled
                and int(fields[_START]) <= now
                and (everywhere or int(fields[_GROUP]) == group)
            }
            if not new:
                return
            self._signalled |= {(pid, processes[pid][1][_START]) for pid in new}
            proc.kill(outside(processes, new, group), _TERM)

    def tell_the_rest(self) -> None:
        """Send SIGTERM to all processes that were not sent it yet."""
        present = {(pid, fields[_START]) for pid, (_, fields) in self._family().items()}
        new = present - self._signalled
        self._signalled |= new
        proc.kill([pid for pid, _ in new], _TERM)

    def tell_user_signal(self, signum: int, group: int) -> None:
        """Send SIGUSR1 or SIGUSR2, as to this group, to processes in other groups that have a
        handler.

        It would end the others.
        """
        processes = self._family()
        others = outside(processes, set(processes), group)
        proc.kill([pid for pid in others if proc.catches(pid, signum)], signum)


def cut_message(grace: float, family: Family) -> bytes:
    """Return the line about these processes, which are ended though they print."""
    from entrypoint.base.text import some  # slow to import

    names = some((f"{name} ({pid})" for pid, (name, _) in family.items()), 4)
    line = (
        "warning: EP629 processes that the program left running still print; ending them |"
        f" {names}, {grace:g}s after its end | let the program wait for them, or raise"
        " timeouts.grace\n"
    )
    return line.encode("utf-8", "backslashreplace")


def terminate_tree(leader: int) -> set[int]:
    """Send SIGTERM once to the process group of this leader, and to processes below it in other
    groups.

    Returns the processes below it, which may take longer than itself to end.
    """
    processes = _below(leader)
    proc.kill((-leader, *outside(processes, set(processes), leader)), _TERM)
    return set(processes)


def _below(pid: int) -> Family:
    return {below: (name, fields) for below, name, fields in proc.below(pid)}


def outside(processes: Family, pids: set[int], group: int) -> list[int]:
    """Return the processes that are in another process group than this one, and get no signal from
    a wrapper.

    A wrapper in another group is left out, so that its program is signalled once; it ends with its
    program.
    """
    chosen = []
    for pid in pids:
        name, fields = processes[pid]
        parent, parent_fields = processes.get(int(fields[1]), ("", fields))
        by_wrapper = parent in WRAPPERS and int(parent_fields[_GROUP]) == group
        if not (int(fields[_GROUP]) == group or name in WRAPPERS or by_wrapper):
            chosen.append(pid)
    return chosen
