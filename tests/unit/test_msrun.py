"""The launcher msrun: what it refuses and what it passes on."""

from __future__ import annotations

import pytest

from entrypoint import registry, spec
from entrypoint.errors import ConfigError, SpecError
from entrypoint.launchers import msrun
from entrypoint.model import Facts, Members, Topology
from entrypoint.plan import assume_members, topology
from entrypoint.spec import JobSpec
from entrypoint.values import replace

FACTS = Facts({}, "a", "/work", 1000, "me", "/home/me")
HOSTS = "hosts: [a, b]\nslots: 2\n"


def settle(text: str) -> tuple[JobSpec, Topology, Members]:
    job = spec.load(text, "job.yaml", {}, {})
    site = registry.choose("platforms", None, FACTS, "local").site(FACTS)
    device = registry.choose("devices", None, FACTS, "cpu").device(FACTS)
    there = topology.build(job, FACTS, site, device)
    return job, there, assume_members(there, FACTS)


@pytest.mark.parametrize("option", ["--worker_num=3", "--join", "--log-dir=x", "--master_p=1"])
def test_an_option_that_is_settled_is_refused_by_name(option: str) -> None:
    job, there, members = settle(
        f"{HOSTS}command: [train.py]\nmindspore: {{extra_args: [{option}]}}\n"
    )
    with pytest.raises(SpecError) as error:
        msrun.plan(job, there, members)
    assert "job.yaml:4" in str(error.value)
    assert f"is set by the launcher | `{option}` | set " in str(error.value)


def test_another_option_is_passed_as_it_is() -> None:
    job, there, members = settle(
        f'{HOSTS}command: [train.py]\nmindspore: {{extra_args: ["--bind_core={{a b}}"]}}\n'
    )
    assert msrun.plan(job, there, members).programs[0].argv[-2:] == (
        "--bind_core={a b}",
        "train.py",
    )


def test_nodes_of_different_sizes_are_refused() -> None:
    job, there, members = settle(f"{HOSTS}command: [train.py]\n")
    first, second = members.reports
    with pytest.raises(
        ConfigError,
        match=r"as many processes on one node .* worker-0 \(a\) has 2, worker-1 \(b\) has 3 .* set slots",
    ):
        msrun.plan(job, there, Members((first, replace(second, slots=3))))
