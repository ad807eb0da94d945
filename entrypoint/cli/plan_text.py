"""A plan in words and in JSON: what will run, and where each value came from."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from entrypoint.base import secret, values
from entrypoint.base.model import EnvVar, File, Node, Plan, Topology
from entrypoint.base.tables import table
from entrypoint.base.text import count, escaped, json_document
from entrypoint.spec import JobSpec, fields

_MODES = table("""
    exec        | this process becomes the program
    local       | the programs of this node are supervised
    coordinated | the nodes call each other and end with one result
""")


def _role(topology: Topology, node: Node) -> str:
    """Return what a node is in the job, as it is planned: leader, spare, or its task."""
    if node.rank >= topology.working:
        return "spare"
    return node.task if node.rank else "leader"


def plan_json(spec: JobSpec, plan: Plan) -> str:
    """The plan as JSON; secrets, and texts of secret files, are left out."""
    plan = _shown(plan)
    topology, launch = plan.topology, plan.launch
    document = {
        "job": topology.job,
        "platform": topology.platform,
        "device": {"kind": topology.device.kind, "count": topology.device.count},
        "launcher": plan.launcher,
        "nodes": [
            {name: getattr(node, name) for name in ("rank", "host", "slots")}
            | {"role": _role(topology, node)}
            for node in topology.nodes
        ],
        "this_node": topology.me,
        "world_size": plan.ranks,
        "mode": plan.mode,
        "roll_call": plan.roll_call,
        "alone": plan.no_roll_call,
        "members_assumed": plan.members.assumed,
        "later": list(plan.later),
        "completion": launch.completion,
        "programs": [
            {
                "command": list(program.argv),
                "env": [_variable(var) for var in program.env],
                "label": program.label,
                "log": program.log,
            }
            for program in launch.programs
        ],
        "workdir": plan.workdir,
        "run_dir": topology.run_dir,
        "env": [_variable(var) for var in plan.env],
        "env_of_each_rank": [_variable(var) for var in launch.ranks.env_of_each],
        "files": [_file(file) for file in plan.files],
        "settings": {
            path: {"value": value, "origin": origin}
            for path, value, origin in _settings(spec, plan)
        },
    }
    return json_document(document)


def _shown(value: Any) -> Any:
    """The plan, or a part of it, as others may read it: no value of a variable, an option or a URL
    that is secret."""
    if isinstance(value, EnvVar) and secret.hides(value.name, value.value):
        return values.replace(value, value=secret.HIDDEN)
    if isinstance(value, str):
        return secret.masked(value)
    if isinstance(value, (list, tuple)):
        if all(isinstance(entry, str) for entry in value):
            return type(value)(secret.masked_words(value))
        return type(value)(map(_shown, value))
    if values.is_dataclass(value) and not isinstance(value, type):
        parts = {part.name: _shown(getattr(value, part.name)) for part in values.fields(value)}
        return values.replace(value, **parts)
    return value


def _variable(var: EnvVar) -> dict[str, Any]:
    return {"name": var.name, "value": var.value, "origin": var.origin}


def _settings(spec: JobSpec, plan: Plan) -> list[tuple[str, Any, str]]:
    topology = plan.topology
    settled: dict[str, Any] = {
        "name": topology.job,
        "launcher": plan.launcher,
        "platform": topology.platform,
        "device": topology.device.kind,
        "hosts": [node.host for node in topology.nodes],
        "node_rank": topology.me,
        "slots": topology.this.slots,
        "run_dir": topology.run_dir,
        "log_dir": topology.log_dir,
        "workdir": plan.workdir,
        **({"port": plan.launch.port.first} if plan.launch.port else {}),
        "tensorflow.ps": sum(node.task == "ps" for node in topology.nodes),
        "tensorflow.chief": "worker-0" if topology.chief else "none",
    }
    rows = []
    for field in fields():
        if field.path in ("env", "command"):
            continue
        value: Any = spec.value(field.path)
        origin = topology.origins.get(field.path) or spec.source(field.path)
        if isinstance(value, str) and secret.hides(field.path, value):
            value = secret.HIDDEN
        value = settled.get(field.path, _shown(list(value) if isinstance(value, tuple) else value))
        rows.append((field.path, value, str(origin)))
    return rows


def _file(file: File) -> dict[str, Any]:
    return {
        "name": file.name,
        "mode": f"{file.mode:04o}",
        "origin": file.origin,
        "secret": file.secret,
        **({"text": file.text} if file.text and not file.secret else {}),
    }


def plan_text(
    spec: JobSpec, plan: Plan, lines_of: Sequence[tuple[str, str]] = (), all_settings: bool = False
) -> str:
    """The plan for a reader: topology, command, environment, files, settings.

    `lines_of`: for each program the command line of the launcher that its script builds, or why it
    is unknown. Settings that have their defaults are only counted, unless all are wanted.
    """
    plan = _shown(plan)
    topology, launch = plan.topology, plan.launch
    lines = [*_heading(plan), "", "nodes"]
    lines += [
        f"  {node.rank:<4} {topology.name(node.rank)}  slots {node.slots}"
        + "".join(f"  {role}" for role in ("leader", "spare") if _role(topology, node) == role)
        for node in topology.nodes
    ]
    lines += ["", "command"]
    if not launch.programs:
        lines.append("  none: waits until worker-0 releases it")
    for number, program in enumerate(launch.programs):
        copy = f", also into {program.log}" if program.log else ""
        note = f"  # {program.label}{copy}" if program.label else ""
        lines.append(f"  {shlex.join(program.argv)}{note}")
        line, unknown = lines_of[number] if lines_of else ("", "")
        if line or unknown:
            lines.append(f"  which starts: {line or f'not known here: {unknown}'}")
    lines += [f"  in {plan.workdir}", "", "environment, added to the container's"]
    lines += _variables(plan.env)
    lines += [f"  {var.name}={var.value}  # {var.origin}" for var in launch.ranks.env_of_each]
    for program in launch.programs:
        if program.env:
            lines += [
                "",
                f"environment of {program.label or 'the command'} alone",
                *_variables(program.env),
            ]
    if plan.files:
        lines += ["", f"files in {topology.run_dir}"]
        lines += [
            f"  {file.name}  {file.mode:04o}  {file.origin}{'  secret' * file.secret}"
            for file in plan.files
        ]
    lines += _setting_lines(spec, plan, all_settings)
    return "".join(f"{escaped(line)}\n" for line in lines)


def _setting_lines(spec: JobSpec, plan: Plan, all_settings: bool) -> list[str]:
    rows = [row for row in _settings(spec, plan) if row[1] is not None]
    shown = [row for row in rows if all_settings or row[2] != "default"]
    left = len(rows) - len(shown)
    head = f"settings; --all shows {count(left, 'default')}, too" if left else "settings"
    return ["", head] + [
        f"  {path}: {' '.join(value) if isinstance(value, list) else value}  # {origin}"
        for path, value, origin in shown
    ]


def _heading(plan: Plan) -> list[str]:
    """The job, this node, and how the nodes come together."""
    topology = plan.topology
    nodes = len(topology.nodes)
    lines = [
        (
            f"job {topology.job}: {count(nodes, 'node')}, {count(plan.ranks, 'rank')}, "
            f"launcher {plan.launcher}, platform {topology.platform}, device {topology.device.kind}"
        ),
        f"this node: {topology.this.name}",
        f"mode: {plan.mode}, {_MODES[plan.mode]}",
    ]
    if plan.no_roll_call:
        lines.append(f"roll call: none, by {plan.no_roll_call}: each node ends with its own status")
    elif nodes > 1:
        lines.append(
            f"roll call: {plan.roll_call}; every node is assumed to be like this one until it has"
            " answered"
        )
    return [*lines, *plan.later]


def _variables(env: tuple[EnvVar, ...]) -> list[str]:
    return [f"  {var.name}={shlex.quote(var.value)}  # {var.origin}" for var in env]
