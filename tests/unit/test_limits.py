"""The limit on processes, as files of both versions; a real kernel's is in
tests/loopback/test_faults.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from entrypoint.system import cgroups
from entrypoint.system.cgroups import Processes

V1 = (
    "8:pids:/docker/abc",
    "90 86 0:32 /docker/abc /sys/fs/cgroup/pids ro - cgroup cgroup rw,pids",
    "pids",
)
V2 = ("0::/", "30 29 0:26 / /sys/fs/cgroup ro,nosuid - cgroup2 cgroup rw,nsdelegate", "")


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroups, "ROOT", tmp_path)


@pytest.mark.parametrize(("cgroup", "mount", "folder"), [V1, V2])
def test_a_refusal_since_the_watch_began_names_the_limit(
    cgroup: str, mount: str, folder: str, tmp_path: Path
) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(f"{cgroup}\n")
    (tmp_path / "proc/self/mountinfo").write_text(f"{mount}\n")
    place = tmp_path / "sys/fs/cgroup" / folder
    place.mkdir(parents=True)
    (place / "pids.max").write_text("12\n")
    (place / "pids.events").write_text("max 3\n")
    processes = Processes()
    assert processes.refused() is None
    (place / "pids.events").write_text("max 4\n")
    assert (
        processes.refused()
        == "the container's limit of 12 processes was reached, raise --pids-limit"
    )
    (place / "pids.max").write_text("max\n")
    assert (
        processes.refused() == "the container's limit on processes was reached, raise --pids-limit"
    )


def test_without_such_a_cgroup_nothing_is_said() -> None:
    assert Processes().refused() is None
