"""Row 7: the same verdicts under the launchers that start the program on every node by
themselves."""

from __future__ import annotations

import re
import time

import pytest

from tests.cluster import until
from tests.containers import ACCELERATE, ASCEND, DEEPSPEED, IMAGE, MPICH, RAY
from tests.faults.faultjob import EATS, LITTLE, NOW, SAVES, SPENT, TRAINS, UP, Job, Make, running

CARDS = {"ENTRYPOINT_SIMULATE_ASCEND": "1", "ENTRYPOINT_ASCEND_RANK_TABLE": "none"}
# With tensorflow, ascend and jax the program needs neither framework nor cards, and the smaller
# image has none.
LAUNCHERS = {
    "torchlaunch": IMAGE,
    "pytorch": IMAGE,
    "tensorflow": ASCEND,
    "ascend": ASCEND,
    "jax": ASCEND,
    "hydra": MPICH,
}
# These import torch themselves, and so may be what the kernel kills for memory.
LARGE = {"accelerate": ACCELERATE, "deepspeed": DEEPSPEED}


def each(launchers: dict[str, str]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(("launcher", "image"), launchers.items(), ids=list(launchers))


EVERY = each(LAUNCHERS)
PAIR = ["worker-0", "worker-1"]


def ill(how: str) -> str:
    """After two seconds worker-1 fails; alone, the other would stay."""
    return (
        f'{UP}if [ "$HOSTNAME" = worker-1 ]; then sleep 2; echo "$HOSTNAME fails at {NOW}"; {how};'
        " fi; exec sleep 1000"
    )


FAILS = ill("exit 7")


def begin(
    make: Make, launcher: str, image: str, program: str, memory: tuple[str, ...] = (), **env: str
) -> Job:
    job = make(launcher, nodes=2, image=image)
    job.start(
        "sh",
        "-c",
        program,
        env={**(CARDS if image == ASCEND else {}), **env},
        options={"worker-1": memory},
    )
    return job


@each(LAUNCHERS | LARGE)
@pytest.mark.fault("7", "1: worker-1 is killed", bound="5 s")
def test_worker_1_is_killed(make: Make, launcher: str, image: str) -> None:
    job = begin(make, launcher, image, TRAINS)
    job.up()
    fault = job.kill("worker-1")
    assert job.ends() == {"worker-0": 75, "worker-1": 137}, job.logs()
    assert "EP602 worker-1 is lost: its session ended, last message " in job.last_line(
        "worker-0"
    ), job.logs()
    job.within(5, job.took(fault))


@EVERY
@pytest.mark.fault("7", "2: worker-0 is killed", bound="5 s")
def test_its_leader_is_killed(make: Make, launcher: str, image: str) -> None:
    job = begin(make, launcher, image, TRAINS)
    job.up()
    fault = job.kill("worker-0")
    assert job.ends() == {"worker-0": 137, "worker-1": 75}, job.logs()
    assert "EP602 worker-0 is lost: its session ended" in job.last_line("worker-1"), job.logs()
    job.within(5, job.took(fault))


@EVERY
@pytest.mark.parametrize("lost", PAIR)
@pytest.mark.fault("7", "3: {lost} is cut off, heartbeat timeout 3 s", bound="timeout + 5 s")
def test_one_of_two_is_cut_off(make: Make, launcher: str, image: str, lost: str) -> None:
    job = begin(make, launcher, image, TRAINS, ENTRYPOINT_TIMEOUTS_HEARTBEAT="3")
    job.up()
    fault = job.cut_off(lost)
    assert job.ends() == dict.fromkeys(PAIR, 75), job.logs()
    for host, other in (PAIR, PAIR[::-1]):
        assert f"EP602 {other} is lost: nothing heard of it for " in job.last_line(host), job.logs()
    job.within(3 + 5, job.took(fault))


@EVERY
@pytest.mark.fault("7", "5: the program on worker-1 takes more memory than it may", bound="5 s")
def test_one_of_two_is_killed_for_memory(make: Make, launcher: str, image: str) -> None:
    job = begin(make, launcher, image, ill(EATS), LITTLE)
    assert job.ends(90) == dict.fromkeys(PAIR, 137), job.logs()
    for host in PAIR:
        assert SPENT in job.last_line(host), job.logs()
    job.within(5, job.took(job.times("fails at")["worker-1"]))


@each({"torchrun": IMAGE, **LAUNCHERS, **LARGE})
@pytest.mark.fault("7", "4: worker-1 exits with 7 after 2 s, the other would stay", bound="5 s")
def test_worker_1_fails(make: Make, launcher: str, image: str) -> None:
    job = begin(make, launcher, image, FAILS)
    assert job.ends(90) == dict.fromkeys(PAIR, 7), job.logs()
    for host in PAIR:
        names = r"on worker-1 exited with 7; exit 7$"
        assert re.search(names, job.last_line(host)), job.logs()
    job.within(5, job.took(job.times("fails at")["worker-1"]))


@pytest.mark.control("without mpirun too, a 1 gives way to the failure that caused it")
@pytest.mark.fault(
    "7", "the control: worker-1 exits with 7, and there is no roll call", launcher="pytorch"
)
def test_a_node_alone_stays(make: Make) -> None:
    job = begin(make, "pytorch", IMAGE, FAILS, ENTRYPOINT_SECRET="", ENTRYPOINT_ROLL_CALL="none")
    until(lambda: "worker-1" in job.times("fails at"), 60, "worker-1 has failed")
    failed = job.times("fails at")["worker-1"]
    until(lambda: time.time() - failed > 8, 10, "more time than the bound")
    assert running(job.boxes["worker-0"]), job.logs()


@each(LAUNCHERS | LARGE)
@pytest.mark.parametrize("host", PAIR)
@pytest.mark.fault("7", "6: SIGTERM to {host}: every program is told", bound="1 s")
def test_one_of_two_is_stopped(make: Make, launcher: str, image: str, host: str) -> None:
    job = begin(make, launcher, image, SAVES)
    job.up()
    fault = job.kill(host, "TERM")
    assert job.ends() == dict.fromkeys(PAIR, 143), job.logs()
    assert set(re.findall(r"(worker-\d) saved", job.logs())) == set(PAIR), job.logs()
    job.within(1, max(job.times("told at").values()) - fault)


# Ray's program runs on worker-0 alone, and Ray itself needs some seconds to end.


@pytest.mark.parametrize("lost", PAIR)
@pytest.mark.fault("7", "{lost} is killed", launcher="ray", bound="15 s")
def test_a_node_of_ray_is_killed(make: Make, lost: str) -> None:
    job = begin(make, "ray", RAY, TRAINS)
    job.up(1)
    fault = job.kill(lost)
    assert job.ends(90) == {host: 137 if host == lost else 75 for host in PAIR}, job.logs()
    job.within(15, job.took(fault))


@pytest.mark.fault("7", "the program exits with 7", launcher="ray", bound="15 s")
def test_ray_s_program_fails(make: Make) -> None:
    job = begin(make, "ray", RAY, f'{UP}sleep 2; echo "$HOSTNAME fails at {NOW}"; exit 7')
    assert job.ends(120) == dict.fromkeys(PAIR, 7), job.logs()
    job.within(15, job.took(job.times("fails at")["worker-0"]))


@pytest.mark.parametrize("host", PAIR)
@pytest.mark.fault("7", "SIGTERM to {host}: the program is told", launcher="ray", bound="1 s")
def test_ray_s_program_is_stopped(make: Make, host: str) -> None:
    job = begin(make, "ray", RAY, SAVES)
    job.up(1)
    fault = job.kill(host, "TERM")
    assert job.ends(90) == dict.fromkeys(PAIR, 143), job.logs()
    assert re.findall(r"(worker-\d) saved", job.logs()) == ["worker-0"], job.logs()
    job.within(1, job.times("told at")["worker-0"] - fault)
