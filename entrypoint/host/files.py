"""The run directory: private to this user, and no file in it is ever half-written."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import stat
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from entrypoint.errors import CantCreateError, ConfigError

MAX_BYTES = 64 << 20  # of a file that a setting names


def put(path: Path, data: bytes, mode: int) -> None:
    """Write a file in one step, with its mode from the first byte. A symbolic link in its place is not followed."""
    # Nobody can guess the name and put a file there, as others might in /tmp. The import of `tempfile` is slow.
    new = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    try:
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode), "wb") as file:
            os.fchmod(file.fileno(), mode)  # whatever the umask took away
            file.write(data)
        new.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            new.unlink()
        raise


def read(path: str, seconds: float = 10.0) -> bytes:
    """The content of a file that a user names. It may be a pipe, as in `--spec <(...)`, or, by mistake, a device.

    Raises OSError if it cannot be read, is longer than `MAX_BYTES`, or does not end within `seconds`.
    """
    deadline = time.monotonic() + seconds
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        ready, data = select.poll(), bytearray()
        ready.register(file, select.POLLIN)
        while ready.poll(max(0.0, deadline - time.monotonic()) * 1000):
            try:
                part = os.read(file, 1 << 20)
            except BlockingIOError:
                continue
            data += part
            if not part:
                return bytes(data)
            if len(data) > MAX_BYTES:
                raise OSError(errno.EFBIG, f"more than {MAX_BYTES >> 20} MiB")
        raise OSError(errno.ETIMEDOUT, f"not a regular file, and its end did not come within {seconds:g}s")
    finally:
        os.close(file)


class Busy(ConfigError):
    """Another entrypoint has the run directory."""


class RunDir:
    """A directory that this user alone can enter, held by one entrypoint at a time."""

    def __init__(self, path: str) -> None:
        """Make it, or take over the one of an earlier run.

        Raises CantCreateError when it can't be made, ConfigError when others can enter it or it holds other files,
        Busy when another entrypoint has it.
        """
        self.path = Path(path)
        with explained(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileExistsError):
                self.path.mkdir(mode=0o700)
        found = os.lstat(self.path)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
            raise ConfigError(
                "EP411 the run directory is not ours alone",
                f"{path} is {stat.filemode(found.st_mode)}, owner {found.st_uid}",
                "remove it, chmod 700 it, or set ENTRYPOINT_RUN_DIR to another",
            )
        names = sorted(os.listdir(self.path))
        if names and "lock" not in names:  # `close` would remove them: the directory may be somebody's home
            raise ConfigError(
                "EP411 the run directory holds other files",
                f"{path}: {names[0]}" + (f" and {len(names) - 1} more" if names[1:] else ""),
                "set ENTRYPOINT_RUN_DIR to a directory of its own, which need not be there",
            )
        self._lock = self._hold()

    def _hold(self) -> int:
        with explained(self.path):
            lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(lock)
            if isinstance(error, BlockingIOError):
                do = "give this job another ENTRYPOINT_SSH_PORT or ENTRYPOINT_RUN_DIR"
                raise Busy("EP414 another entrypoint is at work in this run directory", str(self.path), do) from None
            raise CantCreateError(  # such as Lustre, mounted without flock
                "EP412 the run directory's file system cannot lock files",
                f"{self.path}: {error.strerror}",
                "set ENTRYPOINT_RUN_DIR to a directory of this machine's own, such as one in /tmp",
            ) from None
        return lock

    def write(self, name: str, text: str | bytes, mode: int) -> None:
        """Write a file in one step: a reader sees all of it or none, with its mode from the first byte.

        Raises CantCreateError when the disk is full or read-only.
        """
        data = text if isinstance(text, bytes) else text.encode("utf-8", "surrogateescape")
        with explained(self.path / name):
            put(self.path / name, data, mode)

    def pipe(self, name: str) -> int:
        """A named pipe, opened so that it never blocks and never ends; the caller closes it."""
        path = self.path / name
        with explained(path):
            path.unlink(missing_ok=True)
            os.mkfifo(path, 0o600)
            return os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)

    def close(self) -> None:
        """Remove what is in it, secrets first, and the directory too where its parent allows.

        The lock goes last: if a SIGKILL interrupts this, the next start sees by it that the rest is ours.
        """
        with contextlib.suppress(OSError):
            for name in self._content():
                with contextlib.suppress(OSError):
                    os.unlink(self.path / name)
            if folders := self._content():  # a launcher's own
                import shutil  # slow to import: it can read archives

                for name in folders:
                    shutil.rmtree(self.path / name, ignore_errors=True)
            if os.listdir(self.path) == ["lock"]:
                os.unlink(self.path / "lock")
                self.path.rmdir()
        os.close(self._lock)

    def _content(self) -> list[str]:
        return [name for name in os.listdir(self.path) if name != "lock"]


def make_folders(paths: Iterable[str]) -> None:
    """Make directories that outlive the job, such as for logs.

    Raises CantCreateError when one can't be made, ConfigError when another user could have put it there, as in /tmp.
    """
    for path in map(Path, paths):
        with explained(path, "ENTRYPOINT_LOG_DIR"):
            path.mkdir(parents=True, exist_ok=True)
            found, around = os.lstat(path), os.stat(path.parent)
        mine = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
        if around.st_mode & stat.S_IWOTH and not mine:
            seen = f"{path} is {stat.filemode(found.st_mode)}, owner {found.st_uid}"
            do = "remove it, or set ENTRYPOINT_LOG_DIR to another"
            raise ConfigError("EP413 a directory for logs is not ours", seen, do)


@contextlib.contextmanager
def explained(path: Path, setting: str = "ENTRYPOINT_RUN_DIR") -> Iterator[None]:
    """Turn an OSError into an error that says what to do."""
    try:
        yield
    except OSError as error:
        do = f"make room, or set {setting} to a writable place"
        raise CantCreateError(f"EP410 cannot write {path}", error.strerror or str(error), do) from error
