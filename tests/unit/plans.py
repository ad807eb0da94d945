"""Plans of specs and facts in a line."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from entrypoint.base.model import Device, Facts, Plan, Site, Topology
from entrypoint.plan import settle as make_plan
from entrypoint.plan import topology as topologies
from entrypoint.spec import JobSpec, load

SECRET = secrets.token_hex(32)


def facts(env: Mapping[str, str] | None = None, **more: Any) -> Facts:
    plain = {
        "hostname": "a",
        "cwd": "/job",
        "uid": 1000,
        "user": "ma-user",
        "home": "/home/ma-user",
        "mpi": "4.1.4",
    }
    return Facts(env={"PATH": "/usr/bin:/bin"} if env is None else env, **{**plain, **more})


def settle(
    text: str, facts: Facts, device: Device | None = None, env: Mapping[str, str] | None = None
) -> tuple[JobSpec, Topology]:
    spec = load(text, "job.yaml", env or {}, {})
    return spec, topologies.build(
        spec, facts, Site("local"), device or Device("cpu", 0, "no accelerator")
    )


def build(
    text: str,
    given: Facts | None = None,
    device: Device | None = None,
    env: Mapping[str, str] | None = None,
) -> Plan:
    container = given or facts()
    spec, topology = settle(text + "\ncommand: [prog, one arg]", container, device, env)
    return make_plan(spec, container, topology)
