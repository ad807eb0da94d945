"""What a small machine is told: the checks as functions; tests/compose/test_small_machine.py has
the containers."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from entrypoint import spec as specs
from entrypoint.base.errors import CantCreateError, HostError
from entrypoint.base.model import Device, Facts, Members, Node, NodeReport, Plan, Topology
from entrypoint.base.values import replace
from entrypoint.plan import settle
from entrypoint.plan.limits import open_files
from entrypoint.plan.members import clock_warnings
from entrypoint.system import preflight

FACTS = Facts(env={}, hostname="worker-0", cwd="/", uid=1000, user="ma-user", home="/home/ma-user")


def topology(run_dir: Path | str, nodes: int = 1, slots: int = 2, cards: int = 0) -> Topology:
    places = tuple(Node(rank, f"worker-{rank}", slots, index=rank) for rank in range(nodes))
    return Topology(
        "job", places, 0, "local", Device("cpu", cards, "test"), str(run_dir), "ma-user"
    )


def draft(where: Topology, launcher: str = "mpirun") -> Plan:
    spec = specs.load(f"command: [prog]\nlauncher: {launcher}\n", "job.yaml", {}, {})
    return settle(spec, FACTS, where)


@pytest.fixture(autouse=True)
def raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[int, tuple[int, int]]:
    """The limits that were set, in place of those of this process."""
    limits: dict[int, tuple[int, int]] = {}
    monkeypatch.setattr(preflight, "ROOT", tmp_path)
    monkeypatch.setattr(resource, "setrlimit", limits.__setitem__)
    return limits


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A file system with shared memory."""
    (tmp_path / "dev/shm").mkdir(parents=True)
    return tmp_path


