"""The network check in a launcher's place: our own program on every node, which measures the network between them."""

from __future__ import annotations

from typing import Any

from entrypoint import supervised
from entrypoint.errors import ConfigError
from entrypoint.model import Facts, File, Launch, LaunchEnds, LaunchStart, Members, Plan, Program, Topology
from entrypoint.plan import NETCHECK, settle
from entrypoint.render import render
from entrypoint.spec import JobSpec
from entrypoint.text import json_document
from entrypoint.values import replace

# Files in the run directory.
SETTINGS, TOKEN, WHY, ALL_REDUCE = "netcheck.settings", "token", "netcheck.why", "all_reduce.py"


def alone(spec: JobSpec, how: str = "text") -> JobSpec:
    """The job whose program is the check; `how` is what it prints: text or json, or text on stderr ("before")."""
    return replace(spec, launcher=NETCHECK, command=(NETCHECK, how), nodes=None, stall=type(spec.stall)())


def before(spec: JobSpec, facts: Facts, draft: Plan) -> tuple[JobSpec, Plan]:
    """What the nodes of a job boot first: the check, in the same places.

    Raises ConfigError where it cannot be planned.
    """
    first = alone(spec, "before")
    return first, settle(first, facts, draft.topology)


def plan(spec: JobSpec, topology: Topology, members: Members) -> Launch:
    """The check's program on each node; worker-0's end is the job's.

    Raises ConfigError for a job of one node, which has no network.
    """
    if len(topology.nodes) < 2:
        raise ConfigError(
            "EP012 a network check needs two nodes", "this job has one", "give --hosts, or a spec with hosts"
        )
    text = json_document(_settings(spec, topology, members))
    files = (
        File(SETTINGS, text, "the spec and the roll call", mode=0o600),
        File(ALL_REDUCE, render("netcheck/all_reduce.py", {}), "netcheck/all_reduce.py", mode=0o600),
        File(TOKEN, "", "this job's keys", mode=0o600, secret=True),
    )
    return Launch(
        (Program((topology.python, "-I", supervised.NETCHECK, topology.run_dir)),),
        files=files,
        folders=(topology.log_dir,) if topology.is_leader else (),
        start=LaunchStart(needs_roll_call=True),
        ends=LaunchEnds(
            completion="first-failure",
            awaited=(0,),
            takes_signals=False,
            answers=spec.command[1] != "before",
            why_file=WHY,
        ),
    )


def _settings(spec: JobSpec, topology: Topology, members: Members) -> dict[str, Any]:
    mine, asked = members.reports[topology.me].interface, spec.network.interface != "auto"
    return {
        "rank": topology.me,
        "job": topology.job,
        "nodes": [[node.label, node.host] for node in topology.nodes],
        "leader": topology.leader.where,
        # Where others reach this node: on the interface that was asked for, else where the roll call did.
        "address": mine.address if mine and asked else "",
        "addresses": [report.address for report in members.reports] if topology.is_leader else [],
        "port": spec.netcheck.port,
        "seconds": spec.netcheck.seconds,
        "limit": spec.netcheck.limit,
        "meet": spec.timeouts.launch,
        "max_latency_ms": spec.netcheck.max_latency_ms,
        "min_bandwidth_gbps": spec.netcheck.min_bandwidth_gbps,
        "stop": spec.netcheck.action == "stop",
        "how": spec.command[1],
        "log_dir": topology.log_dir,
    }
