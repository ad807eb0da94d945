"""The network check in a launcher's place: what each node's program is told."""

from __future__ import annotations

import json
import secrets
from typing import Any

import pytest

from entrypoint import spec
from entrypoint.errors import ConfigError, SpecError
from entrypoint.model import Facts, Interface, Members, Plan
from entrypoint.plan import locate, netcheck, settle
from entrypoint.values import replace

pytestmark = pytest.mark.see
FACTS = Facts({}, "a", "/work", 1000, "me", "/home/me", programs={"sshd": "/usr/sbin/sshd"})
SECRET = {"ENTRYPOINT_SECRET": secrets.token_hex(16)}
IB0 = Interface("ib0", "10.9.0.2", "10.9.0.0/24")


def job(text: str = "", node: int = 0) -> spec.JobSpec:
    return spec.load(f"hosts: [a, b]\nnode_rank: {node}\ncommand: [train.py]\n{text}", "job.yaml", SECRET, {})


def told(asked: spec.JobSpec, interface: Interface | None = None) -> tuple[Plan, dict[str, Any]]:
    """The plan, and the settings of its program, once all have answered the roll call."""
    draft = settle(netcheck.alone(asked), FACTS)
    reports = tuple(
        replace(each, address=f"10.0.0.{each.rank + 1}", interface=interface) for each in draft.members.reports
    )
    made = settle(netcheck.alone(asked), FACTS, draft.topology, Members(reports))
    return made, json.loads(next(file.text for file in made.files if file.name == netcheck.SETTINGS))


def test_worker_0_knows_where_all_are_and_the_others_where_it_is() -> None:
    made, settings = told(job())
    assert settings["nodes"] == [["worker-0", "a"], ["worker-1", "b"]]
    assert settings["addresses"] == ["10.0.0.1", "10.0.0.2"]
    assert (made.mode, made.launch.ends.awaited, made.launch.folders) == ("coordinated", (0,), (made.topology.log_dir,))
    made, settings = told(job(node=1))
    assert (settings["rank"], settings["leader"], settings["addresses"]) == (1, "a", [])
    assert made.launch.folders == ()


@pytest.mark.parametrize(("text", "address"), [("", ""), ("network: {interface: ib0}", "10.9.0.2")])
def test_the_interface_that_was_asked_for_is_measured(text: str, address: str) -> None:
    facts = replace(FACTS, interfaces=(IB0,))
    asked = netcheck.alone(job(text))
    draft = settle(asked, facts)
    reports = tuple(replace(each, interface=IB0) for each in draft.members.reports)
    made = settle(asked, facts, draft.topology, Members(reports))
    assert json.loads(made.files[0].text)["address"] == address


def test_the_limits_are_the_spec_s_and_no_file_that_is_shown_has_a_secret() -> None:
    made, settings = told(job("netcheck: {max_latency_ms: 5, min_bandwidth_gbps: 1, action: stop, port: 7000}"))
    names = ("max_latency_ms", "min_bandwidth_gbps", "stop", "port", "how")
    assert [settings[name] for name in names] == [5.0, 1.0, True, 7000, "text"]
    assert {file.name: (file.mode, file.secret) for file in made.files if file.name == netcheck.TOKEN} == {
        "token": (0o600, True)
    }
    assert not [file.name for file in made.files if SECRET["ENTRYPOINT_SECRET"] in file.text]


def test_before_the_program_the_nodes_hold_a_roll_call_whatever_the_launcher_and_the_plan_says_so() -> None:
    text = "launcher: plain\nnetcheck: {when: before}"
    asked = job(text)
    made = settle(asked, FACTS)
    assert made.mode == "coordinated"
    assert [each for each in made.later if each.startswith("network: measured before the program starts")]
    assert settle(job("launcher: plain\nroll_call: none"), FACTS).mode == "exec"
    with pytest.raises(ConfigError, match=r"EP313 netcheck\.when: before needs the roll call"):
        settle(job(f"{text}\nroll_call: none"), FACTS)
    first, plan = netcheck.before(asked, FACTS, made)
    assert (first.command, plan.launcher, plan.topology) == (("netcheck", "before"), "netcheck", made.topology)


def test_what_cannot_be_is_refused_by_name() -> None:
    alone = spec.load("command: [train.py]", "job.yaml", {}, {})
    with pytest.raises(ConfigError, match="EP012 a network check needs two nodes"):
        settle(netcheck.alone(alone), FACTS, locate(alone, FACTS))
    with pytest.raises(SpecError, match=r"job.yaml:\d+:\d+: netcheck.when: EP104 nodes that come late"):
        job("launcher: torchrun\nnodes: '1:2'\nnetcheck: {when: before}")
    with pytest.raises(SpecError, match="launcher"):
        job("launcher: netcheck")
