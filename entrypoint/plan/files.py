"""The files of this node's sshd and ssh, and what `entrypoint render` writes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from entrypoint.base import heartbeat
from entrypoint.base.model import Facts, File, Node, Plan, Topology
from entrypoint.base.registry import load, names
from entrypoint.base.render import quote_ssh
from entrypoint.base.values import replace
from entrypoint.launchers._common import file
from entrypoint.plan.env import session_env
from entrypoint.plan.topology import locate
from entrypoint.spec import JobSpec, for_launcher

_OWN = "`entrypoint run` has made the keys, and starts sshd with this file."
_SAMPLE = (
    "A sample: `entrypoint run` does not read this file; it renders its own at each start, with"
    " keys from the job's secret."
)
_BY_HAND = "ssh-keygen -t ed25519 -N '' -f host_key"


def rendered(spec: JobSpec, facts: Facts, origin: str) -> list[File]:
    """Return what `entrypoint render` writes: the script of each launcher that has one, and sshd's
    configuration."""
    topology = locate(spec, facts)
    files = [_sshd_config(spec, facts, topology, origin)]
    for name in names("launchers"):
        if write := getattr(load("launchers", name), "script", None):
            files.append(write(for_launcher(spec, name), topology, origin))
    return files


def ssh_files(spec: JobSpec, facts: Facts, plan: Plan) -> Iterator[File]:
    """Yield the files of sshd, and of an ssh client if the job is to have one; none without a roll
    call."""
    topology = plan.topology
    if plan.mode != "coordinated":
        return
    yield _sshd_config(spec, facts, topology)
    yield File("host_key", "", "this job's keys", secret=True)
    yield File("authorized_keys", "", "this job's keys")
    if topology.naming:
        yield File("passwd", "", "a name for this uid, for sshd and ssh alone")
    if spec.ssh.client == "files" and topology.is_leader:
        yield from _client_files(spec, facts, plan)


def _client_files(spec: JobSpec, facts: Facts, plan: Plan) -> Iterator[File]:
    """Yield what an ssh client needs to log in to the nodes."""
    topology = plan.topology
    peers = [
        {"host": node.host, "address": report.address, "port": report.ssh_port or node.ssh_port}
        for node, report in zip(topology.nodes, plan.members.reports, strict=True)
    ]
    context = _client_context(spec, topology, "the roll call", peers)
    context["ssh"] = facts.programs.get("ssh", "ssh")
    yield file("ssh/ssh_config.j2", context)
    yield replace(file("ssh/ssh.sh.j2", context, 0o700), name="ssh")
    yield File("client_key", "", "this job's keys", secret=True)
    yield File("known_hosts", "", "this job's keys")


def client_config(spec: JobSpec, topology: Topology, node: Node) -> File:
    """Return the configuration of an ssh client that calls this node."""
    peers = [{"host": node.host, "address": node.where, "port": node.ssh_port}]
    return file("ssh/ssh_config.j2", _client_context(spec, topology, "the job's spec", peers))


def _client_context(
    spec: JobSpec, topology: Topology, origin: str, peers: list[dict[str, Any]]
) -> dict[str, Any]:
    return {
        "origin": origin,
        "run_dir": topology.run_dir,
        "user": topology.user,
        "port": peers[0]["port"],
        "alive_interval": _alive_interval(spec),
        "peers": peers,
        "library": topology.naming,
    }


def _alive_interval(spec: JobSpec) -> int:
    """Seconds of silence after which sshd and ssh ask the other side."""
    return math.ceil(heartbeat.interval(spec.timeouts.heartbeat))


def _sshd_config(spec: JobSpec, facts: Facts, topology: Topology, sample: str = "") -> File:
    """Return sshd's configuration on this node, or a sample of it with this origin."""
    this = topology.this
    lines = [f"Port {this.ssh_port}"] if this.ssh_port else []  # or sshd gets it as an argument
    if this.address:
        lines.append(f"ListenAddress {quote_ssh(this.address)}")
    if spec.ssh.client == "none" and not sample:
        shell = facts.programs.get("sh", "sh")
        lines += [
            "# Whatever a session asks for, it gets the roll call's; `entrypoint run` writes it.",
            f"ForceCommand exec {shell} {quote_ssh(topology.run_dir + '/attend')}",
        ]
    context = {
        "origin": sample or "the job's spec",
        "about": _SAMPLE if sample else _OWN,
        "user": topology.user,
        "run_dir": topology.run_dir,
        "host_key": f"a copy of {spec.ssh.host_key}" if spec.ssh.host_key else _BY_HAND,
        "alive_interval": _alive_interval(spec),
        "root_login": "no" if facts.uid else "prohibit-password",
        "startups": max(256, 2 * len(topology.nodes)),
        "login_grace": 15,
        # the rest is this machine's, or made by `run`, and a sample is for others
        "session_env": (
            {"ENTRYPOINT_RUN_DIR": topology.run_dir} if sample else session_env(facts, topology)
        ),
        "more": "\n".join(lines),
    }
    return file("ssh/sshd_config.j2", context, 0o644 if sample else 0o600)
