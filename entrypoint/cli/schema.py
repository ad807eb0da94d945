"""`entrypoint schema`: print the spec's JSON Schema."""

from __future__ import annotations

import argparse

from entrypoint.base.text import json_document
from entrypoint.cli.parser import Command
from entrypoint.output.log import Logger, answer

COMMAND = Command("print the job spec's JSON Schema, for editors", "", is_of_job=False)


def act(args: argparse.Namespace, log: Logger) -> int:
    """Print the schema. Returns 0."""
    from entrypoint.cli.spec_schema import schema

    answer(json_document(schema()))
    return 0
