"""The families of processes below the keeper: which of them belong to which program or rank.

Orphans come to the keeper. Whose they are is known from their process group, which a program leads,
or from the mark that each program and rank has in its environment.
"""

from __future__ import annotations

from entrypoint.base.kept import MARK
from entrypoint.system import proc

if False:  # only for type checkers: importing it is slow
    from collections.abc import Iterable

    from entrypoint.ranks.below import Family
    from entrypoint.ranks.kept import Kept

_GROUP = 2  # index among the fields of `stat`


class Families:
    """The families of all that is kept."""

    def __init__(self) -> None:
        self.placeholders: set[int] = set()  # which are the launcher's
        self._kept: dict[int, Kept] = {}  # by the pid of its process
        self._marks: dict[str, Kept] = {}
        self._owners: dict[int, Kept | None] = {}  # orphan -> whose it is

    def add(self, kept: Kept) -> None:
        """Know a program or rank from now on."""
        self._kept[kept.pid] = kept
        self._marks[kept.mark] = kept

    def of(self, kept: Kept) -> Family:
        """Return the processes of a program or rank besides its own, also what it left running."""
        # in this order: what its process leaves at this moment becomes an orphan
        found = [] if kept.has_exited else proc.below(kept.pid)
        for orphan in self._orphans(kept):
            found += self._tree(orphan)
        return {pid: (name, fields) for pid, name, fields in found}

    def _tree(self, head: int) -> Iterable[tuple[int, str, list[str]]]:
        below = proc.below(head)
        try:
            name, fields = proc.stat(head)
        except OSError:
            return below  # it has gone
        return below if fields[0] in "ZX" else [(head, name, fields), *below]

    def _orphans(self, kept: Kept) -> list[int]:
        """Return the orphans that belong to it."""
        found = []
        for pid in proc.own_children():
            known = self._kept.get(pid)
            if pid in self.placeholders or (known is not None and not known.has_exited):
                continue
            # unknown ones are asked again: while a process is in execve(2), its environ is empty
            owner = self._owners[pid] = self._owners.get(pid) or self._owner(pid)
            while owner is not None and owner.has_left and owner.belongs_to is not None:
                owner = owner.belongs_to
            if owner is kept and not proc.has_ended(pid):
                found.append(pid)
        return found

    def ended(self, pid: int) -> None:
        """Note that the keeper has waited for this process."""
        self._owners.pop(pid, None)

    def _owner(self, pid: int) -> Kept | None:
        try:
            leader = int(proc.stat(pid)[1][_GROUP])
            if leader in self._kept:
                return self._kept[leader]
            variables = proc.variables(proc.content(pid, "environ"))
        except OSError:
            return None
        return self._marks.get(variables.get(MARK.encode(), b"").decode(errors="replace"))
