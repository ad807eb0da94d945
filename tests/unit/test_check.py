"""How `check` judges: made-up observations in, findings out. Nothing here looks at this machine."""

from __future__ import annotations

import json
from typing import Any

import pytest

from entrypoint import plan as planning
from entrypoint import spec as specs
from entrypoint.check import node, nodes, table
from entrypoint.check.findings import sort, status, summary, together
from entrypoint.check.observation import (
    Card,
    Disk,
    InstalledProgram,
    Link,
    Name,
    Named,
    Observation,
    Port,
    Refusal,
)
from entrypoint.check.report import CheckOptions, report
from entrypoint.model import Facts, Finding, NodeReport, Outcome, Plan
from entrypoint.values import replace
from entrypoint.wire import Invalid, read, to_json

pytestmark = pytest.mark.see

FACTS = Facts(env={}, hostname="a", cwd="/", uid=1000, user="ma-user", home="/home/ma-user")
FACTS = replace(FACTS, programs={"sshd": "/usr/sbin/sshd"})
MIB, GIB = 2**20, 2**30


def plan(hosts: str = "[a, b, c]", slots: int = 2, launcher: str = "mpirun") -> Plan:
    text = (
        f"hosts: {hosts}\nslots: {slots}\nlauncher: {launcher}\ncommand: [x]\nsecret_file:"
        " /none\nnode_rank: 0\n"
    )
    return planning.settle(specs.load(text, "job.yaml", {}, {}), FACTS)


PLAN = plan()


def cuda(**libraries: str) -> Observation:
    """A node with two GPUs, a driver for CUDA 12.4, and these answers of the image's Python."""
    rows = {
        "torch": "2.4.0",
        "torch cuda": "12.1",
        "torch cuda.is_available": "yes",
        "torch cuda.device_count": "2",
    }
    rows |= {
        name.replace("__", ".").replace("_", " ", 1): value for name, value in libraries.items()
    }
    return Observation(
        device="nvidia",
        devices=2,
        device_origin="2 /dev/nvidia*",
        tool="nvidia-smi",
        driver="550.54.15",
        driver_cuda="12.4",
        cards=(Card(0, "H100"), Card(1, "H100")),
        libraries=tuple(Named(name, value) for name, value in rows.items()),
    )


GOOD = Observation(
    system="Debian 12",
    shm_free=64 * MIB,
    shm_total=64 * MIB,
    memlock=-1,
    handles=65536,
    pids=-1,
    cpus=4,
    memory_free=8 * GIB,
    disks=(Disk("run directory", "/tmp", 5 * GIB, 10**6), Disk("logs", "/log", 5 * GIB, 10**6)),
    links=(Link("eth0", "10.0.0.2", "10.0.0.0/24", 1500, 10000),),
    names=(Name("a", ("10.0.0.2",)),),
    own=Name("a", ("10.0.0.2",)),
)

