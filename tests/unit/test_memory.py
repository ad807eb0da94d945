"""Memory cgroups of both versions, as files; a real kernel's: tests/loopback/test_staged_failures.py
and tests/faults."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from entrypoint.system import cgroups
from entrypoint.system.cgroups import Memory

MIB = 2**20
V1_NO_LIMIT = 9223372036854771712  # PAGE_COUNTER_MAX, as Linux prints it on 4 KiB pages


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroups, "ROOT", tmp_path)


def write(folder: Path, **files: object) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(f"{text}\n")


def proc(root: Path, cgroup: str, *mounts: str) -> None:
    write(root / "proc/self", cgroup=cgroup, mountinfo="\n".join(mounts))


def v2(root: Path, **files: object) -> Path:
    """A container with a cgroup namespace of its own, as engines make it."""
    proc(root, "0::/", "30 29 0:26 / /sys/fs/cgroup ro,nosuid - cgroup2 cgroup rw,nsdelegate")
    folder = root / "sys/fs/cgroup"
    defaults = {
        "memory__max": 512 * MIB,
        "memory__peak": 511 * MIB,
        "memory__events": "oom 0\noom_kill 0",
    }
    write(folder, **{**defaults, **files})
    return folder


def v1(root: Path, **files: object) -> Path:
    """Version 1, the path the host's, and the mount showing that cgroup."""
    proc(
        root,
        "8:pids:/docker/abc\n4:memory:/docker/abc\n0::/docker/abc",
        "88 86 0:30 /docker/abc /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu",
        "90 86 0:32 /docker/abc /sys/fs/cgroup/memory ro,nosuid,nodev - cgroup cgroup rw,memory",
    )
    folder = root / "sys/fs/cgroup/memory"
    defaults = {
        "memory__limit_in_bytes": 128 * MIB,
        "memory__max_usage_in_bytes": 128 * MIB,
        "memory__oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 3",
    }
    write(folder, **{**defaults, **files})
    return folder


@pytest.mark.promise("a kill for memory is told with limit and peak")
def test_version_2(tmp_path: Path) -> None:
    folder = v2(tmp_path)
    memory = Memory()
    assert memory.oom_killed() is None
    write(folder, memory__events="oom 1\noom_kill 1\noom_group_kill 0")
    assert memory.oom_killed() == "out of memory: limit 512 MiB, peak 511 MiB"


@pytest.mark.promise("a kill for memory is told with limit and peak")
def test_version_1_and_kills_before_the_watch_do_not_count(tmp_path: Path) -> None:
    folder = v1(tmp_path)
    memory = Memory()
    assert memory.oom_killed() is None
    write(folder, memory__oom_control="oom_kill_disable 0\nunder_oom 0\noom_kill 4")
    assert memory.oom_killed() == "out of memory: limit 128 MiB, peak 128 MiB"


def test_the_tighter_cgroup_around_is_the_limit(tmp_path: Path) -> None:
    """Without a namespace of its own: version 2, the whole tree in sight."""
    proc(tmp_path, "0::/pod/box", "30 29 0:26 / /sys/fs/cgroup ro - cgroup2 cgroup rw")
    top = tmp_path / "sys/fs/cgroup"
    write(top, cgroup__procs="")
    write(top / "pod", memory__max=2**30 + 2**29, memory__events="oom_kill 0")
    write(top / "pod/box", memory__max="max", memory__events="oom_kill 0")
    memory = Memory()
    write(top / "pod/box", memory__events="oom_kill 1")
    assert memory.oom_killed() == "out of memory: limit 1.5 GiB"  # no memory.peak before Linux 5.19


@pytest.mark.parametrize("version", [1, 2])
def test_no_limit_means_the_machine(version: int, tmp_path: Path) -> None:
    folder = (
        v2(tmp_path, memory__max="max")
        if version == 2
        else v1(tmp_path, memory__limit_in_bytes=V1_NO_LIMIT)
    )
    memory = Memory()
    name = "memory__events" if version == 2 else "memory__oom_control"
    write(folder, **{name: "oom_kill 9"})
    assert (memory.oom_killed() or "").startswith(
        "out of memory: no limit of this container's, so the machine's, peak "
    )


