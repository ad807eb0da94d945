"""`check --all` in four containers, one with 1 MB of shared memory and one with a wrong clock: these two are named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tests.containers import IMAGE, Compose, docker
from tests.rows import ended, said

pytestmark = [pytest.mark.see, pytest.mark.slow]

HOSTS = [f"worker-{rank}" for rank in range(4)]
SPEC = """
name: look
launcher: torchrun
hosts: [worker-0, worker-1, worker-2, worker-3]
slots: 2
command: [train.py]
timeouts: {peers: 60}
"""
CHECK = ["check", "--all", "--json", "--", "true"]
# The entrypoint with another clock, since all containers of a machine have one. Not by faketime: a Python under it
# cannot start programs reliably.
CLOCK = "import time; now = time.time; time.time = lambda: now() + 600; from entrypoint.cli import script; script()"
# What this machine may be short of for all of them.
OWN = {"cpus", "memory", "disk", "pids"}


def start(compose: Compose, folder: Path, image: str, odd: bool) -> dict[str, str]:
    spec = folder / "job.yaml"
    spec.write_text(SPEC)
    compose.render(spec, image=image)
    made = yaml.safe_load(compose.file.read_text())
    for host in HOSTS:
        made["services"][host]["command"] = ["entrypoint", *CHECK]
    if odd:
        made["services"]["worker-1"]["shm_size"] = "1m"
        python = ["/usr/bin/tini", "-s", "--", "/opt/entrypoint/bin/python3", "-I", "-c", CLOCK]
        made["services"]["worker-3"] |= {"entrypoint": python, "command": CHECK}
    compose.file.write_text(yaml.safe_dump(made))
    compose.run("up", "-d")
    return compose.containers()


@pytest.mark.parametrize("odd", [True, False], ids=["odd", "control"])
def test_exactly_these_nodes_are_named(compose: Compose, folder: Path, odd: bool, pytestconfig: pytest.Config) -> None:
    image = (pytestconfig.getoption("--image") or [IMAGE])[0]
    containers = start(compose, folder, image, odd)
    assert ended(containers, 120) == dict.fromkeys(HOSTS, 0), said(containers)
    text = json.loads(docker("logs", containers["worker-0"]))  # of its stdout
    found = {
        (each["id"], " ".join(each["nodes"]), each["seen"].split(" free")[0].split("s ahead")[0])
        for each in text["findings"]
        if each["level"] != "ok" and each["id"] not in OWN
    }
    named = {("shared-memory", "worker-1", "1 MiB")} if odd else set()
    assert {row for row in found if row[0] != "clock"} == named
    clocks = [(row[1], abs(int(row[2]) - 600) <= 2) for row in found if row[0] == "clock"]
    assert clocks == ([("worker-3", True)] if odd else [])
    assert text["observed"]["worker-2"]["names"], "names are looked up where no address is given"
