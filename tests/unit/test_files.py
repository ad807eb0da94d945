"""The run directory: nobody else's, held by one entrypoint, and every file in it whole, private
from its first byte."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from entrypoint.base.errors import CantCreateError, ConfigError
from entrypoint.system import files
from entrypoint.system.files import RunDir, make_folders, read
from tests.rundirs import held, refusal

ROOT_ONLY = pytest.mark.skipif(
    os.geteuid() != 0, reason="only root can give a directory to another user"
)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


@pytest.fixture
def run_dir(tmp_path: Path) -> Iterator[RunDir]:
    with held(tmp_path / "run") as made:
        yield made


@contextlib.contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@contextlib.contextmanager
def disk_full(size: int) -> Iterator[None]:
    """No file may grow beyond `size` bytes; the write that would fails half done, as on a full
    disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


MASKS = [0o000, 0o022, 0o077]


# --------------------------------------------------------------------------------------------------
# Modes


@pytest.mark.promise("the run directory is ours, private from its first byte, and of one job")
@pytest.mark.parametrize("mask", MASKS)
def test_all_has_its_mode_whatever_the_umask(mask: int, tmp_path: Path) -> None:
    with umask(mask), held(tmp_path / "a" / "b" / "run") as run_dir:
        os.close(run_dir.pipe("ranks"))
        for wanted in (0o600, 0o644, 0o700):
            run_dir.write("file", "text", wanted)
            assert mode(run_dir.path / "file") == wanted
        assert mode(run_dir.path) == 0o700
        assert mode(run_dir.path / "lock") == mode(run_dir.path / "ranks") == 0o600
        assert stat.S_ISFIFO((run_dir.path / "ranks").lstat().st_mode)
        assert sorted(os.listdir(run_dir.path)) == ["file", "lock", "ranks", "tmp"]