# What is seen; the lines that are not well: level, id, and a part of what is said.
ROWS: dict[str, tuple[Observation, list[tuple[str, str, str]]]] = {
    "nothing is known": (Observation(), []),
    "all is well": (GOOD, []),
    "1 MB of shared memory": (
        replace(GOOD, shm_free=MIB, shm_total=MIB),
        [("warning", "shared-memory", "1 MiB free")],
    ),
    "just enough shared memory": (replace(GOOD, shm_free=8 * MIB), []),
    "cards need more shared memory": (
        replace(
            GOOD,
            device="ascend",
            devices=2,
            device_origin="2 /dev/davinci*",
            driver="23.0",
            cann="8.0",
        ),
        [("warning", "shared-memory", "64 MiB free of 64 MiB")],
    ),
    "no shared memory": (
        replace(GOOD, shm_problem="/dev/shm: No such file or directory"),
        [("warning", "shared-memory", "No such file")],
    ),
    "few file handles for ranks": (replace(GOOD, handles=75, memlock=None), []),
    "locked memory without RDMA": (replace(GOOD, memlock=65536), []),
    "locked memory with RDMA": (
        replace(GOOD, memlock=65536, rdma_files=1),
        [("warning", "locked-memory", "64 KiB")],
    ),
    "locked memory, and who may lock": (
        replace(GOOD, memlock=65536, rdma_files=1, may_lock=True),
        [],
    ),
    "few processes left": (
        replace(GOOD, pids=200, pids_used=100),
        [("warning", "pids", "100 left of 200")],
    ),
    "a CPU for two ranks": (
        replace(GOOD, cpu_limit=1.0),
        [("warning", "cpus", "1 (limit of the container, 4 here)")],
    ),
    "little memory": (
        replace(GOOD, memory_free=GIB // 2, memory_limit=GIB),
        [("warning", "memory", "512 MiB free of 1 GiB (limit of the container)")],
    ),
    "a full log disk": (
        replace(GOOD, disks=(Disk("logs", "/log", 5 * MIB, 10**6),)),
        [("warning", "disk", "5 MiB free at /log")],
    ),
    "no inodes": (
        replace(GOOD, disks=(Disk("logs", "/log", 5 * GIB, 3),)),
        [("warning", "disk", "room for 3 files")],
    ),
    "a run directory that is refused has one line": (
        replace(
            GOOD,
            disks=(Disk("run directory", "/run", problem="it cannot be written"),),
            refused=(Refusal(73, "cannot write /run/x | /run is read-only | make room"),),
        ),
        [("error", "refused", "/run is read-only")],
    ),
    "MPICH of Debian 12": (
        replace(GOOD, programs=(InstalledProgram("mpiexec.hydra", "/m", "MPICH 4.0.2, ch4:ucx"),)),
        [("warning", "mpich", "MPICH 4.0.2, ch4:ucx")],
    ),
    "MPICH of Debian 13": (
        replace(GOOD, programs=(InstalledProgram("mpiexec.hydra", "/m", "MPICH 4.2.1, ch4:ucx"),)),
        [],
    ),
    "MPICH without UCX": (
        replace(GOOD, programs=(InstalledProgram("mpiexec.hydra", "/m", "MPICH 4.1.2, ch4:ofi"),)),
        [],
    ),
    "Intel MPI": (
        replace(
            GOOD,
            programs=(InstalledProgram("mpiexec.hydra", "/m", "Intel(R) MPI, Version 4.1.2 ucx"),),
        ),
        [],
    ),
    "no interface": (
        replace(GOOD, links=(), no_link=True),
        [("warning", "interfaces", "none but loopback")],
    ),
    "an IB port that is down": (
        replace(
            GOOD, ports=(Port("mlx5_0", "1", "InfiniBand", "DOWN", "400 Gb/sec"),), rdma_files=1
        ),
        [("warning", "rdma", "InfiniBand DOWN")],
    ),
    "an IB port without device files": (
        replace(GOOD, ports=(Port("mlx5_0", "1", "Ethernet", "ACTIVE", ""),), rdma_files=0),
        [("warning", "rdma-files", "no device file")],
    ),
    "the leader's name is not known": (
        replace(GOOD, names=(Name("a", (), "Name or service not known"), Name("b", (), "x"))),
        [("error", "dns", "Name or service"), ("warning", "dns", "x")],
    ),
    "its own name leads to loopback": (
        replace(GOOD, own=Name("a", ("127.0.1.1",))),
        [("warning", "own-name", "leads to 127.0.1.1")],
    ),
    "nvidia-smi hangs": (
        replace(GOOD, unseen=(Named("nvidia-smi", "no answer within 30s"),)),
        [("warning", "unseen", "no answer within 30s")],
    ),
    "a program that does not start": (
        replace(
            GOOD,
            programs=(
                InstalledProgram("mpirun", "/usr/bin/mpirun", "", "ends with 127: libmpi.so.40"),
            ),
        ),
        [("warning", "program", "libmpi.so.40")],
    ),
    "GPUs are well": (cuda(), []),
    "torch for the CPU": (cuda(torch_cuda="none"), [("error", "torch-cuda", "built without CUDA")]),
    "a driver that is too old": (
        cuda(torch_cuda="13.0"),
        [("error", "cuda-driver", "built for 13.0, the driver takes up to 12.4")],
    ),
    "another minor version runs": (cuda(torch_cuda="12.8"), []),
    "torch sees no card, and says why": (
        cuda(
            torch_cuda__is_available="no", torch_why="The NVIDIA driver on your system is too old"
        ),
        [("error", "torch-cuda", "driver on your system is too old")],
    ),
    "torch sees one of two": (
        cuda(torch_cuda__device_count="1"),
        [("error", "torch-cuda", "torch sees 1 cards")],
    ),
    "a card does not answer": (
        replace(cuda(), cards=(Card(0, "H100"),)),
        [("error", "accelerators-lost", "1 answer nvidia-smi")],
    ),
    "a card is not well": (
        replace(cuda(), cards=(Card(0, "H100"), Card(1, "H100", "GPU is lost"))),
        [("error", "accelerator-health", "GPU is lost")],
    ),
    "a card is in use": (
        replace(cuda(), cards=(Card(0, "H100", used=900), Card(1, "H100", used=40000))),
        [("warning", "accelerator-in-use", "not seen from this container")],
    ),
    "a process is on a card": (
        replace(
            cuda(), cards=(Card(0, "H100"), Card(1, "H100", used=10, processes=("pid 7 python",)))
        ),
        [("warning", "accelerator-in-use", "10 MiB in use: pid 7 python")],
    ),
    "fewer cards than ranks": (
        replace(cuda(), devices=1, cards=(Card(0, "H100"),), device_origin="1 /dev/nvidia*"),
        [("warning", "accelerators", "1 nvidia")],
    ),
    "Horovod without MPI and NCCL": (
        cuda(horovod="0.28.1", horovod_mpi="no", horovod_nccl="no"),
        [("warning", "horovod-mpi", "without MPI"), ("warning", "horovod-nccl", "without NCCL")],
    ),
    "torch that cannot be imported": (
        Observation(libraries=(Named("torch problem", "libcudart.so.12: cannot open"),)),
        [("warning", "torch", "cannot be imported: libcudart")],
    ),
    "two chips that are not well": (
        Observation(
            device="ascend",
            devices=2,
            device_origin="2 /dev/davinci*",
            driver="24.1.0",
            cards=(
                Card(8, "Ascend910", "npu-smi says Critical"),
                Card(9, "Ascend910", "npu-smi says Warning"),
            ),
        ),
        [
            ("error", "accelerator-health", "npu-smi says Critical"),
            ("warning", "accelerator-health", "npu-smi says Warning"),
        ],
    ),
    "NPUs without torch_npu and CANN": (
        Observation(
            device="ascend",
            devices=2,
            device_origin="2 /dev/davinci*",
            libraries=(Named("torch", "2.1.0"),),
        ),
        [
            ("warning", "cann", "neither was found"),
            ("warning", "torch-npu", "torch without torch_npu"),
        ],
    ),
}


@pytest.mark.promise(
    "nodes and differences between nodes are judged by their probe results",
    control="their cases that are well",
)
@pytest.mark.parametrize("name", ROWS)
def test_one_node(name: str) -> None:
    seen, expected = ROWS[name]
    found = [each for each in node.judge(seen, PLAN, 1) if each.level != "ok"]
    assert [(each.level, each.id) for each in found] == [row[:2] for row in expected], found
    for each, (_, _, words) in zip(found, expected, strict=True):
        assert words in each.seen
        assert each.nodes == ("worker-1",)
        assert each.fix


def test_one_rank_needs_no_shared_memory_and_one_node_no_name() -> None:
    alone = plan("[a]", slots=1, launcher="plain")
    seen = replace(GOOD, shm_free=0, own=Name("a", (), "unknown"), no_link=True, links=())
    assert [each for each in node.judge(seen, alone, 0) if each.level != "ok"] == []


def test_file_handles_of_a_rank_count_all_others() -> None:
    many = plan(f"[{', '.join(f'n{number}' for number in range(60))}]", slots=8)
    found = [
        each
        for each in node.judge(replace(GOOD, handles=1000, cpus=8), many, 1)
        if each.id == "file-handles"
    ]
    assert [(each.level, each.seen, each.needed) for each in found] == [
        ("warning", "1000 may be open", "1024 for each of 480 ranks")
    ]


def test_what_is_shown_after_a_failed_boot() -> None:
    seen = replace(GOOD, shm_free=MIB, cpu_limit=0.5, unseen=(Named("disks", "no end within 2s"),))
    assert [each.id for each in node.cheap(seen, PLAN, 0)] == ["shared-memory"]


# --------------------------------------------------------------------------------------------------
# Between nodes


def reports(*clocks: float) -> dict[int, NodeReport]:
    return {rank: NodeReport(rank, 2, "0", clock=clock) for rank, clock in enumerate(clocks)}


SAME = cuda()
DIFFERENT: dict[str, tuple[list[Observation], list[tuple[str, str, str, str]]]] = {
    "all are alike": ([SAME] * 3, []),
    "one has 7 cards": (
        [SAME, replace(SAME, devices=7), SAME],
        [("warning", "differs-accelerators", "worker-1", "7 nvidia")],
    ),
    "another driver": (
        [SAME, SAME, replace(SAME, driver="535.1")],
        [("warning", "differs-driver", "worker-2", "535.1")],
    ),
    "of two as frequent, the first node's counts": (
        [SAME, replace(SAME, driver="535.1")],
        [("warning", "differs-driver", "worker-1", "535.1")],
    ),
    "the first is the odd one": (
        [
            replace(SAME, packages="abc"),
            replace(SAME, packages="def"),
            replace(SAME, packages="def"),
        ],
        [("warning", "differs-image", "worker-0", "abc")],
    ),
    "what is not known differs from nothing": (
        [SAME, Observation(), SAME],
        [("warning", "differs-rdma", "", "")][:0],
    ),
    "another mpirun": (
        [
            replace(SAME, programs=(InstalledProgram("mpirun", "/m", "Open MPI 4.1.4"),)),
            replace(SAME, programs=(InstalledProgram("mpirun", "/m", "Open MPI 5.0.1"),)),
        ],
        [("error", "differs-mpirun", "worker-1", "Open MPI 5.0.1")],
    ),
    "another NCCL": (
        [cuda(torch_nccl="2.20.5"), cuda(torch_nccl="2.18.1"), cuda(torch_nccl="2.20.5")],
        [("error", "differs-nccl", "worker-1", "2.18.1")],
    ),
    "another setting": (
        [replace(SAME, settings=(Named("torch.port", "6061"),)), SAME, SAME],
        [("warning", "differs-setting", "worker-0", "6061")],
    ),
    "another MTU": (
        [
            replace(SAME, links=(Link("eth0", f"10.0.0.{number}", "n", 9000 if number else 1500),))
            for number in range(3)
        ],
        [("warning", "differs-mtu", "worker-0", "1500")],
    ),
    "a name that leads to a service": (
        [
            replace(
                SAME, links=(Link("eth0", "10.0.0.1", "n"),), names=(Name("b", ("10.96.0.5",)),)
            ),
            replace(SAME, links=(Link("eth0", "10.0.0.2", "n"),)),
        ],
        [("warning", "dns-elsewhere", "worker-1", "b leads to 10.96.0.5, the node has 10.0.0.2")],
    ),
    "a name that leads elsewhere on one node": (
        [
            replace(SAME, names=(Name("b", (address,)),))
            for address in ("10.0.0.2", "10.0.0.9", "10.0.0.9", "10.0.0.2")
        ],
        [("warning", "differs-dns", "worker-2", "10.0.0.9")],
    ),
}


@pytest.mark.promise("nodes and differences between nodes are judged by their probe results")
@pytest.mark.parametrize("name", DIFFERENT)
def test_differences(name: str) -> None:
    seen, expected = DIFFERENT[name]
    wide = plan("[a, b, c, d]") if len(seen) > 3 else PLAN
    found = nodes.differences(dict(enumerate(seen)), reports(*[0.0] * len(seen)), wide)
    assert [(each.level, each.id, " ".join(each.nodes), each.seen) for each in found] == expected


@pytest.mark.parametrize(
    ("clocks", "named"),
    [
        ((0.0, 9.0, -9.0), []),
        ((0.0, 600.0, 0.1), ["worker-1: 600s ahead of the others"]),
        ((0.0, -600.0, -599.8), ["worker-0: 600s ahead of the others"]),
        ((0.0, 11.0), ["worker-1: 11s ahead of the others"]),
        ((0.0,), []),
    ],
    ids=["well", "one", "the leader's own", "two", "alone"],
)
def test_clocks(clocks: tuple[float, ...], named: list[str]) -> None:
    found = nodes.differences({}, reports(*clocks), PLAN)
    assert [f"{each.nodes[0]}: {each.seen}" for each in found] == named


@pytest.mark.promise(
    "`check --all` names late packets by what the kernel measured at the roll call"
)
@pytest.mark.parametrize(
    ("trips", "named"),
    [
        ((0.0, 0.0099, 0.0001), []),
        ((0.0, 0.0001, 0.2004), ["worker-2: 200 ms to worker-0 and back"]),
        (
            (0.0, 0.0, 0.05),
            ["worker-0 worker-2: 50 ms to worker-0 and back"],
        ),  # of one nothing is known
        ((0.0, 0.2, 0.21), ["worker-0: 205 ms to the others and back"]),
        ((0.0, 0.0, 0.0), []),
    ],
    ids=["well", "one", "one of two", "the leader's own", "not known"],
)
def test_round_trips(trips: tuple[float, ...], named: list[str]) -> None:
    given = {rank: NodeReport(rank, 2, "0", round_trip=trip) for rank, trip in enumerate(trips)}
    found = nodes.differences({}, given, PLAN)
    assert [f"{' '.join(each.nodes)}: {each.seen}" for each in found] == named


# --------------------------------------------------------------------------------------------------
# What travels, and what is printed


def test_what_is_seen_arrives_as_it_was() -> None:
    sent = json.loads(to_json(GOOD))
    assert read(Observation, sent) == GOOD
    assert read(Observation, {"of_a_later_version": 1}) == Observation()


@pytest.mark.parametrize(
    ("value", "wrong"),
    [
        ([], "not an object"),
        ({"handles": "many"}, "handles: not a whole number"),
        ({"handles": float("nan")}, "handles: not a whole number from -4611686018427387904 to "),
        ({"handles": True}, "handles: not a whole number"),
        ({"system": 3}, "system: not a text"),
        ({"may_lock": 1}, "may_lock: neither true nor false"),
        ({"disks": [{"path": 5}]}, r"disks\[0\].path: not a text"),
        ({"disks": {}}, "disks: not a list of at most 300"),
        ({"names": [{}] * 301}, "names: not a list of at most 300"),
        ({"own": 7}, "own: not an object"),
    ],
)
def test_nonsense_is_refused(value: Any, wrong: str) -> None:
    with pytest.raises(Invalid, match="^" + wrong):
        read(Observation, value)


def test_what_moves_a_cursor_does_not_arrive() -> None:
    assert (
        read(Observation, {"system": "a\x1b[2Jb\nc" + "x" * 900}).system
        == "ab c" + "x" * 493 + "..."
    )


WELL = Finding("ok", "a", "A", "1")
ODD = Finding("warning", "b", "B", "2")
BAD = Finding("error", "c", "C", "3")


def test_worst_first_and_the_same_once() -> None:
    lines = sort(
        [
            replace(WELL, nodes=("x",)),
            ODD,
            BAD,
            replace(WELL, nodes=("y",)),
            replace(WELL, nodes=("x",)),
        ]
    )
    expected = [("error", ()), ("warning", ()), ("ok", ("x", "y"))]
    assert [(each.level, each.nodes) for each in lines] == expected


@pytest.mark.parametrize(
    ("found", "plain_status", "strict", "words"),
    [
        ([WELL], 0, 0, "nothing is wrong"),
        ([WELL, ODD], 0, 78, "1 warning"),
        ([ODD, BAD, replace(BAD, id="d")], 78, 78, "2 errors, 1 warning"),
    ],
)
def test_status(found: list[Finding], plain_status: int, strict: int, words: str) -> None:
    expected = (plain_status, strict, words)
    assert (status(found), status(found, strict=True), summary(found)) == expected


def test_what_is_well_is_one_line_for_all() -> None:
    lines = together(
        sort([replace(WELL, seen=str(number), nodes=(f"n{number}",)) for number in range(1000)])
    )
    (line,) = table.text(lines, 1000, 100, "job").splitlines()[3:-2]
    assert line == "ok  all   A     0, and others like it (999)"


def test_of_many_lines_on_one_matter_the_first_are_shown() -> None:
    lines = together(
        sort([replace(ODD, seen=str(number), nodes=(f"n{number}",)) for number in range(20)])
    )
    assert [each.seen for each in lines] == [
        *map(str, range(8)),
        "and 12 more like these; --json has them all",
    ]
    assert lines[-1].nodes[0] == "n8"


TABLE = """\
job: 2 nodes

       node      what        seen    needed  fix
error  worker-1  the driver  535.54  550.54  install one
                 differs                     driver on all
                                             machines
ok     all       CPUs        8

1 error
"""


def test_the_table() -> None:
    lines = [
        Finding(
            "error",
            "d",
            "the driver differs",
            "535.54",
            "550.54",
            "install one driver on all machines",
            ("worker-1",),
        ),
        Finding("ok", "c", "CPUs", "8", nodes=("worker-0", "worker-1")),
    ]
    assert table.text(lines, 2, 62, "job: 2 nodes") == TABLE


def test_a_node_that_is_missing_or_silent_is_in_the_report() -> None:
    failed = Outcome(69, "1 of 2 peers did not answer | c (refused) | see that they run")
    made = report(CheckOptions(30.0, json=True), PLAN, {0: GOOD}, reports(0.0, 0.0), failed)
    whole = json.loads(made.answer)
    assert made.outcome == failed
    assert (whole["status"], list(whole["observed"])) == (69, ["worker-0"])
    bad = [
        (each["id"], each["seen"], each["nodes"])
        for each in whole["findings"]
        if each["level"] == "error"
    ]
    assert bad == [("roll-call", "c (refused)", []), ("no-answer", "no answer", ["worker-1"])]


@pytest.mark.parametrize(("launcher", "ended"), [("mpirun", 78), ("torchrun", 0)])
def test_another_mpirun_matters_under_mpirun(launcher: str, ended: int) -> None:
    seen = {
        rank: replace(GOOD, programs=(InstalledProgram("mpirun", "/m", f"Open MPI {4 + rank}.0"),))
        for rank in (0, 1)
    }
    job = replace(plan(launcher=launcher.split()[0]), launcher=launcher)
    made = report(CheckOptions(30.0), job, seen, reports(0.0, 0.0))
    assert made.outcome.status == ended, made.answer
    assert made.answer.startswith(
        f"job job: 3 nodes, 6 ranks, launcher {launcher.split()[0]}; looked at: worker-0, worker-1"
    )


def test_a_node_that_cannot_take_part_is_one_line() -> None:
    reason = "cannot start mpirun: No such file"
    there = {0: replace(reports(0.0)[0], not_ready=Outcome(127, reason))}
    for seen, ids in (
        (replace(GOOD, refused=(Refusal(127, reason),)), ["refused"]),
        (GOOD, ["not-ready"]),
    ):
        made = report(CheckOptions(30.0, json=True), PLAN, {0: seen}, there)
        found = [
            each["id"] for each in json.loads(made.answer)["findings"] if each["level"] == "error"
        ]
        assert (found, made.outcome.status) == (ids, 78)
