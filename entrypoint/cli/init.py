"""`entrypoint init`: write a first job.yaml."""

from __future__ import annotations

import argparse
import os

from entrypoint.cli import inputs, outputs
from entrypoint.cli.parser import PROGRAM, Command
from entrypoint.output.log import Logger

COMMAND = Command(
    "write a first job.yaml, from flags and from what is in this folder",
    PROGRAM,
    ("--out FILE  new file, with job.schema.json next to it, or - for stdout (default: job.yaml)",),
    defaults={"spec": None, "out": "job.yaml"},
)

_SCHEMA = "job.schema.json"  # a file next to job.yaml: an editor needs no network for it


def act(args: argparse.Namespace, log: Logger) -> int:
    """Write the file, and log what a start of several nodes lacks besides it. Returns 0."""
    from entrypoint.base.errors import EntrypointError, UsageError
    from entrypoint.base.model import File
    from entrypoint.base.text import json_document
    from entrypoint.cli.schema import schema
    from entrypoint.plan import locate, without_boot_script
    from entrypoint.spec import left_out
    from entrypoint.system import keys
    from entrypoint.tools.adopt.init import document, head, not_written, settings

    if os.path.basename(args.out) == _SCHEMA:
        raise UsageError(f"EP110 --out: {_SCHEMA} is the schema's name", args.out, "--out job.yaml")
    # One file for all nodes: this machine needs no place among the hosts.
    if args.node_rank is None:
        args.node_rank = "0"
    given, facts = inputs.job(args)
    spec, replaced = without_boot_script(given)
    topology = locate(spec, facts)
    text = document(head(topology), list(settings(spec, topology, os.curdir, replaced)))
    if args.out != "-":
        text = f"# yaml-language-server: $schema={_SCHEMA}\n{text}"
    outputs.note_left_out(left_out(spec), log)
    if spec.calls(len(topology.nodes)):
        try:
            keys.require(spec, topology)
        except EntrypointError as error:
            log(f"run would end: {error.outcome.reason}; exit {error.status}")
    if unread := not_written(given, spec):
        log(f"not in {args.out}: {unread} | add what you need: docs/how-to/job-yaml.md")
    hint = f"try: entrypoint plan --spec {args.out}"
    of_editors = File(_SCHEMA, json_document(schema()), "", mode=0o644)
    return outputs.give(text, args.out, log, hint, of_editors)
