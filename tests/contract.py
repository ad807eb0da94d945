"""What users rely on, as sets of texts: commands, fields, variables, messages, statuses, JSON keys,
adapters.

`python -m tests.contract` wrote tests/contract.yaml before the redesign of issue 26 (commit
ca688ba). It is not written
again: tests/process/test_contract.py compares the toolkit with it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import yaml

from entrypoint import cli, errors, explain, registry
from entrypoint.cli.parser import parser
from entrypoint.record import metrics
from entrypoint.spec import table

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
    parts = {
        "flags": _flags(),
        "fields": [field.path for field in table.fields()],
        "variables": [name for field in table.fields() for name in (field.env, *field.aliases)],
        "messages": [f"{id} {_ends(entry)}" for id, entry in explain.messages().items()],
        "statuses": [f"{status} {kind}" for status, kind in errors.CLASSES.items()],
        "adapters": [f"{kind}/{name}" for kind in KINDS for name in registry.names(kind)],
        "metrics": list(metrics.METRICS),
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


def _json_keys(name: str, words: tuple[str, ...]) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        env = {
            "PATH": os.environ["PATH"],
            "HOME": folder,
            "ENTRYPOINT_SECRET": secrets.token_hex(32),
            "ENTRYPOINT_RUN_DIR": f"{folder}/run",
        }
        with mock.patch.dict(os.environ, env, clear=True):
            text = _run(words)
    yield from _keys(name, json.loads(text))


def _run(words: tuple[str, ...]) -> str:
    """Return what a command prints."""
    argv = [
        sys.executable,
        "-c",
        "import sys; from entrypoint.cli import main; sys.exit(main())",
        *words,
    ]
    tree = str(Path(cli.__file__).parents[2])
    env = {**os.environ, "PYTHONPATH": tree}
    return subprocess.run(
        argv, env=env, capture_output=True, text=True, check=False, timeout=60
    ).stdout


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
