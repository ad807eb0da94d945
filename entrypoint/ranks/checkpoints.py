"""Watches what `restarts.progress` names, a file or a folder, for a change during an attempt.

Any change shows that the job has not stalled. For restarts, and at the end of an attempt, only a
file that is finished counts: one that was renamed after it was written, a step file, or one that
has not changed between two scans while the ranks run.

The path may be on a slow network disk: it is only scanned in a thread, and nothing waits for that
longer than `_LIMIT`, also when ranks start and end.
"""

from __future__ import annotations

import asyncio
import os
import stat
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from operator import itemgetter

from entrypoint.base.cause import Saved
from entrypoint.base.errors import RetryError
from entrypoint.base.text import Log, one_line
from entrypoint.base.values import dataclass, field, frozen
from entrypoint.job.messages import Grew, Progressed
from entrypoint.system.threads import in_thread, rest

_LIMIT = 2.0  # seconds for one look when ranks start, and when they end
_CLOSEST = 5.0  # seconds between two looks, at least
_SHARE = 20  # between two looks pass so many times the seconds that one takes
_MOST = 50_000  # files of a folder that are compared one by one
_STEP_FILE = 256  # bytes of a file at most that is written at once, as one with the last step


@frozen
class Look:
    """The contents of a path at one time.

    files: Path, time of the last change (ns) and size of each file, and whether it is finished in
      any case; None if they are too many.
    latest: When the newest of them was changed (ns), by the clock of its file system.
    problem: Why nothing can be seen, although something may be there.
    """

    files: Mapping[tuple[str, int, int], bool] | None = field(default_factory=dict)
    latest: int = 0
    problem: str = ""

    def is_news_after(self, before: Look) -> bool:
        """Return whether a file is new, or has changed."""
        if self.files is None or before.files is None:
            return self.latest > before.latest
        return not self.files.keys() <= before.files.keys()

    def is_finished(self, before: Look, last: Look | None) -> bool:
        """Return whether what is new is finished. `last`: an earlier look, while the ranks ran."""
        if self.files is None or before.files is None:
            return last is not None and self.latest == last.latest
        old = {} if last is None else last.files or {}
        news = self.files.keys() - before.files.keys()
        return any(self.files[file] or file in old for file in news)

    def without_later(self, last: Look, since: float) -> Look:
        """Return this look without what was changed after that Unix time and is not in the `last`
        one: the ranks may have begun to save before it was over."""
        if self.files is None or last.files is None:
            return self
        files = {
            file: is_whole
            for file, is_whole in self.files.items()
            if file in last.files or file[1] <= since * 1e9
        }
        return Look(files, self.latest, self.problem)

    def saved_since(self, before: Look, since: float, path: str, seen: Look | None) -> Saved | None:
        """Return what is finished now, and was not there `before`, at that Unix time. A checkpoint
        of many files has the name of its largest. `seen`: the look before that: a file that has
        changed since may be half of one."""
        if self.files is None or before.files is None or self.problem:
            return None
        news = self.files.keys() - before.files.keys()
        is_saved = any(self.files[file] for file in news)
        if not is_saved:
            old = seen.files if seen else None
            finished = (
                file[1]
                for file, is_whole in before.files.items()
                if is_whole or old is None or file in old
            )
            latest = max(finished, default=None)
            return Saved("", latest and round(min(0.0, latest / 1e9 - since), 1))
        largest, time_ns, _ = max(news, key=itemgetter(2))
        name = largest.removeprefix(path).strip("/").partition("/")[0] or os.path.basename(path)
        seconds = min(max(0.0, time_ns / 1e9 - since), time.time() - since)
        return Saved(one_line(name, 100), round(seconds, 1))


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
        is_last = found.st_mtime_ns == _changed(os.path.dirname(path))
        return Look(dict([_entry(path, found, is_last)]), found.st_ctime_ns)
    files: dict[tuple[str, int, int], bool] | None = {}
    latest = 0
    for file, about, is_last in _files(path):
        latest = max(latest, about.st_ctime_ns)  # nobody can set this one
        if files is not None:
            files.update([_entry(file, about, is_last)])
            files = files if len(files) <= _MOST else None
    return Look(files, latest)


