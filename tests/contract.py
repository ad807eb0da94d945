"""What users rely on, as sets of texts: commands, fields, variables, messages, statuses, JSON keys,
adapters, and the names that templates are given.

tests/contract.yaml has those of the last release; before the first one, of commit ca688ba.
tests/process/test_contract.py compares the toolkit with it. `python -m tests.contract` writes it
anew, in the commit of a release (CONTRIBUTING.md) and at no other time.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from jinja2 import meta

from entrypoint.base import errors, registry
from entrypoint.base.render import TEMPLATES, _environment
from entrypoint.cli.parser import parser
from entrypoint.features import explain
from entrypoint.features.record import metrics
from entrypoint.spec import table
from tests import command

LIST = Path(__file__).with_name("contract.yaml")
KINDS = ("launchers", "platforms", "devices", "deploy")
JOB = ("--hosts", "a,b", "--node-rank", "0", "--slots", "2")
# Commands whose stdout is JSON, and their statuses where nothing is wrong with the command line.
COMMANDS = {
    "plan of mpirun": ("plan", "--json", *JOB, "--launcher", "mpirun", "--", "true"),
    "plan of torchrun": ("plan", "--json", *JOB, "--launcher", "torchrun", "--", "true"),
    "plan of one program": ("plan", "--json", "--", "true"),
    "check": ("check", "--json", "--", "true"),
}


def contract() -> dict[str, list[str]]:
    """Return all of it, each list sorted."""
    settings = [*table.fields(), *table.former_fields().values()]
    parts = {
        "flags": _flags(),
        "fields": [field.path for field in settings],
        "variables": [name for field in settings for name in (field.env, *field.aliases)],
        "messages": [f"{id} {_ends(entry)}" for id, entry in explain.messages().items()],
        "statuses": [f"{status} {kind}" for status, kind in errors.CLASSES.items()],
        "adapters": [f"{kind}/{name}" for kind in KINDS for name in registry.names(kind)],
        "metrics": list(metrics.METRICS),
        "templates": [*_template_names()],
        "json": [key for name, words in COMMANDS.items() for key in _json_keys(name, words)],
    }
    return {name: sorted({*found}) for name, found in parts.items()}


def _ends(entry: Any) -> str:
    return " ".join(str(status) for status in entry.statuses)


def _flags() -> Iterator[str]:
    for action in parser(None, ())._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name in action.choices:
                yield name
                yield from _flags_of(name, _subparser(name))


def _subparser(name: str) -> argparse.ArgumentParser:
    """The parser of a command has its flags only if the command was asked for."""
    for action in parser(None, (name,))._actions:
        if isinstance(action, argparse._SubParsersAction) and name in action.choices:
            found: argparse.ArgumentParser = action.choices[name]
            return found
    raise LookupError(name)


def _flags_of(command: str, options: argparse.ArgumentParser) -> Iterator[str]:
    for action in options._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, inner in action.choices.items():
                yield f"{command} {name}"
                yield from _flags_of(f"{command} {name}", inner)
        yield from (f"{command} {flag}" for flag in action.option_strings)


def _template_names() -> Iterator[str]:
    """Yield what each template is given, as `template: name`; a name that is not given is an error
    when it is rendered, so those that it uses are."""
    parse = _environment("sh").parse
    for path in sorted(Path(TEMPLATES).rglob("*.j2")):
        for name in meta.find_undeclared_variables(parse(path.read_text())):
            yield f"{path.relative_to(TEMPLATES).as_posix()}: {name}"


def least_version(last: str, lost: bool, more: bool) -> str:
    """Return the least version, by the rules of https://semver.org, that may follow the last one.

    `lost`: something that users rely on is gone. `more`: something is new. Before 1.0.0 a loss
    raises the minor number.
    """
    major, minor, patch = map(int, last.split("."))
    if lost and major:
        return f"{major + 1}.0.0"
    return f"{major}.{minor + 1}.0" if lost or more else f"{major}.{minor}.{patch + 1}"


def _json_keys(name: str, words: tuple[str, ...]) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        env = {
            "PATH": os.environ["PATH"],
            "HOME": folder,
            "ENTRYPOINT_SECRET": secrets.token_hex(32),
            "ENTRYPOINT_RUN_DIR": f"{folder}/run",
        }
        text = command.run(Path(folder), *words, env=env).stdout
    yield from _keys(name, json.loads(text))


def _keys(path: str, value: Any) -> Iterator[str]:
    """Yield the path of each key; what a list holds is `[]`, and names of variables and files are
    `*`."""
    if isinstance(value, dict):
        free = path.endswith((".env", ".files", ".libraries"))
        for key, inner in value.items():
            yield from _keys(f"{path}.{'*' if free else key}", inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _keys(f"{path}[]", inner)
    else:
        yield path


if __name__ == "__main__":
    yaml.safe_dump(contract(), sys.stdout, width=120, default_flow_style=None)
