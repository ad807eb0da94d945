"""The run directory, private to this user, and files that are written in one step."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import stat
import time
from collections.abc import Container, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from entrypoint.base.errors import CantCreateError, ConfigError, EntrypointError
from entrypoint.base.text import size, some
from entrypoint.system.descriptors import at, open_regular

if TYPE_CHECKING:
    import socket

MAX_BYTES = 64 << 20  # size limit of a file that a setting names
# folder of a run directory: TMPDIR of launchers, which leave folders of their own there
TMP = "tmp"
# First line of the lock of a run directory: 128 random bits, so that no other file begins with it.
_OURS = b"run directory of entrypoint 0f6c5a1e9b7d4c2f8a3e6d1b5c9f7042\n"
_PROBES, _PROBE = 10, 0.01  # times that a lock is tried, and the seconds between two of them


def put(path: Path, data: bytes, mode: int) -> None:
    """Write a file in one step, with its mode from the first byte. A symbolic link in its place is
    not followed."""
    # Nobody can guess the name and create that file first, as in /tmp. The import of `tempfile` is
    # slow.
    new = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    try:
        with open(
            os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode), "wb"
        ) as file:
            os.fchmod(file.fileno(), mode)  # whatever the umask is
            file.write(data)
        new.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            new.unlink()
        raise


def read(path: str, seconds: float = 10.0) -> bytes:
    """Return the content of a file that a user names, which may be a pipe, as in `--spec <(...)`.

    Raises OSError if it cannot be read, is longer than `MAX_BYTES`, or does not end within
    `seconds`.
    """
    deadline = time.monotonic() + seconds
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        ready = select.poll()
        data = bytearray()
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
                raise OSError(errno.EFBIG, f"more than {size(MAX_BYTES)}")
        raise OSError(
            errno.ETIMEDOUT, f"not a regular file, and its end did not come within {seconds:g}s"
        )
    finally:
        os.close(file)


class RunDirTaken(ConfigError):
    """Another entrypoint has the run directory."""


class RunDir:
    """A directory that only this user can enter, held by one entrypoint at a time.

    Its file `lock` begins with a unique line. A directory with that line is the entrypoint's as a
    whole, and is removed with all that is in it: at the end, or by the next entrypoint after a
    SIGKILL. A directory that holds anything else is refused.
    """

    def __init__(self, path: str) -> None:
        """Create the directory, or take over that of an earlier run.

        Raises CantCreateError if it can't be created, ConfigError if others can enter it or it is
        not an entrypoint's, RunDirTaken if another entrypoint holds it.
        """
        self.path = Path(path)
        with explained(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileExistsError):
                self.path.mkdir(mode=0o700)
        if not is_private(self.path):
            status = os.lstat(self.path)
            raise ConfigError(
                "EP411 the run directory is not private",
                f"{path} is {stat.filemode(status.st_mode)}, owner {status.st_uid}",
                "remove it, chmod 700 it, or set ENTRYPOINT_RUN_DIR to another",
            )
        names = os.listdir(self.path)
        if names and "lock" not in names:
            raise self._holds_others()
        self._lock = self._hold()
        try:
            self._take()
            self._make_tmp()
        except EntrypointError:
            os.close(self._lock)
            raise

    def _holds_others(self) -> ConfigError:
        return ConfigError(
            "EP411 the run directory contains other files",
            f"{self.path}: {some(sorted(os.listdir(self.path)), 1)}",
            "set ENTRYPOINT_RUN_DIR to a separate directory, which need not exist",
        )

    def _hold(self) -> int:
        try:
            lock = os.open(
                self.path / "lock",
                os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC,
                0o600,
            )
        except OSError as error:
            # a link, a folder, another mode
            if error.errno in (errno.ELOOP, errno.EISDIR, errno.EACCES):
                raise self._holds_others() from None
            with explained(self.path):
                raise
        try:
            _flock(lock)
        except OSError as error:
            os.close(lock)
            if isinstance(error, BlockingIOError):
                raise RunDirTaken(
                    "EP414 another entrypoint uses this run directory",
                    str(self.path),
                    "give this job another ENTRYPOINT_SSH_PORT or ENTRYPOINT_RUN_DIR",
                ) from None
            raise CantCreateError(  # for example Lustre, mounted without flock
                "EP412 the run directory's file system cannot lock files",
                f"{self.path}: {error.strerror}",
                "set ENTRYPOINT_RUN_DIR to a directory of this host, such as one in /tmp",
            ) from None
        return lock

    def _take(self) -> None:
        """Mark a new directory as an entrypoint's, or empty that of an earlier run.

        Raises ConfigError if its file `lock` is not an entrypoint's.
        """
        about = os.fstat(self._lock)
        if os.listdir(self.path) == ["lock"] and not about.st_size and stat.S_ISREG(about.st_mode):
            with explained(self.path / "lock"):
                os.pwrite(self._lock, _OURS, 0)
            return
        is_private = (
            stat.S_ISREG(about.st_mode) and about.st_uid == os.geteuid() and about.st_nlink == 1
        )
        if not is_private or os.pread(self._lock, len(_OURS), 0) != _OURS:
            raise self._holds_others()
        self._empty()

    def _make_tmp(self) -> None:
        with explained(self.path / TMP):
            os.mkdir(self.path / TMP, 0o700)

    def renew(self, kept: Container[str]) -> None:
        """Empty it for another attempt, but for these files. Raises CantCreateError."""
        with explained(self.path):
            self._empty(kept)
        self._make_tmp()

    def has(self, names: Iterable[str]) -> bool:
        """Return whether these files are there: a program may have removed them."""
        return all(os.path.lexists(self.path / name) for name in names)

    def write(self, name: str, text: str | bytes, mode: int) -> None:
        """Write a file in one step: a reader sees all of it or none, with its mode from the first
        byte.

        Raises CantCreateError if the disk is full or read-only.
        """
        data = text if isinstance(text, bytes) else text.encode("utf-8", "surrogateescape")
        with explained(self.path / name):
            try:
                put(self.path / name, data, mode)
            except IsADirectoryError:  # which a program has put there
                _remove(self.path / name)
                put(self.path / name, data, mode)

    def pipe(self, name: str) -> int:
        """Return a new named pipe, opened so that it never blocks and never ends; the caller closes
        it."""
        path = self.path / name
        with explained(path):
            path.unlink(missing_ok=True)
            os.mkfifo(path, 0o600)
            return os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)

    def bind(self, name: str) -> socket.socket:
        """Return a new stream socket of this name, only for this user; the caller listens and
        closes it."""
        import socket  # slow to import, and not needed to read files

        path = self.path / name
        bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with explained(path):
            path.unlink(missing_ok=True)
            at(self.path, name, bound.bind)
            path.chmod(0o600)
        return bound

    def _empty(self, kept: Container[str] = ()) -> None:
        """Remove all but these and the lock, which goes last: if a SIGKILL interrupts this, the
        next start still knows the directory for an entrypoint's."""
        for name in os.listdir(self.path):
            if name != "lock" and name not in kept:
                _remove(self.path / name)

    def close(self) -> None:
        """Remove the directory with all that is in it."""
        with contextlib.suppress(OSError):
            self._empty()
            if os.listdir(self.path) == ["lock"]:  # else something in it cannot be removed
                _remove(self.path / "lock")  # or what a program has put there
                self.path.rmdir()
        os.close(self._lock)


