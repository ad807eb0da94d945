"""Watches what `restarts.progress` names, a file or a folder, for a change during an attempt.

It may be on a slow network disk: it is only looked at in a thread, and nothing waits for that
longer than `_LIMIT`, also when ranks start and end.
"""

from __future__ import annotations

import asyncio
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial

from entrypoint.errors import RetryError
from entrypoint.job.messages import Progressed
from entrypoint.system.clock import rest
from entrypoint.system.threads import in_thread
from entrypoint.text import Log
from entrypoint.values import dataclass

_LIMIT = 2.0  # seconds for one look when ranks start, and when they end
_CLOSEST = 5.0  # seconds between two looks, at least
_SHARE = 20  # between two looks pass so many times the seconds that one takes
_MOST = 50_000  # files of a folder that are compared one by one


@dataclass(frozen=True)
class Look:
    """What was there at one time.

    files: Path, time of the last change (ns) and size of each file; None if they are too many.
    latest: When the newest of them was changed (ns), by the clock of its file system.
    problem: Why nothing can be seen, although something may be there.
    """

    files: frozenset[tuple[str, int, int]] | None = frozenset()
    latest: int = 0
    problem: str = ""

    def is_news_after(self, before: Look) -> bool:
        """Whether a file is new, or has changed."""
        if self.files is None or before.files is None:
            return self.latest > before.latest
        return bool(self.files - before.files)


def look_at(path: str) -> Look:
    """Return what is there now; nothing where nothing is there, or nobody may read it."""
    try:
        found = os.stat(path)
        if stat.S_ISDIR(found.st_mode):
            os.scandir(path).close()
    except (FileNotFoundError, NotADirectoryError):  # it may come
        return Look()
    except OSError as error:
        return Look(problem=error.strerror or str(error))
    if not stat.S_ISDIR(found.st_mode):
        return Look(frozenset({(path, found.st_mtime_ns, found.st_size)}), found.st_ctime_ns)
    files: set[tuple[str, int, int]] | None = set()
    latest = 0
    for file, about in _files(path):
        latest = max(latest, about.st_ctime_ns)  # nobody can set this one
        if files is not None:
            files.add((file, about.st_mtime_ns, about.st_size))
            files = files if len(files) <= _MOST else None
    return Look(None if files is None else frozenset(files), latest)


def _files(folder: str) -> Iterator[tuple[str, os.stat_result]]:
    """Yield all files below a folder. A folder's own time does not count: it changes, too, if
    something is removed."""
    folders = [folder]
    while folders:
        with suppress(OSError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                with suppress(OSError):  # it was removed meanwhile
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                        continue
                    yield entry.path, entry.stat(follow_symlinks=False)


class CheckpointWatch:
    """Says once in an attempt that something is new there: a file, or its time or size."""

    def __init__(self, path: str, tell: Callable[[Progressed], None], log: Log) -> None:
        self._path = path
        self._tell = tell
        self._log = log
        self._before: Look | None = None  # what was there before the ranks started
        self._has_changed = False

    async def begin(self) -> None:
        """Remember what is there before ranks start. If the look takes too long, what it finds
        later counts."""
        first = asyncio.ensure_future(in_thread(partial(look_at, self._path)))
        first.add_done_callback(self._remember)
        await asyncio.wait({first}, timeout=_LIMIT)

    def _remember(self, first: asyncio.Future[Look]) -> None:
        if not first.cancelled() and first.exception() is None:
            self._before = first.result()
            if self._before.problem:
                detail = f"{self._path}: {self._before.problem}"
                hint = "let this user read it, or name another path: no change there is seen"
                self._log(f"warning: EP641 restarts.progress cannot be read | {detail} | {hint}")

    async def watch(self) -> None:
        """Look now and then, until something has changed."""
        pause = _CLOSEST
        while not self._has_changed:
            await rest(pause)
            begun = time.monotonic()
            await self._look()
            pause = max(_CLOSEST, _SHARE * (time.monotonic() - begun))

    async def end(self) -> None:
        """Look for the last time."""
        if not self._has_changed:
            last = asyncio.ensure_future(self._look())
            await asyncio.wait({last}, timeout=_LIMIT)
            last.cancel()

    async def _look(self) -> None:
        try:
            now = await in_thread(partial(look_at, self._path))
        except RetryError:
            return  # no thread can start now
        if self._before and now.is_news_after(self._before) and not self._has_changed:
            self._has_changed = True
            self._tell(Progressed())