@pytest.mark.parametrize("mask", MASKS)
def test_a_secret_is_private_from_its_first_byte(
    mask: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a write that failed half-way would leave is what a spy would see while it runs; nothing
    of it stays."""
    halves: list[os.stat_result] = []
    remove = Path.unlink
    with umask(mask), held(tmp_path / "run") as run_dir:
        monkeypatch.setattr(
            Path, "unlink", lambda path: (halves.append(path.lstat()), remove(path))
        )
        with disk_full(1000), pytest.raises(CantCreateError):
            run_dir.write("secret", b"s" * 2000, 0o600)
        monkeypatch.undo()
        assert sorted(os.listdir(run_dir.path)) == ["lock", "tmp"]
    (half,) = halves
    assert 0 < half.st_size < 2000
    assert stat.S_IMODE(half.st_mode) == 0o600


# --------------------------------------------------------------------------------------------------
# Content


@pytest.mark.parametrize("content", ["text\n", "ä\udcff", b"\x00\xff", "", "x" * 100_000])
def test_every_byte(content: str | bytes, run_dir: RunDir) -> None:
    expected = content if isinstance(content, bytes) else content.encode("utf-8", "surrogateescape")
    run_dir.write("file", content, 0o600)
    assert (run_dir.path / "file").read_bytes() == expected


def test_a_reader_sees_the_old_or_the_new(run_dir: RunDir) -> None:
    run_dir.write("file", "old", 0o600)
    with open(run_dir.path / "file") as reader:
        run_dir.write("file", "new", 0o600)
        assert reader.read() == "old"
    assert (run_dir.path / "file").read_text() == "new"


def test_a_failed_write_leaves_the_old(tmp_path: Path, run_dir: RunDir) -> None:
    run_dir.write("file", "old", 0o600)
    with disk_full(10), pytest.raises(CantCreateError) as caught:
        run_dir.write("file", "n" * 20, 0o600)
    assert (run_dir.path / "file").read_text() == "old"
    run_dir.write("file", "new", 0o600)
    assert (run_dir.path / "file").read_text() == "new"
    assert (str(caught.value), caught.value.status) == (
        (
            f"EP410 cannot write {tmp_path}/run/file"
            f" | File too large | make room at {tmp_path}/run, or set ENTRYPOINT_RUN_DIR to a writable"
            " place"
        ),
        73,
    )


# --------------------------------------------------------------------------------------------------
# Traps that another user of /tmp could set


@pytest.mark.parametrize("there", [True, False])
def test_a_link_in_the_directory_s_place(there: bool, tmp_path: Path) -> None:
    if there:
        (tmp_path / "other").mkdir(mode=0o700)
    (tmp_path / "run").symlink_to(tmp_path / "other")
    assert (
        refusal(tmp_path / "run")
        == f"EP411 the run directory is not private | {tmp_path}/run is lrwxrwxrwx, owner"
        f" {os.geteuid()} | remove it, chmod 700 it, or set ENTRYPOINT_RUN_DIR to another"
    )
    assert [*tmp_path.rglob("other/*")] == []
    assert (tmp_path / "other").exists() == there


def test_a_file_in_the_directory_s_place(tmp_path: Path) -> None:
    (tmp_path / "run").touch(mode=0o600)
    assert "-rw-------" in refusal(tmp_path / "run")


@pytest.mark.parametrize("loose", [0o770, 0o701])
def test_a_directory_that_others_can_enter(loose: int, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run").chmod(loose)
    assert stat.filemode(stat.S_IFDIR | loose) in refusal(tmp_path / "run")
    assert list((tmp_path / "run").iterdir()) == []


@ROOT_ONLY
def test_another_s_directory(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir(mode=0o700)
    os.chown(tmp_path / "run", 65534, 65534)
    assert f"{tmp_path}/run is drwx------, owner 65534" in refusal(tmp_path / "run")


@pytest.mark.parametrize("name", ["file", ".file.new", "ranks"])
def test_a_link_in_a_file_s_place_is_replaced(name: str, tmp_path: Path, run_dir: RunDir) -> None:
    victim = tmp_path / "victim"
    victim.write_text("untouched")
    (run_dir.path / name).symlink_to(victim)
    run_dir.write("file", "secret", 0o600)
    os.close(run_dir.pipe("ranks"))
    assert not any((run_dir.path / each).is_symlink() for each in ("file", "ranks"))
    assert (run_dir.path / "file").read_text() == "secret"
    assert victim.read_text() == "untouched"


def test_a_link_in_the_lock_s_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir(mode=0o700)
    (tmp_path / "run" / "lock").symlink_to(tmp_path / "victim")
    assert "EP411 the run directory contains other files" in refusal(tmp_path / "run")
    assert not (tmp_path / "victim").exists()


# --------------------------------------------------------------------------------------------------
# One holder


def test_a_second_holder_is_refused_by_name(tmp_path: Path, run_dir: RunDir) -> None:
    run_dir.write("file", "first", 0o600)
    assert (
        refusal(tmp_path / "run")
        == f"EP414 another entrypoint uses this run directory | {tmp_path}/run"
        " | give this job another ENTRYPOINT_SSH_PORT or ENTRYPOINT_RUN_DIR"
    )
    assert (run_dir.path / "file").read_text() == "first"


@pytest.mark.control("the run directory is ours, private from its first byte, and of one job")
def test_after_close_the_next_may_have_it(tmp_path: Path) -> None:
    for _ in range(2):
        with held(tmp_path / "run"):
            pass


# --------------------------------------------------------------------------------------------------
# Where it cannot be


def open_to_all(path: Path) -> None:
    """pytest's folders, which root's are closed to others."""
    for folder in (path, *path.parents):
        if str(folder).startswith(f"{tempfile.gettempdir()}/"):
            folder.chmod(0o755)


@contextlib.contextmanager
def nobody() -> Iterator[None]:
    """Without root's right to write everywhere."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    open_to_all(tmp_path)
    (tmp_path / "closed").mkdir(mode=0o555)
    with nobody(), pytest.raises(CantCreateError) as caught:
        RunDir(str(tmp_path / "closed" / "run"))
    assert (str(caught.value), caught.value.status) == (
        f"EP410 cannot write {tmp_path}/closed/run | Permission denied"
        " | set ENTRYPOINT_RUN_DIR to a writable place",
        73,
    )


def test_a_read_only_file_system() -> None:
    with pytest.raises(CantCreateError) as caught:
        RunDir("/proc/entrypoint/run")
    assert caught.value.status == 73


# --------------------------------------------------------------------------------------------------
# The end


def test_close_removes_all_and_follows_no_link(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("untouched")
    run_dir = RunDir(str(tmp_path / "run"))
    run_dir.write("secret", "s", 0o600)
    os.close(run_dir.pipe("ranks"))
    for name in ("tail.3", "tmp/written-by-a-program", "ray_start.log"):
        (run_dir.path / name).touch()
    for name in ("tmp/link", "tail.1"):
        (run_dir.path / name).symlink_to(tmp_path / "victim")
    (run_dir.path / "tmp/folder").symlink_to(tmp_path)
    run_dir.close()
    assert [each.name for each in tmp_path.iterdir()] == ["victim"]
    assert (tmp_path / "victim").read_text() == "untouched"


def test_close_removes_files_where_the_parent_is_not_ours(tmp_path: Path) -> None:
    """A mounted run directory can't be removed; what is in it can."""
    open_to_all(tmp_path)
    path = tmp_path / "run"
    path.mkdir(mode=0o700)
    if os.geteuid() == 0:
        os.chown(path, 65534, 65534)
    else:
        tmp_path.chmod(0o555)
    try:
        with nobody():
            run_dir = RunDir(str(path))
            run_dir.write("secret", "s", 0o600)
            (path / "tmp/a-launchers/own").mkdir(parents=True)
            run_dir.close()
    finally:
        tmp_path.chmod(0o755)
    assert list(path.iterdir()) == []


@pytest.mark.parametrize("names", [("train.py",), ("a.txt", "notes", "train.py")])
def test_a_directory_that_holds_somebody_s_files(names: tuple[str, ...], tmp_path: Path) -> None:
    """Such as a home directory: its files would be gone at the job's end."""
    (tmp_path / "run").mkdir(mode=0o700)
    for name in names:
        (tmp_path / "run" / name).write_text("mine")
    more = f" and {len(names) - 1} more" if names[1:] else ""
    assert (
        refusal(tmp_path / "run")
        == f"EP411 the run directory contains other files | {tmp_path}/run: {names[0]}{more}"
        " | set ENTRYPOINT_RUN_DIR to a separate directory, which need not exist"
    )
    assert sorted(os.listdir(tmp_path / "run")) == list(names)


def test_a_killed_run_s_secrets_do_not_outlive_the_next(tmp_path: Path) -> None:
    run_dir = RunDir(str(tmp_path / "run"))
    run_dir.write("client_key", "of the last job", 0o600)
    os.close(run_dir._lock)  # as the kernel does when it is killed
    with held(tmp_path / "run"):
        pass
    assert not (tmp_path / "run").exists()


def test_a_folder_in_a_file_s_place_is_replaced(run_dir: RunDir) -> None:
    (run_dir.path / "file/more").mkdir(parents=True)
    run_dir.write("file", "text", 0o600)
    assert (run_dir.path / "file").read_text() == "text"


# --------------------------------------------------------------------------------------------------
# Directories for logs, which outlive the job


def test_a_log_directory_is_made_with_its_parents(tmp_path: Path) -> None:
    make_folders([str(tmp_path / "a/b"), str(tmp_path / "a/b")])
    assert (tmp_path / "a/b").is_dir()


@pytest.mark.parametrize("shared", [True, False])
def test_a_link_where_anybody_could_have_put_it(shared: bool, tmp_path: Path) -> None:
    """In /tmp it is refused; a platform's own folder may be a link."""
    tmp_path.chmod(0o1777 if shared else 0o755)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "log").symlink_to(tmp_path / "elsewhere")
    if not shared:
        make_folders([str(tmp_path / "log")])
        return
    with pytest.raises(ConfigError, match="EP413 the log directory belongs to another user"):
        make_folders([str(tmp_path / "log")])


def test_a_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Lustre answers, mounted without flock; there is none here."""

    def refuse(*_: int) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr("fcntl.flock", refuse)
    with pytest.raises(CantCreateError) as caught:
        RunDir(str(tmp_path / "run"))
    assert (
        str(caught.value)
        == f"EP412 the run directory's file system cannot lock files | {tmp_path}/run: Function not"
        " implemented | set ENTRYPOINT_RUN_DIR to a directory of this host, such as"
        " one in /tmp"
    )


# --------------------------------------------------------------------------------------------------
# Files that people name


def test_what_has_no_end_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(OSError, match=r"not a regular file, and its end did not come within 0\.1s"):
        read(str(tmp_path / "fifo"), 0.1)
    monkeypatch.setattr("entrypoint.system.files.MAX_BYTES", 1 << 20)
    with pytest.raises(OSError, match="more than 1 MiB"):
        read("/dev/zero")
    with pytest.raises(IsADirectoryError):
        read(str(tmp_path))


@pytest.mark.parametrize(
    ("kind", "hint"),
    [
        (errno.EROFS, "start the container with --tmpfs {} (in Kubernetes, an emptyDir there), or x"),
        (errno.ENOSPC, "make room at {}, or x"),
        (errno.EACCES, "x"),
    ],
)  # fmt: skip
def test_the_cure_is_that_of_the_error(kind: int, hint: str, tmp_path: Path) -> None:
    error = OSError(kind, os.strerror(kind))
    assert files.cure(error, tmp_path / "not/there", "x") == hint.format(tmp_path)
