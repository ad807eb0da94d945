"""Makes a first job.yaml from flags and from what is found here: platform, devices, a script. A
comment is above each setting, and what is only proposed is a comment.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from math import inf
from pathlib import Path
from typing import Any

import yaml

from entrypoint.base.model import Topology
from entrypoint.base.secret import masked_words
from entrypoint.base.text import brief, count, one_line, some
from entrypoint.base.values import frozen
from entrypoint.spec import JobSpec, fields, left_out, set_fields
from entrypoint.system.files import read

_OWN = {"node_rank"}  # one node's, so not for the file of all nodes
_SCRIPTS = ("train.py", "main.py")  # names that need no second look
_MOST_FILES = 1000  # entries of a folder that are read
_MOST_TEXT = 1 << 18  # bytes of a script that are read


@cache
def _table() -> dict[str, Any]:
    """Return the content of proposals.yaml."""
    data: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("proposals.yaml").read_text())
    return data


@frozen
class Setting:
    """One field with its value, and what is said about it."""

    path: str  # dotted, such as `ssh.port`
    value: Any
    comment: str
    proposed: bool = False  # written as a comment


def document(head: Iterable[str], settings: Sequence[Setting]) -> str:
    """Return the YAML text: the head as comments, then the settings in the order of the spec."""
    order = {field.path: at for at, field in enumerate(fields())}
    lines = [_comment(line) for line in head]
    section = ""
    for setting in sorted(settings, key=lambda setting: order[setting.path]):
        group, _, key = setting.path.rpartition(".")
        if group != section and group:
            of_group = (each for each in settings if each.path.startswith(f"{group}."))
            is_proposed = all(each.proposed for each in of_group)
            lines += ["", f"{'# ' if is_proposed else ''}{group}:"]
        elif not group:
            lines.append("")
        section = group
        lines += _setting(setting, key, "  " if group else "")
    return "\n".join([*lines, ""])


def _setting(setting: Setting, key: str, indent: str) -> Iterator[str]:
    if setting.comment:
        yield f"{indent}{_comment(setting.comment)}"
    before = f"# {indent}" if setting.proposed else indent
    if isinstance(setting.value, dict):
        yield f"{before}{key}:"
        for name, value in setting.value.items():
            yield f"{before}  {name}: {_value(value)}"
    else:
        yield f"{before}{key}: {_value(setting.value)}"


def _value(value: Any) -> str:
    """Return a text, number or list of texts as YAML on one line."""
    for allow_unicode in (True, False):
        text = yaml.safe_dump(
            value, allow_unicode=allow_unicode, default_flow_style=True, width=inf
        )
        shown: str = text.removesuffix("...\n").strip()
        if shown.isprintable():
            break
    return shown  # without such as U+202E, which reverses what people see


def _comment(text: str) -> str:
    return f"# {one_line(text)}".rstrip()


def head(topology: Topology) -> list[str]:
    """Return the first lines: how the file is used, and what was found here."""
    nodes = [node.host for node in topology.nodes]
    source = topology.origins.get("hosts")
    site = f"platform {topology.platform}, device {topology.device.kind}"
    if len(nodes) > 1:
        site += f", {count(len(nodes), 'node')} ({some(nodes, 3)}; {source})"
    slots = topology.this.slots
    return [
        "One training job, the same file on every node. Start it there with:",
        "  entrypoint run --spec job.yaml",
        "Every field: docs/reference/spec.md, or `entrypoint schema`.",
        f"Found here: {site}, {count(slots, 'slot')} ({topology.origins.get('slots')}).",
        "What a platform tells is read again at each start, so it is not written below.",
    ]


def settings(
    spec: JobSpec, topology: Topology, folder: str, replaced: str = ""
) -> Iterator[Setting]:
    """Yield the file's settings: what flags set, what a script in `folder` tells, and proposals.
    `replaced`: the launcher of the boot script that stood before the command."""
    script, why_script = _script(spec.command, folder)
    launcher, why_launcher = launcher_of(_text(folder, script) if script else "")
    reason = "the boot script's" if replaced else f"{brief(script)}: {why_launcher}"
    proposals = {
        "command": (["python", script] if script and not spec.command else None, why_script),
        "launcher": (
            replaced or (launcher if not topology.launcher else None),
            reason,
        ),
    }
    for field in fields():
        value, comment = proposals.get(field.path, (None, ""))
        if field.path in (*_OWN, *left_out(spec)):
            continue
        if spec.source(field.path).origin == "flag" or (field.path == "env" and spec.env):
            yield Setting(field.path, _written(spec, field.path), f"{field.summary}.")
        elif value is not None:
            yield Setting(field.path, value, f"{field.summary} ({comment}).")
        elif field.path in _table()["settings"]:
            comment = f"{field.summary}.{_table()['when'].get(field.path, '')}"
            yield Setting(field.path, _table()["settings"][field.path], comment, True)


def not_written(given: JobSpec, spec: JobSpec) -> str:
    """Return what the user gave and the file does not have: the words before the program of `spec`,
    of which a boot script may set more, and the variables that set fields; "" for nothing."""
    before = given.command[: len(given.command) - len(spec.command)]
    sources = (given.source(field.path) for field in set_fields(given))
    variables = dict.fromkeys(source.where for source in sources if source.origin == "env")
    script = f"what {before[-1]} sets" if before else ""
    return ", ".join(filter(None, (" ".join(masked_words(before)), script, *variables)))


def _written(spec: JobSpec, path: str) -> Any:
    value = spec.value(path)
    if path == "env":
        return {name: text for name, text in value.items() if name not in left_out(spec)}
    return list(value) if isinstance(value, tuple) else value


def _script(command: Sequence[str], folder: str) -> tuple[str, str]:
    """Return the training script that a command or the folder has, and why; "" if none is clear."""
    if command:
        return next((word for word in command if word.endswith(".py")), ""), ""
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry, _ in zip(entries, range(_MOST_FILES), strict=False)]
    except OSError:
        return "", ""
    for name in _SCRIPTS:
        if name in names:
            return name, f"{name} is in this folder"
    programs = [
        name for name in sorted(names) if name.endswith(".py") and "__main__" in _text(folder, name)
    ]
    if len(programs) == 1:
        return programs[0], f"{brief(programs[0])} is the only program in this folder"
    return "", ""


def launcher_of(text: str) -> tuple[str | None, str]:
    """Return the launcher for which a script is written, and why; None if it does not tell."""
    for pattern, launcher, why in _table()["launchers"]:
        if re.search(pattern, text):
            return launcher, why
    return None, ""


def _text(folder: str, name: str) -> str:
    try:
        return read(os.path.join(folder, name), 1.0)[:_MOST_TEXT].decode("utf-8", "replace")
    except OSError:
        return ""