@pytest.fixture
def handles(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Soft and hard limit of file handles, which a test may change."""
    limits = [1024, 1024]
    real = resource.getrlimit

    def get(which: int) -> tuple[int, int]:
        return (limits[0], limits[1]) if which == resource.RLIMIT_NOFILE else real(which)

    def put(which: int, given: tuple[int, int]) -> None:
        if which == resource.RLIMIT_NOFILE:
            limits[:] = given

    monkeypatch.setattr(resource, "getrlimit", get)
    monkeypatch.setattr(resource, "setrlimit", put)
    return limits


@pytest.mark.control("a weak machine is named before any rank starts")
def test_an_ordinary_machine_is_told_nothing(root: Path, handles: list[int]) -> None:
    assert preflight.check(draft(topology(root / "run"))) == []
    assert handles == [1024, 1024]
    assert not (root / "run").exists()


def test_shared_memory_without_a_limit_is_what_memory_there_is(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tmpfs that is mounted with size=0 counts no blocks."""
    monkeypatch.setattr(os, "statvfs", lambda _: os.statvfs_result((4096, 4096, *[0] * 9)))
    shared = preflight.shared_memory()
    assert 0 < shared["shm_free"] < shared["shm_total"]


def test_no_shared_memory(tmp_path: Path) -> None:
    (words,) = preflight.check(draft(topology(tmp_path)))
    assert (
        words == "EP422 little shared memory | /dev/shm: No such file or directory, needed: 8 MiB"
        " | start the container with --shm-size 1g, or mount a tmpfs of at least 8 MiB at /dev/shm"
    )


@pytest.mark.parametrize(("nodes", "slots", "needed"), [(1, 2, 80), (64, 2, 206)])
def test_too_few_file_handles(
    nodes: int, slots: int, needed: int, tmp_path: Path, handles: list[int]
) -> None:
    """64 of our own, 2 for each peer (its session, and mpirun's agent), 8 for each rank here."""
    plan = draft(topology(tmp_path, nodes, slots))
    handles[:] = needed - 1, needed - 1
    with pytest.raises(
        HostError,
        match=(
            rf"EP420 too few file handles \| {needed - 1} may be open, needed: {needed} \(nodes: "
        ),
    ):
        preflight.check(plan)
    handles[:] = needed - 1, needed
    preflight.check(plan)
    assert handles == [needed, needed]


@pytest.mark.parametrize(
    ("soft", "hard", "expected"),
    [
        (64, 1_000_000, 1_000_000),
        (1024, 2**30, 2**20),  # a huge one is not taken
        (1024, -1, 2**20),
        (2**21, 2**30, 2**21),
        (-1, -1, -1),
    ],
)
def test_soft_limits_are_raised_to_the_hard_ones(
    soft: int,
    hard: int,
    expected: int,
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    raised: dict[int, tuple[int, int]],
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda kind: raised.get(kind, (soft, hard)))
    assert preflight.check(draft(topology(root, 1000, 8))) == []
    limits = {resource.RLIMIT_NOFILE: (expected, hard), resource.RLIMIT_MEMLOCK: (hard, hard)}
    assert raised == limits


def test_a_limit_that_cannot_be_raised_stays(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(kind: int, limits: tuple[int, int]) -> None:
        raise ValueError("not allowed to raise maximum limit")

    monkeypatch.setattr(resource, "setrlimit", refuse)
    assert preflight.check(draft(topology(root))) == []


def test_file_handles_for_a_connection_from_every_rank_to_every_other(
    root: Path, handles: list[int]
) -> None:
    assert preflight.check(draft(topology(root, 60, 8))) == []
    (words,) = preflight.check(draft(topology(root, 61, 8)))
    assert (
        words == "EP421 few file handles | 1024 may be open, needed: 1040 for each of 488 ranks |"
        " start the container with --ulimit nofile=65536"
    )


def test_a_worker_keeps_no_sessions(tmp_path: Path, handles: list[int]) -> None:
    handles[:] = 128, 128
    preflight.check(draft(replace(topology(tmp_path, 1000, 8), me=1)))


@pytest.mark.parametrize(("launcher", "agents"), [("mpirun", 2), ("torchrun", 0)])
def test_the_leader_counts_the_agents_of_its_launcher(
    launcher: str, agents: int, tmp_path: Path
) -> None:
    plan = draft(topology(tmp_path, 3), launcher)
    leader, worker = (open_files(plan, rank)[0] for rank in (0, 1))
    assert leader - worker == 2 + agents, "a session with each other node, and its agent"


def test_all_that_is_wrong_is_said_at_once(handles: list[int]) -> None:
    handles[:] = 70, 70
    with pytest.raises(CantCreateError) as caught:
        preflight.check(draft(topology("/proc/sys/run")))
    assert "EP410 cannot write /proc/sys/run | " in str(caught.value)
    assert "EP420 too few file handles | 70 may be open" in str(caught.value)


def test_locked_memory_matters_where_there_is_rdma(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = {resource.RLIMIT_MEMLOCK: (8 << 20, 8 << 20)}
    real = resource.getrlimit
    monkeypatch.setattr(resource, "getrlimit", lambda which: limits.get(which) or real(which))
    plan = draft(topology(root))
    assert preflight.check(plan) == []
    (root / "dev/infiniband").mkdir()
    (root / "dev/infiniband/uverbs0").touch()
    (words,) = preflight.check(plan)
    assert (
        words == "EP423 little memory can be locked | 8 MiB, needed: no limit, with RDMA devices in"
        " /dev/infiniband | start the container with --ulimit memlock=-1"
    )
    (root / "proc/self").mkdir(parents=True)
    status = root / "proc/self/status"
    status.write_text("Name:\tpython\nCapEff:\t0000000000004000\n")  # CAP_IPC_LOCK
    assert preflight.check(plan) == []
    status.write_text("Name:\tpython\nCapEff:\t00000000a80425fb\n")  # an engine's usual ones
    assert preflight.check(plan) == [words]


@pytest.mark.parametrize("nodes", [1, 2])
def test_rdma_ports_without_device_files_are_said_at_the_start(nodes: int, root: Path) -> None:
    """Several nodes would use TCP without a word; one node needs no RDMA"""
    plan = draft(topology(root, nodes))
    (root / "sys/class/infiniband/mlx5_0/ports/1").mkdir(parents=True)
    said = (
        "EP423 RDMA cannot be used | 1 port, no device file in /dev/infiniband | give the container"
        " /dev/infiniband, and --ulimit memlock=-1"
    )
    assert preflight.check(plan) == [said] * (nodes > 1)
    (root / "dev/infiniband").mkdir()
    (root / "dev/infiniband/uverbs0").touch()
    assert said not in preflight.check(plan)


def test_clocks_minutes_apart() -> None:
    where = topology("/run/job", nodes=4)

    def said(*clocks: float) -> list[str]:
        return clock_warnings(where, Members(tuple(NodeReport(*x) for x in reports(clocks))))

    def reports(clocks: tuple[float, ...]) -> list[tuple[object, ...]]:
        return [(rank, 2, "1", "", "", clock) for rank, clock in enumerate(clocks)]

    assert said(0, 0.4, -119, 119) == []
    assert said(0, 300.2, 2, -121) == [
        "warning: EP424 clocks differ | worker-1 is 300s ahead of the others, worker-3 is 121s"
        " behind the others | set the clocks of these hosts by NTP"
    ]
    leader_is_wrong, two = said(0, -300, -300, -300), said(0, -300)
    assert "| worker-0 is 300s ahead of the others |" in leader_is_wrong[0]
    assert "| worker-1 is 300s behind the others |" in two[0]
