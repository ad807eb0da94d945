"""The Ascend image for arm64, emulated: it is what it says, and two containers boot one process a
(simulated) card."""

from __future__ import annotations

from secrets import token_hex

import pytest

from tests.containers import docker, engine, missing
from tests.modelarts import ModelArts
from tests.rows import agrees, ended, expected, places, said

IMAGE = "entrypoint-ascend:arm64"
PATIENCE = 400  # seconds; emulated, and on two cores, a Python starts in some of them
pytestmark = [
    pytest.mark.skipif(bool(missing(IMAGE)), reason=str(missing(IMAGE))),
    pytest.mark.timeout(PATIENCE + 200),
]


def test_every_program_of_the_image_is_for_arm64() -> None:
    assert engine().images.get(IMAGE).attrs["Architecture"] == "arm64"
    assert docker("run", "--rm", "--entrypoint", "uname", IMAGE, "-m").strip() == "aarch64"
    for program in ("/usr/bin/tini", "/usr/sbin/sshd", "/usr/bin/mpirun", "/usr/bin/python3"):
        header = docker(
            "run", "--rm", "--entrypoint", "od", IMAGE, "-An", "-tx1", "-j18", "-N2", program
        )
        # elf.h: EM_AARCH64 is 183
        assert header.split() == ["b7", "00"], f"{program} is no program for aarch64"


def test_two_containers_boot_a_process_a_card(modelarts: ModelArts) -> None:
    hosts = ["worker-0", "worker-1"]
    env = {
        "ENTRYPOINT_SPEC": "job.yaml",
        "ENTRYPOINT_SECRET": token_hex(32),
        "ENTRYPOINT_SIMULATE_ASCEND": "2",
        "ENTRYPOINT_TIMEOUTS_PEERS": "300",
        "ENTRYPOINT_TIMEOUTS_HEARTBEAT": "60",
        "RANK_TABLE_FILE": modelarts.CODE,
    }
    # qemu knows no subreaper and tini -s insists on one; as PID 1, it and the entrypoint can do
    # without.
    tini, entry = ("--entrypoint", "/usr/bin/tini"), ("--", "/usr/local/bin/image-entry")
    containers = {
        host: modelarts.container(IMAGE, host, "ascend", *entry, env=env, options=tini)
        for host in hosts
    }
    assert ended(containers, PATIENCE, together=30) == dict.fromkeys(hosts, 0), said(containers)
    log = said(containers)
    assert places(log) == expected(hosts), log
    agrees(log, "1e-10")