@pytest.mark.control("a kill for memory is told with limit and peak")
def test_nothing_to_read_is_nothing_said(tmp_path: Path) -> None:
    assert Memory().oom_killed() is None
    proc(tmp_path, "0::/", "30 29 0:26 / /sys/fs/cgroup ro - cgroup2 cgroup rw")
    assert Memory().oom_killed() is None


@pytest.mark.parametrize("version", [1, 2])
def test_use_is_without_the_page_cache_that_gives_way(version: int, tmp_path: Path) -> None:
    """Programs that read much have it up to the limit, and the kernel takes it first. What is read
    is of now, in files that are found once."""
    stat = f"anon 1\ninactive_file 7\n{'total_' * (version == 1)}inactive_file {100 * MIB}"
    if version == 1:
        folder = v1(tmp_path, memory__usage_in_bytes=120 * MIB, memory__stat=stat)
    else:
        stat = stat.replace("inactive_file 7\n", "")
        folder = v2(tmp_path, memory__current=120 * MIB, memory__stat=stat)
    memory = Memory()
    shutil.rmtree(tmp_path / "proc")
    assert memory.use() == (20 * MIB, 128 * MIB if version == 1 else 512 * MIB)
    names = {1: "memory__usage_in_bytes", 2: "memory__current"}
    write(folder, **{names[version]: 99 * MIB})
    assert memory.use() == (0, 128 * MIB if version == 1 else 512 * MIB), "never below 0"


def test_the_cgroup_with_the_least_room_counts(tmp_path: Path) -> None:
    proc(tmp_path, "0::/pod/box", "30 29 0:26 / /sys/fs/cgroup ro - cgroup2 cgroup rw")
    top = tmp_path / "sys/fs/cgroup"
    write(top, cgroup__procs="")
    write(top / "pod", memory__max=900 * MIB, memory__current=850 * MIB)
    write(top / "pod/box", memory__max=512 * MIB, memory__current=100 * MIB)
    assert Memory().use() == (850 * MIB, 900 * MIB)


@pytest.mark.parametrize(
    "files", [{"memory__max": "max"}, {"memory__max": V1_NO_LIMIT}, {"memory__current": ""}, {}]
)
def test_without_a_limit_or_a_number_no_use_is_known(
    files: dict[str, object], tmp_path: Path
) -> None:
    v2(tmp_path, **{"memory__current": 5, **files})
    expected = None if files else (5, 512 * MIB)
    assert Memory().use() == expected


def test_without_a_limit_nothing_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node says at each heartbeat how full its memory is."""
    v2(tmp_path, memory__max="max", memory__current=5)
    memory = Memory()
    monkeypatch.setattr(Path, "read_text", lambda path: 1 / 0)
    assert memory.use() is None


def test_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it has, it can be asked."""
    monkeypatch.setattr(cgroups, "ROOT", Path("/"))
    assert Memory().oom_killed() is None
    used, limit = Memory().use() or (0, 1)
    assert 0 <= used < 1 << 62
    assert 0 < limit < 1 << 62


def test_mounts_of_any_name(tmp_path: Path) -> None:
    """A mount point is bytes, not UTF-8, and white space in it is written as octal digits."""
    v2(tmp_path)
    mounts = tmp_path / "proc/self/mountinfo"
    odd = b"29 1 0:25 / /mnt/caf\xe9\xc2\x85\\040x rw - ext4 /dev/sda rw\n"
    mounts.write_bytes(odd + mounts.read_bytes().replace(b"/sys/fs/cgroup", b"/sys/fs\\040x/c"))
    (tmp_path / "sys/fs x").mkdir()
    (tmp_path / "sys/fs/cgroup").rename(tmp_path / "sys/fs x/c")
    memory = Memory()
    write(tmp_path / "sys/fs x/c", memory__events="oom_kill 1")
    assert memory.oom_killed() == "out of memory: limit 512 MiB, peak 511 MiB"
