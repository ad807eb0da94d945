"""What the toolkit's own records and judgements cost a node: calls are counted, which are as many on
every machine."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import pytest

from entrypoint.base.model import Outcome
from entrypoint.base.values import replace
from entrypoint.causes.judge import judge
from entrypoint.features.record.file import RecordFile
from entrypoint.features.record.live import phases_before
from entrypoint.features.record.observer import JobObserver
from entrypoint.job import actions, events, messages
from entrypoint.ranks.evidence import NodeProbe
from entrypoint.ranks.limits import NodeLimits
from entrypoint.session import codec
from tests.simulation.world import plans


def calls(work: Callable[[], object]) -> int:
    """How many functions are called by it, in this thread."""
    count = 0

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def boot(run_dir: Path, turns: int) -> tuple[int, int]:
    """Record a boot with so many heartbeats and 64 ranks: the calls, and the bytes that are
    sent."""
    plan = plans(2, "mpirun", 0, 0)[2]
    file = RecordFile(print)
    file.about(replace(plan.topology, run_dir=str(run_dir)))
    observer = JobObserver(phases_before(1.0), 1.0)
    observer.begin(plan, 1.0)

    def observe() -> None:
        observer.saw(events.Started(), 1.0)
        for _ in range(turns):  # a heartbeat is an event and an action
            observer.saw(events.MessageReceived(0, messages.Ping(0)), 1.0)
            observer.saw(actions.Send(0, messages.Pong(0.0, 0)), 1.0)
        for rank in range(64):
            for change in ("start", "output", "end"):
                observer.saw(events.RankChanged(f"rank {rank}", change), 2.0)

    count = calls(observe)
    sent = len(codec.pack(observer.phases(3.0)))
    file.timeline = observer.recording(3.0, 1e9)
    file.end(Outcome(0, "done"))
    return count, sent


@pytest.mark.promise(
    "recording a boot costs a node some calls for each event, and no memory for heartbeats",
    control="a hundred times as many events, in the same test",
)
@pytest.mark.see("timeline", "what recording costs a node: calls and bytes")
def test_a_node_pays_little_for_a_boot(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    (few, size), (many, as_large) = (boot(tmp_path / "run", turns) for turns in (100, 10_100))
    record_property("seen", f"{few} calls, {size} bytes sent")
    assert len(json.loads((tmp_path / "run-state.json").read_text())["timeline"]["phases"]) > 128
    assert few < 10_000
    assert size == as_large
    assert 2 * 10_000 <= many - few < 60 * 10_000, "the control: each event is counted"


@pytest.mark.promise(
    "a failure costs its node some thousand calls, besides a device's own tool",
    control="the cause that it finds in them",
)
def test_a_diagnosis_costs_little(record_property: Callable[[str, object], None]) -> None:
    """Of what a rank's supervisor keeps, the last 16 KiB of a training that has failed, once the
    patterns are compiled."""
    step = "[rank1]: step {} loss 2.1 lr 1e-4, 40 GiB of CUDA memory, loader 0.1 s, saved to /ckpt"
    lines = [
        *(step.format(number) for number in range(185)),
        *(f"  File '/app/train.py', line {number}, in step" for number in range(40)),
        "RuntimeError: NCCL error in: ProcessGroupNCCL.cpp:1331, unhandled cuda error",
    ]
    assert len("\n".join(lines)) > 16_384
    topology = SimpleNamespace(
        workdir="/", log_dir="/tmp", run_dir="/tmp", device=SimpleNamespace(count=0)
    )
    probe = NodeProbe(SimpleNamespace(env={}), topology, NodeLimits("/tmp"))  # type: ignore[arg-type]
    found = [judge(lines, 1)]
    threads = threading.active_count()
    count = calls(lambda: found.append(judge(lines, 1, evidence=probe.counters())))
    record_property("seen", f"{count} calls")
    assert [cause.slug for cause in found] == ["peer-lost"] * 2
    assert threads == threading.active_count(), "no other thread that is not counted"
    assert count < 10_000