def _flock(lock: int) -> None:
    """Lock this file, now or within a moment: `is_held` may have it. Raises BlockingIOError if
    another process keeps it locked."""
    for _ in range(_PROBES):
        with contextlib.suppress(BlockingIOError):
            return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        select.select([], [], [], _PROBE)
    return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


def is_held(run_dir: str) -> bool:
    """Return whether another entrypoint holds this run directory."""
    with contextlib.suppress(OSError):
        lock = open_regular(f"{run_dir}/lock")
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(lock)
    return False


def ranks_of(run_dir: str) -> Path:
    """Return the folder in which the commands of this node's ranks outlive the run directory."""
    return Path(f"{run_dir}-ranks")


def stored_ranks(run_dir: str) -> list[str]:
    """Return the numbers of the ranks that are stored there; none if the folder is not private."""
    place = ranks_of(run_dir)
    with contextlib.suppress(OSError):
        if is_private(place):
            return [name for name in os.listdir(place) if name.isdecimal()]
    return []


def forget_ranks(run_dir: str) -> None:
    """Remove what is stored of the ranks of an earlier job. Raises OSError if the folder has other
    files, too, which stay."""
    if names := stored_ranks(run_dir):
        place = ranks_of(run_dir)
        for name in names:
            os.unlink(place / name)
        os.rmdir(place)


