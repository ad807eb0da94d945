"""What a node checks of itself before an attempt: its cards by a simulated tool, and the executables
of a folder."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from entrypoint import spec
from entrypoint.base.errors import CantCreateError
from entrypoint.base.model import Device, Facts, Plan
from entrypoint.base.values import replace
from entrypoint.features.health import gate as checks
from entrypoint.features.health.gate import NodeGate
from entrypoint.plan import settle
from entrypoint.spec.jobspec import GateSpec
from tests.smi import calls, simulated_smi
from tests.waits import until

ENV = {"PATH": "/usr/bin:/bin"}
IS_ROOT = os.geteuid() == 0


class Gate:
    """The gate of a node, what it logs, and what it says that it waits for."""

    def __init__(self, folder: Path, device: int = 0, **settings: Any) -> None:
        self.folder = folder / "health.d"
        self.tools = folder / "bin"
        self.lines: list[str] = []
        self.waits: list[str] = []
        given = {"cards": "always", "folder": self.folder, "seconds": 5, **settings}
        gate = ", ".join(f"{name}: {value}" for name, value in given.items())
        job = spec.load(
            f"command: [train]\nhosts: [a]\nslots: 1\ngate: {{{gate}}}\n", "job.yaml", {}, {}
        )
        facts = Facts(
            env={**ENV, "PATH": f"{self.tools}:{ENV['PATH']}", "MY_TOKEN": "correct horse battery"},
            hostname="a", cwd="/", uid=os.geteuid(), user="u", home="/",
        )  # fmt: skip
        plan = settle(job, facts)
        origin = f"{device} /dev/nvidia*"
        topology = replace(plan.topology, device=Device("nvidia", device, origin))
        self.plan: Plan = replace(plan, topology=topology) if device else plan
        self.gate = NodeGate(job, facts, self.lines.append)

    def add(self, name: str, script: str, mode: int = 0o755) -> Path:
        self.folder.mkdir(exist_ok=True)
        file = self.folder / name
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(mode)
        return file

    def check(self) -> str:
        return asyncio.run(self.gate.check(self.plan, self.waits.append))

    def said(self) -> str:
        return "\n".join(self.lines)


# -- the folder


@pytest.mark.control("a node that does not pass its gate never gets a rank")
def test_a_node_that_is_well_has_passed(tmp_path: Path) -> None:
    """Also one without a folder."""
    gate = Gate(tmp_path)
    assert gate.check() == ""
    for name in ("30", "10", "20"):
        gate.add(name, f"echo {name} >>{tmp_path}/order; sleep 0.1; echo {name} >>{tmp_path}/order")
    simulated_smi(gate.tools)
    assert gate.check() == ""
    assert calls(gate.tools) == 1
    # by name, one after the other
    assert (tmp_path / "order").read_text().split() == ["10", "10", "20", "20", "30", "30"]
    assert gate.lines == []


@pytest.mark.promise("a node that does not pass its gate never gets a rank")
@pytest.mark.control("a gate that is slow or missing stops no job")
def test_the_last_line_is_the_reason(tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    gate.add("10-fine", "echo all is well; exit 0")
    gate.add("20-links", r"echo first; printf '\033[31mlink 3 is down\033[0m\n\n' >&2; exit 3")
    gate.add("30-silent", "exit 4")
    gate.add("40-token", "echo $MY_TOKEN; exit 1")
    gate.add("50-long", "head -c 100000 /dev/zero | tr '\\0' x; exit 1")
    gate.add(".hidden", "exit 9")
    first, second, third, fourth = gate.check().split("; ")
    assert first == "20-links: link 3 is down"
    assert second == "30-silent exited with 4"
    assert "horse" not in third
    assert fourth.startswith("50-long: xxx")
    assert len(fourth) < 400
    assert gate.lines == []


@pytest.mark.promise("a gate that is slow or missing stops no job")
def test_one_that_is_slow_is_ended_and_said_once(tmp_path: Path) -> None:
    gate = Gate(tmp_path, seconds=1)
    pids = tmp_path / "pids"
    gate.add("10-slow", f"sleep 600 & echo $! >{pids}; sleep 600")
    gate.add("20-late", "exit 1")
    assert gate.check() == ""
    assert gate.check() == ""
    assert gate.said().count("EP465 the health check 10-slow has no result | no end within ") == 1
    assert gate.said().count("EP465 the health check 20-late has no result | no time left") == 1
    pid = pids.read_text().split()[-1]
    until(lambda: not Path(f"/proc/{pid}").exists(), "its child is gone")


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda file: file.chmod(0o644), "not an executable file"),
        (lambda file: file.chmod(0o757), "others may change it: -rwxr-xrwx"),
        (lambda file: (file.unlink(), file.mkdir()), "not an executable file"),
        (lambda file: (file.unlink(), file.symlink_to("/nowhere")), "No such file"),
        pytest.param(
            lambda file: os.chown(file, 4321, 4321),
            "it belongs to user 4321",
            marks=pytest.mark.skipif(not IS_ROOT, reason="only root gives files away"),
        ),
    ],
    ids=["mode", "writable", "folder", "link", "owner"],
)
def test_a_file_that_others_may_have_written_is_not_run(
    tmp_path: Path, make: Any, why: str
) -> None:
    gate = Gate(tmp_path)
    make(gate.add("10-check", f"touch {tmp_path}/ran; exit 1"))
    assert gate.check() == gate.check() == ""
    assert not (tmp_path / "ran").exists()
    (line,) = gate.lines
    assert line.startswith(f"warning: EP464 10-check of {gate.folder} is not run | {why}")


@pytest.mark.parametrize("why", ["others may change it: drwxrwxrwx", "Not a directory"])
def test_a_folder_that_others_may_change_or_that_is_none_is_not_used(
    why: str, tmp_path: Path
) -> None:
    gate = Gate(tmp_path)
    if why == "Not a directory":
        gate.folder.write_text("")
    else:
        gate.add("10-check", f"touch {tmp_path}/ran; exit 1")
        gate.folder.chmod(0o777)
    assert gate.check() == ""
    assert not (tmp_path / "ran").exists()
    assert f"is not used | {why}" in gate.said()


def test_a_stop_ends_what_runs(tmp_path: Path) -> None:
    gate = Gate(tmp_path, seconds=60)
    pids = tmp_path / "pids"
    gate.add("10-slow", f"echo $$ >{pids}; exec sleep 600")

    async def stopped() -> None:
        task = asyncio.create_task(gate.gate.check(gate.plan, gate.waits.append))
        while not pids.exists() or not pids.read_text():
            await asyncio.wait({task}, timeout=0.02)
        task.cancel()
        await asyncio.wait({task})

    asyncio.run(stopped())
    pid = pids.read_text().strip()
    until(lambda: not Path(f"/proc/{pid}").exists(), "it is gone")


def test_what_was_judged_before_the_boot_is_judged_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(tmp_path)
    said = ["EP422 little shared memory | 1 MiB | give it more"]
    monkeypatch.setattr(checks.preflight, "check", lambda plan: said)
    assert gate.check() == gate.check() == gate.said() == "", "it was said at the start"
    said.append("EP421 few file handles | 80 | raise it")
    assert gate.check() == gate.check() == ""
    assert gate.lines == ["warning: EP421 few file handles | 80 | raise it"]

    def full(plan: Plan) -> list[str]:
        raise CantCreateError("EP410 cannot write /run/x", "0 KiB free", "make room")

    monkeypatch.setattr(checks.preflight, "check", full)
    assert gate.check() == "EP410 cannot write /run/x: 0 KiB free"


# -- cards


@pytest.mark.promise("a node that does not pass its gate never gets a rank")
def test_a_card_with_errors_is_named(tmp_path: Path) -> None:
    """And those that do not answer are counted."""
    gate = Gate(tmp_path)
    simulated_smi(gate.tools, ecc=(0, 4))
    assert gate.check() == "GPU 1: 4 uncorrectable memory errors since the driver was loaded"
    eight = Gate(tmp_path, device=8)
    simulated_smi(eight.tools, ecc=(0,) * 7, before="trap 'exit 14' EXIT")
    assert eight.check() == "accelerators that answer: 7 answer nvidia-smi, needed: 8"


@pytest.mark.promise("a gate that is slow or missing stops no job")
@pytest.mark.parametrize(
    ("before", "why"),
    [("echo no driver; exit 9", "ends with 9: no driver"), ("exec sleep 600", "no answer within ")],
)
def test_a_tool_that_is_of_no_use_is_said_once(tmp_path: Path, before: str, why: str) -> None:
    gate = Gate(tmp_path, device=1, seconds=1)
    simulated_smi(gate.tools, before=before)
    assert gate.check() == gate.check() == ""
    (line,) = gate.lines
    assert line.startswith(f"warning: EP465 the health of the cards is unknown | nvidia-smi: {why}")


def test_the_tool_of_cards_that_are_not_there_is_no_matter(tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    simulated_smi(gate.tools, before="echo no driver; exit 9")
    assert (gate.check(), gate.lines) == ("", [])


@pytest.mark.promise(
    "an attempt waits until the memory of the cards is free, and says who holds it"
)
def test_memory_that_is_held_is_awaited(tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    simulated_smi(gate.tools, held=2)
    begun = time.monotonic()
    assert gate.check() == ""
    assert time.monotonic() - begun >= 2
    first, last = gate.lines
    words = "the memory of cards is not free: GPU 0: 20480 MiB in use: pid 77 python; GPU 1: 20480"
    assert first.startswith(words)
    assert last.startswith("the memory of the cards is free after ")
    assert [text.startswith(words) for text in gate.waits] == [True]


@pytest.mark.control(
    "an attempt waits until the memory of the cards is free, and says who holds it"
)
def test_free_memory_is_not_awaited(tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    simulated_smi(gate.tools)
    assert gate.check() == ""
    assert gate.waits == []


def test_what_used_the_cards_before_the_job_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GateSpec, "memory_wait", 1.0)
    gate = Gate(tmp_path)
    simulated_smi(gate.tools, held=600)
    assert gate.check() == ""
    assert "EP463 the job shares its cards | memory of cards is not free after 1s" in gate.said()
    assert gate.waits.pop()
    assert gate.check() == ""
    assert gate.waits == [], "it is not awaited once more"
    assert gate.said().count("EP463") == 1


def test_what_an_attempt_has_left_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GateSpec, "memory_wait", 1.0)
    gate = Gate(tmp_path)
    simulated_smi(gate.tools)
    assert gate.check() == ""
    (gate.tools / "begun").unlink()
    simulated_smi(gate.tools, held=600)
    problem = gate.check()
    assert problem.startswith("memory of cards is not free after 1s: GPU 0: 20480 MiB in use: pid")


@pytest.mark.parametrize("hangs", [True, False])
def test_a_folder_that_does_not_answer_stops_no_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hangs: bool
) -> None:
    answers = threading.Event()
    monkeypatch.setattr(checks, "_executables", lambda folder: answers.wait(600) and [])
    monkeypatch.setattr(checks, "_HUNG", 0.3)
    gate = Gate(tmp_path, cards="never", seconds=1)
    if not hangs:
        answers.set()

    assert gate.check() == ""
    assert ("EP465 this node could not check itself | no end within" in gate.said()) == hangs
    answers.set()
