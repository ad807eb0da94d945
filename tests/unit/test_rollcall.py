"""What a roll call takes into account: calls that are for another node."""

from __future__ import annotations

from entrypoint import __version__
from entrypoint.job.messages import Hello
from entrypoint.job.waits import Misdirected
from entrypoint.model import Device, Node, Topology
from entrypoint.values import replace

HOSTS = ("a", "b", "c")


def hello(rank: int, hosts: tuple[str, ...] = HOSTS, toolkit: str = __version__) -> Hello:
    return Hello(toolkit, hosts, rank, "plain", {}, 15.0, "leader", "10.0.0.1")


def of_node(rank: int, job_id: str = "") -> Misdirected:
    nodes = tuple(Node(each, host, 1, index=each) for each, host in enumerate(HOSTS))
    return Misdirected(
        Topology(
            "job", nodes, rank, "local", Device("cpu", 0, ""), run_dir="/r", user="u", job_id=job_id
        )
    )


def test_an_address_may_be_stale_for_ten_seconds() -> None:
    calls = of_node(2)
    assert calls.words == "that is worker-2 of this job"
    assert calls.takes(hello(1), 100.0)
    assert calls.takes(hello(1), 110.0)
    assert not calls.takes(hello(1), 110.1), "then it is a mistake"


def test_the_right_call_ends_that_time() -> None:
    calls = of_node(2)
    assert calls.takes(hello(1), 100.0)
    assert not calls.takes(hello(2), 105.0), "this one is for us"
    assert calls.takes(hello(1), 115.0)


def test_other_hosts_and_another_toolkit_are_a_mistake_at_once() -> None:
    calls = of_node(2)
    assert not calls.takes(hello(1, ("a", "B", "c")), 100.0)
    assert not calls.takes(hello(1, toolkit="0.0.1"), 100.0)


def test_two_jobs_of_one_name_and_secret_differ_by_the_scheduler_s_number() -> None:
    call = replace(hello(2), job="17.0")
    assert of_node(2, "18.0").is_other_job(call)
    assert not of_node(2, "17.0").is_other_job(call)
    # Not where one side does not know its own.
    assert not of_node(2).is_other_job(call)
    assert not of_node(2, "18.0").is_other_job(hello(2))