def is_private(path: Path) -> bool:
    """Return whether this is a directory of this user that nobody else can enter."""
    about = os.lstat(path)
    return stat.S_ISDIR(about.st_mode) and about.st_uid == os.geteuid() and not about.st_mode & 0o77


def _remove(path: Path) -> None:
    """Remove a file, or a directory with all that is in it, as far as possible. What is mounted
    there stays."""
    with contextlib.suppress(OSError, RecursionError):
        about = os.lstat(path)
        if not stat.S_ISDIR(about.st_mode):
            os.unlink(path)
        elif about.st_dev == os.lstat(path.parent).st_dev:
            for name in os.listdir(path):
                _remove(path / name)
            os.rmdir(path)


def make_folders(paths: Iterable[str]) -> None:
    """Create directories that outlive the job, such as for logs.

    Raises CantCreateError if one can't be created, ConfigError if another user could have created
    it, as in /tmp.
    """
    for path in map(Path, paths):
        with explained(path, "ENTRYPOINT_LOG_DIR"):
            path.mkdir(parents=True, exist_ok=True)
            status = os.lstat(path)
            parent = os.stat(path.parent)
        is_private = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
        if parent.st_mode & stat.S_IWOTH and not is_private:
            raise ConfigError(
                "EP413 the log directory belongs to another user",
                f"{path} is {stat.filemode(status.st_mode)}, owner {status.st_uid}",
                "remove it, or set ENTRYPOINT_LOG_DIR to another",
            )


def trusted_entries(folder: Path) -> list[Path]:
    """Return the entries of a folder by name. Raises OSError if it cannot be read, or if others can
    change it. Names that begin with a dot are ignored: Kubernetes creates such files in mounted
    folders."""
    names = sorted(name for name in os.listdir(folder) if not name.startswith("."))
    if why := untrusted(folder):
        raise OSError(0, why)
    return [folder / name for name in names]


def untrusted(path: Path) -> str:
    """Return why somebody else than this user, root or the user of the container's process 1 may
    have written this, or ""."""
    about = os.stat(path)
    trusted = {0, os.geteuid()}
    with contextlib.suppress(OSError):
        trusted.add(os.stat("/proc/1").st_uid)
    if about.st_uid not in trusted:
        return f"it belongs to user {about.st_uid}"
    is_open = about.st_mode & stat.S_IWOTH or (
        about.st_mode & stat.S_IWGRP and about.st_gid not in (0, os.getegid())
    )
    # a ConfigMap is mounted read-only, with mode 0777
    if is_open and not os.statvfs(path).f_flag & os.ST_RDONLY:
        return f"others may change it: {stat.filemode(about.st_mode)}"
    return ""


def is_trusted(path: str, about: os.stat_result) -> bool:
    """Return whether only this user or root can have created this file: it is theirs, or in a
    folder of theirs that nobody else can write into."""
    owners = (0, os.geteuid())
    folder = os.stat(os.path.dirname(os.path.abspath(path)))
    return about.st_uid in owners or (folder.st_uid in owners and not folder.st_mode & 0o022)


@contextlib.contextmanager
def explained(path: Path, setting: str = "ENTRYPOINT_RUN_DIR") -> Iterator[None]:
    """Turn an OSError into an error with a hint."""
    try:
        yield
    except OSError as error:
        hint = cure(error, path, f"set {setting} to a writable place")
        raise CantCreateError(
            f"EP410 cannot write {path}", error.strerror or str(error), hint
        ) from error


def cure(error: OSError, path: Path, otherwise: str) -> str:
    """Return what to do about this error of a file that could not be written; `otherwise` is
    another way."""
    from entrypoint.plan.limits import writable

    if error.errno in (errno.EACCES, errno.EPERM):
        return otherwise
    folder = next((str(parent) for parent in path.parents if parent.is_dir()), "/")
    return writable(folder, error.errno == errno.EROFS, otherwise)