def _entry(path: str, about: os.stat_result, is_last: bool) -> tuple[tuple[str, int, int], bool]:
    # Writing sets both times; renaming only the second one, and the folder's. The kernel's clock
    # for them ticks every few ms: after a rename in the tick of the last write all are the same.
    size = about.st_size
    is_renamed = about.st_ctime_ns > about.st_mtime_ns or (is_last and size > 0)
    is_whole = is_renamed or 0 < size <= _STEP_FILE
    return (path, about.st_mtime_ns, size), is_whole


def _changed(folder: str) -> int:
    """Return when a file of this folder was made, renamed or removed (ns); 0 if that cannot be
    seen."""
    with suppress(OSError):
        return os.stat(folder or ".").st_mtime_ns
    return 0


def _files(folder: str) -> Iterator[tuple[str, os.stat_result, bool]]:
    """Yield all files below a folder, and once more, with True, one that alone was last written
    when its folder was last changed: if another follows, half of a checkpoint may be there. A
    folder's own time does not count: it changes, too, if something is removed."""
    folders = [folder]
    while folders:
        with suppress(OSError), os.scandir(folder := folders.pop()) as entries:
            changed = _changed(folder)
            latest: list[tuple[str, os.stat_result]] = []
            for entry in entries:
                with suppress(OSError):  # it was removed meanwhile
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                        continue
                    about = entry.stat(follow_symlinks=False)
                    if about.st_mtime_ns >= changed:
                        latest = [*latest[:1], (entry.path, about)]
                    yield entry.path, about, False
            if [about.st_mtime_ns for _, about in latest] == [changed]:
                yield *latest[0], True


@dataclass
class CheckpointWatch:
    """Says once in an attempt that something new is finished there, and whenever it has changed."""

    path: str
    tell: Callable[[Progressed | Grew], None]
    log: Log
    _before: Look | None = None  # what was there before the ranks started
    _last: Look | None = None  # the last look
    _at_stop: Look | None = None  # what was there before the ranks could save
    _seen: Look | None = None  # the look before that
    _has_progressed = False
    _stopped = 0.0  # when ranks got SIGTERM (Unix time): they may be killed from then on

    async def begin(self) -> None:
        """Remember what is there before ranks start. If the look takes too long, what it finds
        later counts."""
        await asyncio.wait({asyncio.ensure_future(self._look())}, timeout=_LIMIT)

    async def watch(self) -> None:
        """Scan the path at intervals while the ranks run."""
        pause = _CLOSEST
        while not self._stopped:
            await rest(pause)
            begun = time.monotonic()
            await self._look()
            pause = max(_CLOSEST, _SHARE * (time.monotonic() - begun))

    def stop(self) -> Awaitable[None]:
        """The ranks are told to stop: a file that does not change may be half of one. See what is
        there before they save."""
        self._stopped = time.time()
        self._at_stop = self._seen = self._last
        return asyncio.ensure_future(self._look_at_stop())

    async def end(self) -> Saved | None:
        """Scan the path for the last time. Return what the ranks have saved since `stop`; None if
        that cannot be seen."""
        look = asyncio.ensure_future(self._look())
        await asyncio.wait({look}, timeout=_LIMIT)
        if not look.done():
            look.cancel()
            return None
        now = look.result()
        if not now or not self._at_stop:
            return None
        return now.saved_since(self._at_stop, self._stopped, self.path, self._seen)

    async def _look_at_stop(self) -> None:
        last = self._last
        now = await self._look()
        if now and last:
            self._at_stop = now.without_later(last, self._stopped)

    async def _look(self) -> Look | None:
        """Scan the path, and say what is new. None if no thread can start now."""
        try:
            now = await in_thread(partial(look_at, self.path))
        except RetryError:
            return None
        before, last, self._last = self._before, self._last, now
        if not before or not last:
            self._before = now
            if now.problem:
                detail = f"{self.path}: {now.problem}"
                hint = "let this user read it, or name another path: no change there is seen"
                self.log(f"warning: EP641 restarts.progress cannot be read | {detail} | {hint}")
            return now
        if now.is_news_after(last):
            self.tell(Grew())
        is_new = now.is_news_after(before) and not self._has_progressed
        if is_new and now.is_finished(before, None if self._stopped else last):
            self._has_progressed = True
            self.tell(Progressed())
        return now
